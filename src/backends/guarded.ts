/** Wraps functions that a caller passed in, so that their errors cannot break the runtime: an error is dropped, or reported. */

/** The callback as a function that never throws. Errors and rejections of the callback are dropped. */
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
 * An object with the named methods of `of`, none of which throws. Methods that `of` lacks are left out.
 * @param threw receives the errors and rejections of all methods
 * @param made turns a method's result into the one that its caller gets; it is given `undefined` after an error
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
