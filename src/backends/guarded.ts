/** Functions that callers give to be told of something. */

/**
 * A caller's function never stands in the way of the runtime: what it throws is dropped, also later, where it
 * returns a promise.
 */
export function guarded<Args extends readonly unknown[]>(
  callback: ((...args: Args) => unknown) | undefined,
): (...args: Args) => void {
  return (...args) => {
    try {
      Promise.resolve(callback?.(...args)).catch(() => {});
    } catch {}
  };
}
