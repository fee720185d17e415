/** Recorded traces: readers over lines for every supported format, and TraceV2 in and out. */

export * from './azure.ts';
export * from './lengths.ts';
export type { Lines } from './lines.ts';
export * from './miniswe.ts';
export * from './mooncake.ts';
export * from './servegen.ts';
export * from './servegenFiles.ts';
export * from './tokenIds.ts';
export * from './v2Header.ts';
export * from './v2Read.ts';
export * from './v2Write.ts';
export * from './weka.ts';
