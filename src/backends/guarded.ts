/**
 * Wraps what a caller gave to be called, so that it cannot break what calls it: what it throws or rejects with is dropped,
 * or told.
 */

/** What it throws or rejects with is dropped. */
export function guarded<Args extends readonly unknown[]>(
  callback: ((...args: Args) => unknown) | undefined,
): (...args: Args) => void {
  return (...args) => {
    try {
      Promise.resolve(callback?.(...args)).catch(() => {});
    } catch {}
  };
}

/**
 * An object with those of the named methods that `of` has. What one of them throws or rejects with goes to `threw`.
 * @param made what a method's result becomes, where it counts
 */
export function guardedMethods<Of extends object>(
  of: Of,
  names: readonly (keyof Of)[],
  threw: (error: unknown) => void,
  made: (result: unknown) => unknown = (result) => result,
): Of {
  const safe: Partial<Record<keyof Of, unknown>> = {};
  for (const name of names) {
    const method: unknown = of[name];
    if (typeof method !== 'function') continue;
    safe[name] = (...args: unknown[]): unknown => {
      try {
        const result: unknown = method.apply(of, args);
        if (result instanceof Promise) result.catch(threw);
        return made(result);
      } catch (error) {
        threw(error);
        return made(undefined);
      }
    };
  }
  return safe as Of;
}
