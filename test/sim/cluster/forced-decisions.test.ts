/**
 * A decision that is forced in a fork gives the run that a start from the beginning with the same forced
 * decision gives: so regret needs no second run of what came before.
 */

import { describe, expect, it } from 'vitest';
import type { ForcedDecisions, SimulationObserver } from '../../../src/sim/cluster/parts.ts';
import { Simulation } from '../../../src/sim/cluster/simulation.ts';
import type { SimulationSnapshot } from '../../../src/sim/cluster/snapshot.ts';
import { newSimulation } from '../../../src/sim/description/deployment.ts';
import { clusterMetrics } from '../../../src/sim/report/metricsOutput.ts';
import { SeededRandom } from '../../../src/testing/index.ts';
import { isFull } from '../../sized.ts';
import { randomSetup } from './randomCluster.ts';
import { smallPool, smallSimulation } from './smallCluster.ts';

function metricsOf(simulation: Simulation): string {
  simulation.run();
  simulation.close();
  const { table, instances, control } = simulation;
  return JSON.stringify([clusterMetrics(table, instances), control.counters, simulation.events]);
}

interface Decided {
  readonly target: number;
  /** Instances that were candidates. */
  readonly others: readonly number[];
}

/** What each routing decision of the run was. */
function routingsOf(seed: number): (Decided | null)[] {
  const routings: (Decided | null)[] = [];
  const run = newSimulation(
    randomSetup(seed, {
      routing: (_request, decision) => {
        const others = decision?.topKCandidates.map(({ instance }) => instance) ?? [];
        routings.push(decision === null ? null : { target: decision.target, others });
      },
    }),
  );
  run.run();
  return routings;
}

/** The instance that computes the prompt of each routing decision, -1 for none. */
function prefillsOf(seed: number): number[] {
  const prefills: number[] = [];
  const observer: SimulationObserver = {
    routing: (_request, decision) => prefills.push(decision?.prefillInstance ?? -2),
  };
  newSimulation(randomSetup(seed, observer)).run();
  return prefills;
}

/** The run just before it takes that routing decision. */
function justBefore(seed: number, routing: number): SimulationSnapshot {
  const ahead = newSimulation(randomSetup(seed));
  ahead.runUntil(({ decisions }) => decisions.routing > routing);
  const run = newSimulation(randomSetup(seed));
  run.runSome(ahead.events - 1);
  return run.snapshot();
}

