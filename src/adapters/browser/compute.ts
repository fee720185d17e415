/** The door `tierkv/compute` in a page or a worker: kernels over paged blocks, on the device that `tierkv/browser` shares. */

export * from '../../compute/index.ts';
