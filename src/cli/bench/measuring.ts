/** What the benches measure with: medians of rounds, and memory that is really in use. */

import v8 from 'node:v8';
import vm from 'node:vm';

export function median(rounds: number, measure: () => number): number {
  return mediansByTurns(rounds, [measure])[0];
}

/** Of each measurement; all of them are taken in every round, so that they can be compared. */
export function mediansByTurns(rounds: number, measurements: readonly (() => number)[]): number[] {
  const values = measurements.map(() => new Float64Array(rounds));
  for (let round = 0; round < rounds; round++) {
    for (const [i, measure] of measurements.entries()) values[i][round] = measure();
  }
  return values.map((all) => all.sort()[rounds >> 1]);
}

let collect: ((options?: { type: 'minor' | 'major' }) => void) | undefined;

function collector(): NonNullable<typeof collect> {
  v8.setFlagsFromString('--expose-gc');
  collect ??= vm.runInNewContext('gc') as NonNullable<typeof collect>;
  return collect;
}

/** A full collection, now. It also throws away code that has not run for a few of these. */
export function collectGarbage(): void {
  collector()();
}

/** Collects what was left lately, and nothing else. */
export function collectYoungGarbage(): void {
  collector()({ type: 'minor' });
}

export function liveHeapBytes(): number {
  collectGarbage();
  return process.memoryUsage().heapUsed;
}
