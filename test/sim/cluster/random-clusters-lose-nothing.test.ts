/**
 * Random small clusters under random load: whatever the tiers, roles, deadlines and preemptions, every request
 * ends in one place, every table is sound, and running the same again gives the same rows.
 */

import { describe, expect, it } from 'vitest';
import type { Simulation } from '../../../src/sim/cluster/simulation.ts';
import { Status } from '../../../src/sim/metrics/requestTable.ts';
import { SeededRandom } from '../../../src/testing/index.ts';
import { sized } from '../../sized.ts';
import { type SmallRequest, smallPool, smallSimulation } from './smallCluster.ts';

function randomSimulation(seed: number): Simulation {
  const random = new SeededRandom(seed);
  const isPair = random.below(3) === 0;
  const size = (): Parameters<typeof smallPool>[0] => ({
    topBlocks: 8 + random.below(40),
    maxSequences: 1 + random.below(12),
    preemption: random.below(2) === 0 ? 'restart' : 'recompute',
    ...(random.below(2) === 0 ? { ddrBlocks: 4 + random.below(80) } : {}),
  });
  const [prefills, decodes] = [1 + random.below(2), 1 + random.below(2)];
  const pools = isPair
    ? [
        smallPool({ ...size(), role: 'prefill', replicas: prefills }),
        smallPool({ ...size(), role: 'decode', replicas: decodes }),
      ]
    : [smallPool({ ...size(), replicas: 1 + random.below(3) })];
  let atUs = 0;
  const requests: SmallRequest[] = Array.from({ length: 1 + random.below(36) }, () => {
    atUs += random.below(3000);
    return {
      atUs,
      prompt: 1 + random.below(random.below(6) === 0 ? 200 : 40),
      output: 1 + random.below(30),
      stream: random.below(6),
      ...(random.below(4) === 0 ? { deadlineUs: atUs + 1 + random.below(60_000) } : {}),
    };
  });
  const routing = ['round-robin', 'least-loaded', 'weighted', 'prefix-affinity', 'llq', 'evolved'];
  const control = {
    routing: { policy: routing[random.below(routing.length)] },
    decider: { policy: isPair ? 'always' : 'never' },
    signals: { snapshotIntervalUs: random.below(3) * 1000, cacheSignalUs: random.below(3) * 1000 },
  };
  return smallSimulation(pools, requests, control);
}

function rowsOf({ table }: Simulation): string {
  const columns = [table.status, table.firstTokenUs, table.e2eUs, table.gapUs, table.generatedTokens];
  return JSON.stringify(columns.map((column) => [...column.subarray(0, table.size)]));
}

const SEEDS = sized(150, 500);
const SEEDS_A_TEST = 50;

describe('random clusters', () => {
  it.each(Array.from({ length: SEEDS / SEEDS_A_TEST }, (_, i) => i * SEEDS_A_TEST))(
    `lose no request and end, ${SEEDS_A_TEST} seeds from %i on`,
    (first) => {
      for (let seed = first; seed < first + SEEDS_A_TEST; seed++) {
        const where = `seed ${seed}`;
        const simulation = randomSimulation(seed);
        for (let i = 0; simulation.runSome(512); i++) {
          expect(i, `${where} goes on for ever`).toBeLessThan(200);
          simulation.checkIntegrity();
        }
        simulation.checkIntegrity();
        expect(simulation.unfinished().length, `${where}: requests are left`).toBe(0);
        const found = simulation.close();
        expect(found.completed + found.timedOut + found.unservable, where).toBe(found.injected);
        for (const { engine } of simulation.instances) expect(engine.tiers()[0].usedBlocks, where).toBe(0);
        if (seed % 4 !== 0) continue;
        const again = randomSimulation(seed);
        again.run();
        expect(rowsOf(again), where).toBe(rowsOf(simulation));
      }
    },
  );

  it('gaps between tokens add up to the time from the first to the last one', () => {
    for (let seed = 0; seed < sized(40, 100); seed++) {
      const simulation = randomSimulation(seed);
      simulation.run();
      simulation.close();
      const { table, instances } = simulation;
      let ofRows = 0;
      for (let row = 0; row < table.size; row++) {
        if (table.status[row] === Status.COMPLETED) ofRows += table.gapUs[row];
      }
      const counted = instances.reduce((sum, { times }) => sum + times.gaps.sum, 0);
      expect(counted, `seed ${seed}`).toBe(ofRows);
    }
  });
});
