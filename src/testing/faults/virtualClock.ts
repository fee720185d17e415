/**
 * Time that passes only when nothing else can happen: timers in order of their moment, then of their making.
 * A step runs one timer and everything that follows from it, so a run takes as long as its work and is the
 * same every time.
 */

interface Timer {
  readonly atUs: number;
  readonly order: number;
  readonly ring: () => void;
}

export class VirtualClock {
  #nowUs = 0;
  #made = 0;
  /** A binary heap: no timer is due before its parent. */
  readonly #heap: Timer[] = [];

  get nowUs(): number {
    return this.#nowUs;
  }

  /** Timers that have not rung. */
  get pending(): number {
    return this.#heap.length;
  }

  /** Rings once, `delayUs` microseconds from now. */
  after(delayUs: number, ring: () => void): void {
    const timer = { atUs: this.#nowUs + Math.max(0, Math.ceil(delayUs)), order: this.#made++, ring };
    let at = this.#heap.push(timer) - 1;
    while (at > 0 && isBefore(timer, this.#heap[(at - 1) >> 1])) {
      this.#heap[at] = this.#heap[(at - 1) >> 1];
      at = (at - 1) >> 1;
    }
    this.#heap[at] = timer;
  }

  wait(delayUs: number): Promise<void> {
    return new Promise((resolve) => this.after(delayUs, resolve));
  }

  /** Runs the next timer, and then every promise that can go on. False when there is no timer. */
  async step(): Promise<boolean> {
    const timer = this.#takeFirst();
    if (timer === undefined) return false;
    this.#nowUs = timer.atUs;
    timer.ring();
    await settled();
    return true;
  }

  #takeFirst(): Timer | undefined {
    const first = this.#heap[0];
    const last = this.#heap.pop();
    if (first === undefined || last === undefined || this.#heap.length === 0) return first;
    let at = 0;
    for (;;) {
      let child = 2 * at + 1;
      if (child >= this.#heap.length) break;
      if (child + 1 < this.#heap.length && isBefore(this.#heap[child + 1], this.#heap[child])) child++;
      if (!isBefore(this.#heap[child], last)) break;
      this.#heap[at] = this.#heap[child];
      at = child;
    }
    this.#heap[at] = last;
    return first;
  }
}

function isBefore(a: Timer, b: Timer): boolean {
  return a.atUs < b.atUs || (a.atUs === b.atUs && a.order < b.order);
}

/** Fulfilled when no promise has anything left to do without a timer or I/O. */
export function settled(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