describe('a forced decision', () => {
  it('of routing gives the same in a fork and from the start', () => {
    let changed = 0;
    for (let seed = 0; seed < 60 && (isFull || changed <= 10); seed++) {
      const routings = routingsOf(seed);
      const random = new SeededRandom(seed);
      const number = random.below(Math.max(1, routings.length));
      const decided = routings[number];
      if (decided === undefined || decided === null || decided.others.length === 0) continue;
      const other = decided.others[random.below(decided.others.length)];
      const forced: ForcedDecisions = { routing: new Map([[number, other]]) };
      const where = `seed ${seed}, routing ${number} to ${other}`;
      const whole = metricsOf(newSimulation({ ...randomSetup(seed), forced }));
      expect(metricsOf(Simulation.fork(justBefore(seed, number), { forced })), where).toBe(whole);
      if (whole !== metricsOf(newSimulation(randomSetup(seed)))) changed++;
    }
    expect(changed).toBeGreaterThan(10);
  });

  it('that a policy takes anyway changes nothing', () => {
    for (let seed = 0; seed < 20; seed++) {
      const routing = new Map<number, number>();
      for (const [number, decided] of routingsOf(seed).entries()) {
        if (decided !== null) routing.set(number, decided.target);
      }
      const same = newSimulation({ ...randomSetup(seed), forced: { routing } });
      expect(metricsOf(same), `seed ${seed}`).toBe(metricsOf(newSimulation(randomSetup(seed))));
    }
  });

  it('of the instance that computes the prompt gives the same in a fork and from the start', () => {
    let changed = 0;
    for (let seed = 0; seed < 90 && changed < 12; seed++) {
      const { deployment } = randomSetup(seed);
      const prefills = deployment.pools.find(({ role }) => role === 'prefill')?.replicas ?? 0;
      const wished = prefillsOf(seed);
      const number = new SeededRandom(seed).below(Math.max(1, wished.length));
      if (prefills === 0 || wished.length === 0) continue;
      // the next one, or none; a hand-off where the decider wants none
      const prefillInstance = wished[number] === prefills - 1 ? -1 : wished[number] + 1;
      const forced: ForcedDecisions = { routing: new Map([[number, { prefillInstance }]]) };
      const done: number[] = [];
      const observer: SimulationObserver = {
        routing: (_request, decision) => done.push(decision?.prefillInstance ?? -2),
      };
      const where = `seed ${seed}, prompt of routing ${number} on ${prefillInstance}, not ${wished[number]}`;
      const whole = metricsOf(newSimulation({ ...randomSetup(seed, observer), forced }));
      expect(done[number], where).toBe(prefillInstance);
      expect(done.slice(0, number), where).toEqual(wished.slice(0, number));
      expect(metricsOf(Simulation.fork(justBefore(seed, number), { forced })), where).toBe(whole);
      if (whole !== metricsOf(newSimulation(randomSetup(seed)))) changed++;
    }
    expect(changed).toBe(12);
  });

  it('of both instances names both', () => {
    const pools = [smallPool({ role: 'prefill', replicas: 2 }), smallPool({ role: 'decode', replicas: 2 })];
    const done: (readonly number[])[] = [];
    const run = (forced: ForcedDecisions): void => {
      done.length = 0;
      const simulation = smallSimulation(
        pools,
        [{ atUs: 0, prompt: 20, output: 4 }],
        { decider: { policy: 'always' }, routing: { policy: 'least-loaded' } },
        {
          routing: (_request, decision) =>
            done.push([
              decision?.prefillInstance ?? -2,
              decision?.decodeInstance ?? -2,
              decision?.target ?? -2,
            ]),
        },
        [],
        {},
        forced,
      );
      simulation.run();
      expect(simulation.close().completed).toBe(1);
    };
    run({});
    expect(done).toEqual([[0, 2, 2]]);
    run({ routing: new Map([[0, { target: 3, prefillInstance: 1 }]]) });
    expect(done).toEqual([[1, 3, 3]]);
    run({ routing: new Map([[0, { target: 3, prefillInstance: -1 }]]) });
    expect(done).toEqual([[-1, -1, 3]]);
    expect(() => run({ routing: new Map([[0, { prefillInstance: 2 }]]) })).toThrow(
      'forced.routing names instance 2, which cannot compute its prompt. Name one of 0, 1.',
    );
    expect(() => run({ routing: new Map([[0, { prefillInstance: -2 }]]) })).toThrow(
      /^forced\.routing 0\.prefillInstance is -2, not an integer/,
    );
  });

  it('of admission turns a request away, or lets it in', () => {
    const verdicts: string[] = [];
    const setup = randomSetup(5, { admission: (_request, { verdict }) => verdicts.push(verdict) });
    const forced: ForcedDecisions = {
      admission: new Map([
        [0, 'reject'],
        [1, 'admit'],
      ]),
    };
    newSimulation({ ...setup, forced }).run();
    expect(verdicts.slice(0, 2)).toEqual(['reject', 'admit']);
  });

  it('to an instance outside the candidates is refused', () => {
    const forced: ForcedDecisions = { routing: new Map([[0, 77]]) };
    expect(() => newSimulation({ ...randomSetup(3), forced }).run()).toThrow(
      /^forced\.routing names instance 77, which cannot take the request\. Name one of /,
    );
    expect(() => newSimulation({ ...randomSetup(3), forced: { routing: new Map([[-1, 0]]) } })).toThrow(
      /^forced\.routing is -1, not an integer/,
    );
  });
});
