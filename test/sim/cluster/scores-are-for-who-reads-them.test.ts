/** A decision tells an observer its scores unless no observer reads them; the run is the same. */

import { expect, it } from 'vitest';
import { observers, type SimulationObserver } from '../../../src/sim/cluster/parts.ts';
import type { RoutingDecision } from '../../../src/sim/control/policy.ts';
import { newSimulation } from '../../../src/sim/description/deployment.ts';
import { clusterMetrics } from '../../../src/sim/report/metricsOutput.ts';
import { randomSetup } from './randomCluster.ts';

function decisionsOf(...wishes: readonly (boolean | undefined)[]): {
  readonly scored: number;
  readonly targets: readonly number[];
  readonly metrics: string;
} {
  const decisions: RoutingDecision[] = [];
  const all = wishes.map((readsScores, i): SimulationObserver => {
    const observer: SimulationObserver = readsScores === undefined ? {} : { readsScores };
    if (i > 0) return { ...observer, routing: () => {} };
    return { ...observer, routing: (_request, decision) => void (decision && decisions.push(decision)) };
  });
  const simulation = newSimulation(randomSetup(3, observers(all)));
  simulation.run();
  const { table, instances } = simulation;
  return {
    scored: decisions.filter(({ scores }) => scores.length > 0).length,
    targets: decisions.map(({ target }) => target),
    metrics: JSON.stringify(clusterMetrics(table, instances)),
  };
}

it('no scores are written down where no observer reads them, and all else is the same', () => {
  const read = decisionsOf(undefined);
  expect(read.targets.length).toBeGreaterThan(10);
  expect(read.scored).toBe(read.targets.length);
  const unread = decisionsOf(false);
  expect(unread).toEqual({ ...read, scored: 0 });
  expect(decisionsOf(false, false)).toEqual(unread);
  expect(decisionsOf(false, true)).toEqual(read);
  expect(decisionsOf(false, undefined)).toEqual(read);
});
