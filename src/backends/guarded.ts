/**
 * Wraps a caller's function so that it cannot break the runtime: what it throws or rejects with is dropped.
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
