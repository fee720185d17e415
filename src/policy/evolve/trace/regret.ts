/**
 * Counterfactual regret of routing decisions, in milliseconds. The run is forked before the decision, the request is
 * sent to another instance, and the fork runs to its end. Later decisions of the policy follow from the change, so the
 * figures equal a whole run with that decision forced.
 */

import * as is from '../../../runtime/kinds.ts';
import { checkInputs } from '../../../runtime/options.ts';
import { Simulation } from '../../../sim/cluster/simulation.ts';
import { type RequestTable, Status } from '../../../sim/metrics/requestTable.ts';
import { lostMs } from '../fitness/rawMetrics.ts';
import type { RoutingRecord } from './records.ts';

export interface Alternative {
  readonly instance: number;
  /** End to end time of the request; where it does not complete as the slowest of both runs, at least a minute. */
  readonly e2eMs: number;
  readonly ttftMs: number;
  /** Mean end to end time of all requests of the run. */
  readonly meanE2eMs: number;
}

export interface Regret {
  readonly decision: number;
  readonly requestId: string;
  readonly chosen: Alternative;
  /** The instances that could have taken it, by number. */
  readonly others: readonly Alternative[];
  /** End to end time of the request less its time on the best other instance; 0 where it ran on the best. */
  readonly regretMs: number;
  /** Mean of all requests less the lowest mean that another instance gives; below 0 where it ran on the best. */
  readonly clusterRegretMs: number;
}

/** @param before what a lost request counts at least */
function outcome(
  table: RequestTable,
  row: number,
  instance: number,
  before: { readonly e2eMs: number; readonly ttftMs: number },
): Alternative {
  const lostE2eMs = lostMs(table, (at) => table.e2eUs[at], before.e2eMs);
  const e2e = (at: number): number =>
    table.status[at] === Status.COMPLETED ? table.e2eUs[at] / 1000 : lostE2eMs;
  let sum = 0;
  for (let at = 0; at < table.size; at++) sum += e2e(at);
  return {
    instance,
    e2eMs: e2e(row),
    ttftMs:
      table.firstTokenUs[row] < 0
        ? lostMs(table, (at) => table.firstTokenUs[at], before.ttftMs)
        : table.firstTokenUs[row] / 1000,
    meanE2eMs: sum / Math.max(1, table.size),
  };
}

/**
 * The decisions to examine: one half with the longest time to first token, the other half spread evenly over
 * the run. Without duplicates, in order of their numbers.
 */
export function sampleDecisions(routings: readonly RoutingRecord[], most: number): RoutingRecord[] {
  checkInputs(
    { routings, most },
    { routings: is.list(is.fields({ kind: is.text(), decision: is.number() })), most: is.number() },
  );
  const open = routings.filter(({ couldTake, chosenInstance, actualE2eUs }) => {
    return couldTake.some((instance) => instance !== chosenInstance) && actualE2eUs >= 0;
  });
  const slowest = [...open]
    .sort((a, b) => b.actualTtftUs - a.actualTtftUs || a.decision - b.decision)
    .slice(0, Math.ceil(most / 2));
  const chosen = new Set(slowest);
  const spread = Math.max(1, most - chosen.size);
  for (let i = 0; i < spread && chosen.size < most; i++) {
    const record = open[Math.floor(((i + 0.5) * open.length) / spread)];
    if (record !== undefined) chosen.add(record);
  }
  return [...chosen].sort((a, b) => a.decision - b.decision);
}

/**
 * @param begin makes the run anew, before its first event, with block keys
 * @param done the run as it was, at its end
 * @param sampled routing decisions of that run, in order of their numbers
 * @returns one entry for each, and `regretMs` set in each record
 */
export function regretsOf(
  begin: () => Simulation,
  done: Simulation,
  sampled: readonly RoutingRecord[],
  rowOf: (record: RoutingRecord) => number,
): Regret[] {
  checkInputs(
    { begin, done, sampled, rowOf },
    {
      begin: is.func(),
      done: is.fields({ snapshot: is.func() }),
      sampled: is.list(is.fields({ kind: is.text(), decision: is.number() })),
      rowOf: is.func(),
    },
  );
  if (sampled.length === 0) return [];
  const run = begin();
  const before = {
    e2eMs: lostMs(done.table, (at) => done.table.e2eUs[at]),
    ttftMs: lostMs(done.table, (at) => done.table.firstTokenUs[at]),
  };
  return sampled.map((record): Regret => {
    const { decision, requestId, chosenInstance, couldTake } = record;
    if (run.decisions.routing < decision) run.runUntil(({ decisions }) => decisions.routing >= decision);
    const snapshot = run.snapshot();
    const row = rowOf(record);
    const chosen = outcome(done.table, row, chosenInstance, before);
    const others = couldTake
      .filter((instance) => instance !== chosenInstance)
      .map((instance) => {
        const fork = Simulation.fork(snapshot, { forced: { routing: new Map([[decision, instance]]) } });
        fork.run();
        return outcome(fork.table, row, instance, before);
      });
    const best = Math.min(...others.map(({ e2eMs }) => e2eMs));
    record.regretMs = Math.max(0, chosen.e2eMs - best);
    const bestMean = Math.min(...others.map(({ meanE2eMs }) => meanE2eMs));
    return {
      decision,
      requestId,
      chosen,
      others,
      regretMs: record.regretMs,
      clusterRegretMs: chosen.meanE2eMs - bestMean,
    };
  });
}
