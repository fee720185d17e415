/** Recorded traces: readers over lines for every supported format, and TraceV2 in and out. */

export { type ClosedLoopTrace, closedLoopTrace } from './closedLoop.ts';
export { CsvHeader, splitCsv } from './csv.ts';
export * from './importers/index.ts';
export { type Lines, TraceLine } from './lines.ts';
export * from './servegen.ts';
export * from './servegenFiles.ts';
export { TakenColumns } from './taken.ts';
export * from './v2/index.ts';
