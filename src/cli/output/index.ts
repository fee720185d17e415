/** What commands show and write: tables, progress, quantities, result files. */

export { printable } from './printable.ts';
export { type ProgressBar, type ProgressState, startProgressBar } from './progressBar.ts';
export { requireWritableTarget, writeJsonFile, writeResults, writeText } from './resultFile.ts';
export { renderTable, type TableColumn } from './table.ts';
export * from './units.ts';
