/**
 * Waiting for the GPU without burning a core. While any of its promises is pending, the binding looks at the device in every
 * turn of the event loop, by a native function that it gives to `setImmediate`: a core is busy for as long as anything is
 * under way. Here it does so for the first milliseconds of each wait only, for quick ends. After that it looks whenever
 * something else wakes the event loop, and at least once a millisecond:
 *
 *     wait begins |x x x x x x x x|   x    x  x   x   x|      x = a look
 *                 |  eager, 8 ms  |  asleep in between |
 *
 * The binding takes `setImmediate` from `globalThis` whenever it begins or goes on to wait, so it is replaced for exactly the
 * calls in which it may do that, and nobody sees another one but a device's own listeners, which may be called in them.
 */

type SetImmediate = typeof globalThis.setImmediate;
type Callback = (...args: unknown[]) => void;

/** Longer than a staging buffer takes on any device that was seen: a batch of transfers never waits for a sleeper. */
const EAGER_MS = 8;
const SLEEP_MS = 1;

let eagerUntilMs = 0;
let putOff = 0;

/** Calls into the binding, where a wait may begin. */
export function governed<T>(begin: () => T): T {
  eagerUntilMs = performance.now() + EAGER_MS;
  return withReplacement(begin);
}

/** Looks that were put off in this process so far. */
export function looksPutOff(): number {
  return putOff;
}

let replaced: SetImmediate | undefined;
/** Whose properties `schedule` has. */
let dressedAs: SetImmediate | undefined;

function withReplacement<T>(call: () => T): T {
  if (replaced !== undefined) return call();
  replaced = globalThis.setImmediate;
  if (replaced !== dressedAs) {
    // the type also has overloads and a promisify symbol, which are taken over from the function that was there
    Object.assign(schedule, replaced);
    dressedAs = replaced;
  }
  globalThis.setImmediate = schedule as unknown as SetImmediate;
  try {
    return call();
  } finally {
    globalThis.setImmediate = replaced;
    replaced = undefined;
  }
}

/** Stands for `setImmediate`, also for who kept it. Only the binding's own callbacks are anything special. */
function schedule(callback: Callback, ...args: unknown[]): NodeJS.Immediate {
  const next = replaced ?? globalThis.setImmediate;
  if (!isLook(callback)) return next(callback, ...args);
  const call = (): void => withReplacement(() => callback(...args));
  if (performance.now() < eagerUntilMs) return next(call);
  putOff += 1;
  let looked = false;
  const look = (): void => {
    if (looked) return;
    looked = true;
    clearTimeout(timer);
    clearImmediate(immediate);
    call();
  };
  const timer = setTimeout(look, SLEEP_MS);
  // one that does not keep the loop from sleeping runs when the loop wakes
  const immediate = next(look).unref();
  return immediate;
}

/** The binding's callback is a function without a name and without source; so is the `resolve` of a promise, if little else. */
function isLook(callback: unknown): boolean {
  return (
    typeof callback === 'function' &&
    callback.name === '' &&
    Function.prototype.toString.call(callback).includes('[native code]')
  );
}
