/**
 * A run can be written down between any two events. A fork from there, run to its end, is the run that was
 * not interrupted, to the last byte: rows, metrics, decisions. Forks share nothing that changes.
 */

import { describe, expect, it } from 'vitest';
import { keyOfSeed, type SimulationObserver } from '../../../../src/sim/cluster/parts.ts';
import { Simulation } from '../../../../src/sim/cluster/simulation.ts';
import { type SimulationSnapshot, snapshotVersion } from '../../../../src/sim/cluster/snapshot.ts';
import { newSimulation, resumeSimulation } from '../../../../src/sim/description/deployment.ts';
import { clusterMetrics } from '../../../../src/sim/report/metricsOutput.ts';
import { SeededRandom } from '../../../../src/testing/index.ts';
import { sized } from '../../../sized.ts';
import { randomSetup } from '../randomCluster.ts';

/** Writes down everything that is said of a run, a line each. */
function tellingTo(lines: string[]): SimulationObserver {
  const say = (...what: unknown[]): void => {
    lines.push(JSON.stringify(what));
  };
  return {
    arrived: ({ id }, nowUs) => say('arrived', id, nowUs),
    step: (span) => say('step', span),
    admission: ({ id }, decision, nowUs) => say('admission', id, decision, nowUs),
    routing: ({ id }, decision, nowUs) => say('routing', id, decision, nowUs),
    handedOff: ({ request, ...handoff }) => say('handedOff', request.id, handoff),
    diverged: (divergence) => say('diverged', divergence),
    scaled: (change) => say('scaled', change),
    replica: (change) => say('replica', change),
    ended: ({ id }, status, nowUs, instance) => say('ended', id, status, nowUs, instance),
  };
}

/** What a run comes to: its metrics with a row a request, its books, and what its tiers and links did. */
function resultOf(simulation: Simulation): string {
  const conservation = simulation.close();
  const { table, instances, handoffs, control } = simulation;
  return JSON.stringify([
    conservation,
    clusterMetrics(table, instances),
    instances.map(({ counters, endUs, engine }) => [counters, endUs, engine.counters, engine.traffic()]),
    handoffs.counters,
    control.counters,
    simulation.events,
    simulation.nowUs,
  ]);
}

function runToEnd(simulation: Simulation, where: string): Simulation {
  for (let i = 0; simulation.runSome(512); i++) expect(i, `${where} goes on for ever`).toBeLessThan(200);
  simulation.checkIntegrity();
  return simulation;
}

function eventsOf(seed: number): { told: string[]; result: string; events: number } {
  const told: string[] = [];
  const whole = runToEnd(newSimulation(randomSetup(seed, tellingTo(told))), `seed ${seed}`);
  return { told, result: resultOf(whole), events: whole.events };
}

function interrupted(
  seed: number,
  events: number,
): { before: string[]; run: Simulation; taken: SimulationSnapshot } {
  const before: string[] = [];
  const run = newSimulation(randomSetup(seed, tellingTo(before)));
  run.runSome(events);
  return { before, run, taken: run.snapshot() };
}

const SEEDS = sized(16, 160);
const SEEDS_A_TEST = 16;

describe('a fork', () => {
  it.each(Array.from({ length: SEEDS / SEEDS_A_TEST }, (_, i) => i * SEEDS_A_TEST))(
    `is the run that was not interrupted, ${SEEDS_A_TEST} seeds from %i on`,
    (first) => {
      for (let seed = first; seed < first + SEEDS_A_TEST; seed++) {
        const { told, result, events } = eventsOf(seed);
        const at = new SeededRandom(seed).below(events + 1);
        const where = `seed ${seed}, forked after ${at} of ${events} events`;
        const { before, run, taken } = interrupted(seed, at);
        const after: string[] = [];
        const fork = Simulation.fork(taken, { observer: tellingTo(after) });
        fork.checkIntegrity();
        expect(resultOf(runToEnd(fork, where)), where).toBe(result);
        expect([...before, ...after], where).toEqual(told);
        // neither the interrupted run nor the snapshot has changed
        expect(resultOf(runToEnd(run, where)), where).toBe(result);
        expect(resultOf(runToEnd(Simulation.fork(taken), where)), where).toBe(result);
      }
    },
  );

  it('can be forked again, and again', () => {
    for (let seed = 1000; seed < sized(1005, 1020); seed++) {
      const { result, events } = eventsOf(seed);
      let run = newSimulation(randomSetup(seed));
      for (let i = 0; i < 5; i++) {
        run.runSome(Math.ceil(events / 6));
        run = Simulation.fork(run.snapshot());
      }
      expect(resultOf(runToEnd(run, `seed ${seed}`)), `seed ${seed}`).toBe(result);
    }
  });

  it('of data that was sent elsewhere and comes back is the same', () => {
    for (let seed = 2000; seed < sized(2005, 2020); seed++) {
      const { result, events } = eventsOf(seed);
      const { taken } = interrupted(seed, events >> 1);
      const data = structuredClone(taken.data);
      const run = resumeSimulation(randomSetup(seed), data);
      expect(resultOf(runToEnd(run, `seed ${seed}`)), `seed ${seed}`).toBe(result);
    }
  });

  it('that has done nothing has the state it was made of', () => {
    for (let seed = 3000; seed < sized(3008, 3040); seed++) {
      const { events } = eventsOf(seed);
      const { taken } = interrupted(seed, events >> 1);
      expect(Simulation.fork(taken).snapshot().data, `seed ${seed}`).toEqual(taken.data);
    }
  });
});

describe('a snapshot of another run', () => {
  const { taken } = interrupted(7, 50);

  it('of another version is refused', () => {
    const data = { ...taken.data, version: 99 };
    expect(() => resumeSimulation(randomSetup(7), data)).toThrow(
      `The snapshot has version 99, and this tierkv reads ${snapshotVersion}. Take it anew.`,
    );
  });

  it('of another key is refused', () => {
    const data = { ...taken.data, key: keyOfSeed(8n, 'random') };
    expect(() => resumeSimulation(randomSetup(7), data)).toThrow(
      'The snapshot is of policies random, seeds 8, 8 and 8; the simulation has policies random, seeds 7, 7 and 7.',
    );
  });

  it('of another deployment is refused', () => {
    const setup = randomSetup(7);
    const [pool] = setup.deployment.pools;
    const engine = { ...pool.engine, topBlocks: pool.engine.topBlocks + 1 };
    const deployment = { pools: [{ ...pool, engine }, ...setup.deployment.pools.slice(1)] };
    expect(() => resumeSimulation({ ...setup, deployment }, taken.data)).toThrow(
      'The saved state has another configuration',
    );
  });
});
