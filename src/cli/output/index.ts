/** What commands show and write: tables, progress, quantities, result files. */
export { requireWritableTarget, writeJsonFile } from './jsonFile.ts';
export { type ProgressBar, type ProgressState, startProgressBar } from './progressBar.ts';
export { renderTable, type TableColumn } from './table.ts';
export * from './units.ts';
