/**
 * Waits for the GPU without keeping a core busy. For that it replaces `globalThis.setImmediate` for short
 * moments.
 *
 * Why: while any promise of the webgpu binding is pending, the binding looks at the device in every turn of
 * the event loop. It schedules each look by handing a native function to `globalThis.setImmediate`, so a core
 * is busy for as long as anything is under way. The binding has no setting for this.
 *
 * What is patched: only while the binding itself runs (a call that starts a wait, or a look that goes on with
 * one), `globalThis.setImmediate` is `schedule` below; afterwards it is the former function again. `schedule`
 * hands every other callback on unchanged. For the first 8 ms after a wait has started, it hands looks on as
 * well. Later looks run when something else wakes the event loop, and at least once a millisecond:
 *
 *     wait starts |x x x x x x x x|   x    x  x   x   x|      x = a look
 *                 |     8 ms      |  asleep in between |
 */

type SetImmediate = typeof globalThis.setImmediate;
type Callback = (...args: unknown[]) => void;

/**
 * Milliseconds of eager looks. A staging buffer takes less on every device measured, so transfers lose no
 * time.
 */
const EAGER_MS = 8;
const SLEEP_MS = 1;

let eagerUntilMs = 0;
let delayedLooks = 0;

/** Runs a call into the binding that may start a wait. A page has no such binding: there the call runs as it is. */
export function governed<T>(call: () => T): T {
  if (typeof globalThis.setImmediate !== 'function') return call();
  eagerUntilMs = performance.now() + EAGER_MS;
  return withReplacement(call);
}

/** Number of looks that this process has delayed so far. */
export function looksPutOff(): number {
  return delayedLooks;
}

/** The function that `schedule` replaces at present; undefined while nothing is replaced. */
let former: SetImmediate | undefined;
/** The function whose properties (overloads, the promisify symbol) were copied onto `schedule`. */
let imitated: SetImmediate | undefined;

function withReplacement<T>(call: () => T): T {
  if (former !== undefined) return call();
  former = globalThis.setImmediate;
  if (imitated !== former) {
    Object.assign(schedule, former);
    imitated = former;
  }
  // The overloads and the promisify symbol were copied onto `schedule`; its type does not show them.
  globalThis.setImmediate = schedule as unknown as SetImmediate;
  try {
    return call();
  } finally {
    globalThis.setImmediate = former;
    former = undefined;
  }
}

/** Replaces `setImmediate`. Code that kept a reference may go on calling it: only looks are delayed. */
function schedule(callback: Callback, ...args: unknown[]): NodeJS.Immediate {
  const next = former ?? globalThis.setImmediate;
  if (!isLook(callback)) return next(callback, ...args);
  const look = (): void => withReplacement(() => callback(...args));
  if (performance.now() < eagerUntilMs) return next(look);
  delayedLooks += 1;
  let looked = false;
  const lookOnce = (): void => {
    if (looked) return;
    looked = true;
    clearTimeout(timer);
    clearImmediate(immediate);
    look();
  };
  const timer = setTimeout(lookOnce, SLEEP_MS);
  // An unreferenced immediate lets the loop sleep, and runs when the loop wakes.
  const immediate = next(lookOnce).unref();
  return immediate;
}

/**
 * Whether this is the binding's callback: a nameless native function, like a promise's `resolve` and few
 * others.
 */
function isLook(callback: unknown): boolean {
  return (
    typeof callback === 'function' &&
    callback.name === '' &&
    Function.prototype.toString.call(callback).includes('[native code]')
  );
}
