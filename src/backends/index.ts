/** What moves bytes: one store for each tier. */

export * from './file/index.ts';
export * from './memory/index.ts';
