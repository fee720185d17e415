/**
 * Several pools that scale on their own in one deployment: bounds are never broken, no request is lost track
 * of, every step in the life of a replica is told, and runs are equal to the last byte, forks too.
 */

import { describe, expect, it } from 'vitest';
import type { SimulationObserver } from '../../../../src/sim/cluster/parts.ts';
import type { ReplicaChange, ScaleChange, ScalingSetup } from '../../../../src/sim/cluster/scaling.ts';
import { Simulation } from '../../../../src/sim/cluster/simulation.ts';
import { newSimulation, type SimulationSetup } from '../../../../src/sim/description/deployment.ts';
import { clusterMetrics } from '../../../../src/sim/report/metricsOutput.ts';
import { SeededRandom } from '../../../../src/testing/index.ts';
import { isFull, sized } from '../../../sized.ts';
import { randomPools } from './randomPools.ts';

interface Told {
  readonly lines: string[];
  readonly changes: ScaleChange[];
  readonly replicas: ReplicaChange[];
  readonly observer: SimulationObserver;
}

function telling(): Told {
  const lines: string[] = [];
  const changes: ScaleChange[] = [];
  const replicas: ReplicaChange[] = [];
  const say = (...what: unknown[]): void => {
    lines.push(JSON.stringify(what));
  };
  const observer: SimulationObserver = {
    step: (span) => say('step', span),
    routing: ({ id }, decision, nowUs) => say('routing', id, decision, nowUs),
    handedOff: ({ request, ...handoff }) => say('handedOff', request.id, handoff),
    ended: ({ id }, status, nowUs, instance) => say('ended', id, status, nowUs, instance),
    scaled: (change) => {
      changes.push(change);
      say('scaled', change);
    },
    replica: (change) => {
      replicas.push(change);
      say('replica', change);
    },
  };
  return { lines, changes, replicas, observer };
}

function resultOf(simulation: Simulation): string {
  const conservation = simulation.close();
  const { table, instances, handoffs, control, events, nowUs } = simulation;
  return JSON.stringify([
    conservation,
    clusterMetrics(table, instances),
    instances.map(({ configId, counters, endUs, engine }) => [configId, counters, endUs, engine.counters]),
    handoffs.counters,
    control.counters,
    events,
    nowUs,
  ]);
}

function runToEnd(simulation: Simulation, where: string, each: () => void = () => {}): Simulation {
  for (let i = 0; simulation.runSome(64); i++) {
    expect(i, `${where} goes on for ever`).toBeLessThan(2000);
    each();
  }
  each();
  simulation.checkIntegrity();
  return simulation;
}

function run(seed: number): { told: Told; result: string; setup: SimulationSetup; simulation: Simulation } {
  const told = telling();
  const setup = randomPools(seed, told.observer);
  const simulation = newSimulation(setup);
  runToEnd(simulation, `seed ${seed}`, () => {
    for (const { replicas } of setup.scaling ?? []) replicas.checkIntegrity();
  });
  return { told, result: resultOf(simulation), setup, simulation };
}

/** Phases of the replicas of a configuration as they were told. */
function phasesTold({ replicas: own }: ScalingSetup, told: readonly ReplicaChange[]): string[] {
  const phases: string[] = own.all.filter(({ initial }) => initial).map(() => 'ready');
  for (const { replica, phase } of told) phases[replica] = phase;
  return phases;
}

const SEEDS = sized(8, 48);
const SEEDS_A_TEST = 16;
const firsts = Array.from({ length: SEEDS / SEEDS_A_TEST }, (_, i) => i * SEEDS_A_TEST);

describe('pools that scale on their own', () => {
  it.each(firsts)(`keep their bounds and lose nothing, ${SEEDS_A_TEST} seeds from %i on`, (first) => {
    for (let seed = first; seed < first + SEEDS_A_TEST; seed++) {
      const where = `seed ${seed}`;
      const { told, result, setup, simulation } = run(seed);
      for (const scaling of setup.scaling ?? []) {
        const { configId, scaler, replicas } = scaling;
        const { minReplicas, maxReplicas } = scaler.config;
        let count = replicas.all.filter(({ initial }) => initial).length;
        for (const change of told.changes.filter((each) => each.configId === configId)) {
          expect(change.previousCount, where).toBe(count);
          expect(change.newCount, where).toBeGreaterThanOrEqual(minReplicas);
          expect(change.newCount, where).toBeLessThanOrEqual(maxReplicas);
          count = change.newCount;
        }
        expect(replicas.current, where).toBe(count);
        const own = told.replicas.filter((each) => each.configId === configId);
        expect(phasesTold(scaling, own), where).toEqual(replicas.all.map(({ phase }) => phase));
        for (const { instance } of own) {
          if (instance !== -1) expect(simulation.instances[instance].configId, where).toBe(configId);
        }
      }
      expect(run(seed).result, where).toBe(result);
    }
  });

  it.each(firsts)(`a fork is the run that was not interrupted, ${SEEDS_A_TEST} seeds from %i on`, (first) => {
    for (let seed = first; seed < first + SEEDS_A_TEST; seed++) {
      const { told, result, simulation } = run(seed);
      const at = new SeededRandom(seed).below(simulation.events + 1);
      const where = `seed ${seed}, forked after ${at} of ${simulation.events} events`;
      const before = telling();
      const begun = newSimulation(randomPools(seed, before.observer));
      begun.runSome(at);
      const taken = begun.snapshot();
      const after = telling();
      const fork = Simulation.fork(taken, { observer: after.observer });
      expect(fork.snapshot().data, where).toEqual(taken.data);
      expect(resultOf(runToEnd(fork, where)), where).toBe(result);
      expect([...before.lines, ...after.lines], where).toEqual(told.lines);
    }
  });

  it('scale up and down in several pools of one run, and replicas of each drain', () => {
    let several = 0;
    const drained = new Set<string>();
    const wanted = ['prefill', 'decode', 'small', 'of-a'];
    const isSeen = (): boolean => several > 12 && wanted.every((id) => drained.has(id));
    for (let seed = 0; seed < 40 && (isFull || !isSeen()); seed++) {
      const { told } = run(seed);
      if (new Set(told.changes.map(({ configId }) => configId)).size > 1) several++;
      for (const { phase, configId } of told.replicas) if (phase === 'draining') drained.add(configId);
    }
    expect(several).toBeGreaterThan(12);
    expect([...drained]).toEqual(expect.arrayContaining(wanted));
  });
});
