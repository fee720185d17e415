/** What the benches measure with: medians of rounds, and memory that is really in use. */

import v8 from 'node:v8';
import vm from 'node:vm';

export function median(rounds: number, measure: () => number): number {
  const values = Float64Array.from({ length: rounds }, measure).sort();
  return values[values.length >> 1]!;
}

let collect: (() => void) | undefined;

/** A full collection, now: so that nobody's measurement pays for the garbage of another. */
export function collectGarbage(): void {
  v8.setFlagsFromString('--expose-gc');
  collect ??= vm.runInNewContext('gc') as () => void;
  collect();
}

export function liveHeapBytes(): number {
  collectGarbage();
  return process.memoryUsage().heapUsed;
}
