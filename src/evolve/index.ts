/** Policies as data: read, bound, scored, explained and searched. */

export * from './binding/index.ts';
export * from './bundle/index.ts';
export * from './features/index.ts';
export * from './fitness/index.ts';
export * from './search/index.ts';
export * from './serve/index.ts';
export * from './summary/index.ts';
export * from './trace/index.ts';
