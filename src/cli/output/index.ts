/** What commands show and write: tables, charts, progress, quantities, result files. */

export { renderSvg, type VegaLiteSpec } from './chart.ts';
export { makeDirectory } from './makeDirectory.ts';
export { printable } from './printable.ts';
export {
  noticeLine,
  type ProgressBar,
  type ProgressClock,
  type ProgressState,
  startProgressBar,
} from './progressBar.ts';
export { printText, requireWritableTarget, writeJsonFile, writeResults, writeText } from './resultFile.ts';
export { renderTable, type TableColumn } from './table.ts';
export { traceStem } from './traceStem.ts';
export * from './units.ts';
