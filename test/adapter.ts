/**
 * The adapter of tests. It is the software device, so that tests are the same on every machine. `TIERKV_ADAPTER=hardware`
 * runs them on the GPU of this machine instead: the paths that only a GPU takes have no other test.
 */
export const testAdapter: string = process.env.TIERKV_ADAPTER || 'software';
