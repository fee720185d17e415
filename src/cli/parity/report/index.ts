/** A real run and its prediction, compared, as an object, as text and as a picture. */

export { compareHits, compareLatencies, compareLinks } from './comparison.ts';
export { type ParityReport, renderParity } from './parityReport.ts';
export { type DrawnRun, parityChart } from './plot.ts';
