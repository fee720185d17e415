/** The simulator in a page or a worker: `tierkv/simulate`, with the data files of the package in it and no disk. */

export * from './build/index.ts';
