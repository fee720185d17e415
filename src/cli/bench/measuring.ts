/** What the benches measure with: medians, and memory that is really in use. */

import v8 from 'node:v8';
import vm from 'node:vm';

/** The middle one of the values, or the lower of the two in the middle. */
export function median(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[(values.length - 1) >> 1];
}

v8.setFlagsFromString('--expose-gc');
const collect: (options?: { type: 'minor' | 'major' }) => void = vm.runInNewContext('gc');

/** Collects what was left lately. A full collection would throw away idle machine code, too. */
export function collectYoungGarbage(): void {
  collect({ type: 'minor' });
}

/** Bytes that are left after a full collection. */
export function liveMemory(): NodeJS.MemoryUsage {
  collect();
  return process.memoryUsage();
}
