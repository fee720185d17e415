/**
 * Counters of what went wrong. Priority inversions are counted twice: as upstream does, among requests of one
 * class, and across classes, where a less urgent request joined a batch before a more urgent one that waited.
 */

import type { Instance } from '../instance/index.ts';
import { type RequestTable, Status } from '../metrics/index.ts';

/** Counts pairs (a before b in the list) with `above(value of a) > value of b`, in O(n log n). */
function pairsAbove(values: readonly number[], factor: number): number {
  const order = [...new Set(values)].sort((a, b) => a - b);
  const tree = new Float64Array(order.length + 1);
  let added = 0;
  let pairs = 0;
  const rankOf = (value: number): number => {
    let low = 0;
    let high = order.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (order[middle] <= value) low = middle + 1;
      else high = middle;
    }
    return low;
  };
  for (const value of values) {
    // earlier ones at most `factor` times this one are no inversion
    let within = 0;
    for (let i = rankOf(factor * value); i > 0; i -= i & -i) within += tree[i];
    pairs += added - within;
    for (let i = rankOf(value); i <= order.length; i += i & -i) tree[i]++;
    added++;
  }
  return pairs;
}

/**
 * Upstream's priority inversions: pairs of one class on one instance of which the earlier took more than
 * twice as long as the later.
 */
export function priorityInversions(table: RequestTable): number {
  const groups = new Map<string, number[]>();
  for (let row = 0; row < table.size; row++) {
    if (table.status[row] !== Status.COMPLETED) continue;
    const key = `${table.instance[row]} ${table.originOf(row).sloClass}`;
    const rows = groups.get(key);
    if (rows === undefined) groups.set(key, [row]);
    else rows.push(row);
  }
  let pairs = 0;
  for (const rows of groups.values()) {
    rows.sort((a, b) => table.arrivalUs[a] - table.arrivalUs[b]);
    pairs += pairsAbove(
      rows.map((row) => table.e2eUs[row]),
      2,
    );
  }
  return pairs;
}

/** Instances whose queue was on average more than twice as long as that of all instances. */
export function headOfLineBlocking(instances: readonly Instance[]): number {
  if (instances.length < 2) return 0;
  const means = instances.map(({ counters, times }) =>
    times.steps === 0 ? 0 : counters.waitingSum / times.steps,
  );
  const mean = means.reduce((sum, value) => sum + value, 0) / means.length;
  return means.filter((value) => mean > 0 && value > 2 * mean).length;
}
