/**
 * The audit at the end of a run: every request that came in is in exactly one place, times are in order, and
 * the counters of the instances agree with the rows.
 */

import { invariant } from '../../runtime/errors.ts';
import type { Instance, SimRequest } from '../instance/index.ts';
import { type RequestTable, Status, statusNames } from '../metrics/index.ts';

/** Requests by what became of them. */
export type Conservation = Readonly<Record<(typeof statusNames)[number], number>> & {
  readonly injected: number;
};

export function conservationOf(table: RequestTable): Conservation {
  const counts = new Array<number>(statusNames.length).fill(0);
  for (let row = 0; row < table.size; row++) counts[table.status[row]]++;
  const byName = Object.fromEntries(statusNames.map((name, i) => [name, counts[i]]));
  return { injected: table.size, ...byName } as Conservation;
}

/** @throws an error of ours where the books do not add up */
export function checkConservation(
  table: RequestTable,
  instances: readonly Instance[],
  unfinished: readonly SimRequest[],
): Conservation {
  const found = conservationOf(table);
  const open = found.arrived + found.queued + found.running + found.handedOff;
  invariant(open === unfinished.length, 'each request that has not ended is known to the simulation');
  const sum = (pick: (instance: Instance) => number): number =>
    instances.reduce((total, instance) => total + pick(instance), 0);
  invariant(found.completed === sum(({ counters }) => counters.completed), 'completed requests add up');
  invariant(found.unservable === sum(({ counters }) => counters.unservable), 'unservable requests add up');
  invariant(found.timedOut >= sum(({ counters }) => counters.timedOut), 'timed-out requests add up');
  for (let row = 0; row < table.size; row++) checkRow(table, row);
  return found;
}

/** Arrival, admission into a batch, first token and end follow each other. */
function checkRow(table: RequestTable, row: number): void {
  const delay = table.schedulingDelayUs[row];
  const first = table.firstTokenUs[row];
  const end = table.e2eUs[row];
  const isComplete = table.status[row] === Status.COMPLETED;
  invariant(isComplete === end >= 0, 'a completed request has an end, and no other');
  invariant(delay < 0 || first < 0 || table.status[row] !== Status.COMPLETED || delay <= first, () => {
    return `request ${table.idOf(row)} has its first token before it joins a batch`;
  });
  if (!isComplete) return;
  invariant(first >= 0 && first <= end, 'a completed request has its first token before its end');
  const generated = table.generatedTokens[row];
  invariant(generated >= 1, 'a completed request has a token');
  invariant(generated <= Math.max(1, table.outputTokens[row]), 'nobody generates more than asked for');
}
