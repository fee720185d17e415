/** Readers of other people's traces, one file a format: each is a generator from lines to requests. */

export * from './azure.ts';
export * from './lengths.ts';
export * from './miniswe.ts';
export * from './mooncake.ts';
export * from './tokenIds.ts';
export * from './weka.ts';
