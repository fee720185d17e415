/** What a replay found, as an object and as text. */

export { renderReport } from './render.ts';
export { type LinkName, linkNames, type ReplayReport } from './report.ts';
