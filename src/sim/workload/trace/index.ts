/** Recorded traces: readers over lines for every supported format, and TraceV2 in and out. */

export * from './azure.ts';
export * from './lengths.ts';
export type { Lines } from './lines.ts';
export * from './miniswe.ts';
export * from './mooncake.ts';
export * from './servegen.ts';
export * from './servegen-files.ts';
export * from './token-ids.ts';
export * from './v2-header.ts';
export * from './v2-read.ts';
export * from './v2-write.ts';
export * from './weka.ts';
