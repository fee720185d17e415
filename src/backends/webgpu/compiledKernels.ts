/**
 * Kernels as they were compiled for a device, kept for as long as it lives. The self-test of a device and each pool on it
 * run the same kernels, and so do all runtimes and decoders that share a device: the device compiles each of them once.
 * On a software device that is most of the time that opening takes.
 */

const byDevice = new WeakMap<GPUDevice, Map<string, Promise<unknown>>>();

/**
 * @param about everything that the result depends on; it is compared as JSON
 * @param compile called for the first of equal kernels; what failed is tried again by the next
 */
export function compiledOnce<T>(device: GPUDevice, about: unknown, compile: () => Promise<T>): Promise<T> {
  let kernels = byDevice.get(device);
  if (kernels === undefined) {
    kernels = new Map();
    byDevice.set(device, kernels);
  }
  const key = JSON.stringify(about);
  const found = kernels.get(key);
  if (found !== undefined) return found as Promise<T>;
  const made = compile();
  kernels.set(key, made);
  made.catch(() => kernels.delete(key));
  return made;
}
