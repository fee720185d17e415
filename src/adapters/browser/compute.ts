/** Kernels over paged blocks in a page or a worker: `tierkv/compute`, on the device that `tierkv/browser` shares. */

export * from '../../compute/index.ts';
