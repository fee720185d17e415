/**
 * Waiting for the GPU without burning a core, for those who ask for it. While any of its promises is pending, the binding
 * looks at the device in every turn of the event loop, by a native function that it gives to `setImmediate`: a core is busy
 * for as long as anything is under way. The governor lets the first such turns after each wait begin pass, for quick ends,
 * and then lets one millisecond pass between two looks.
 *
 * It replaces `globalThis.setImmediate` while at least one device wants it, which is why it is off by default; callbacks of
 * anybody else go straight to the function that was there before.
 */

const FAST_TURNS = 64;
const SLEEP_MS = 1;

let users = 0;
let fastTurnsLeft = FAST_TURNS;
let restore: () => void = () => {};

/** Looks that the governor has put off so far. */
let sleeps = 0;

export interface WaitGovernor extends Disposable {
  /** A wait begins: its end may be near. */
  poke(): void;
  readonly sleeps: number;
}

export function governWaits(): WaitGovernor {
  if (users++ === 0) install();
  let using = true;
  return {
    poke() {
      fastTurnsLeft = FAST_TURNS;
    },
    get sleeps() {
      return sleeps;
    },
    [Symbol.dispose]() {
      if (using && --users === 0) restore();
      using = false;
    },
  };
}

function install(): void {
  const before = globalThis.setImmediate;
  const governed = (callback: (...args: unknown[]) => void, ...args: unknown[]): unknown => {
    if (!isPump(callback) || fastTurnsLeft-- > 0) return before(callback, ...args);
    sleeps += 1;
    return setTimeout(callback, SLEEP_MS, ...args);
  };
  // the type also has overloads and a promisify symbol, which Object.assign takes over from the function that was there
  const replacement = Object.assign(governed, before) as unknown as typeof setImmediate;
  globalThis.setImmediate = replacement;
  restore = () => {
    // whoever replaced it after us keeps what he has
    if (globalThis.setImmediate === replacement) globalThis.setImmediate = before;
  };
}

/** The binding's own callback is a function without a name and without source. */
function isPump(callback: unknown): boolean {
  return (
    typeof callback === 'function' &&
    callback.name === '' &&
    Function.prototype.toString.call(callback).includes('[native code]')
  );
}
