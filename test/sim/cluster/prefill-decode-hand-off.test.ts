/** Prefill and decode instances: who owns the KV when, and what happens when the decode side is full. */

import { describe, expect, it } from 'vitest';
import type { Handoff } from '../../../src/sim/cluster/index.ts';
import { Status } from '../../../src/sim/metrics/index.ts';
import { type SmallRequest, smallPool, smallSimulation } from './smallCluster.ts';

const handOff = { decider: { policy: 'always' } };
const pair = (decodeBlocks: number, prefillBlocks = 64): ReturnType<typeof smallPool>[] => [
  smallPool({ role: 'prefill', hbmBlocks: prefillBlocks }),
  smallPool({ role: 'decode', hbmBlocks: decodeBlocks }),
];

describe('prefill/decode hand-off', () => {
  it('Prefill/decode hand-off: blocks move when the prefill is done, and decode begins only after that', () => {
    const seen: Handoff[] = [];
    const simulation = smallSimulation(pair(64), [{ atUs: 0, prompt: 40, output: 8 }], handOff, {
      handedOff: (handoff) => seen.push({ ...handoff }),
    });
    simulation.run();
    // 40 tokens take 1,400 µs; 10 blocks of 1,000 bytes at 100 MB/s after 50 µs take 150 µs
    expect(seen).toHaveLength(1);
    expect(seen[0]).toMatchObject({ state: 'transferred', from: 0, to: 1, blocks: 10, bytes: 10_000 });
    expect([seen[0].readyUs, seen[0].startUs, seen[0].endUs]).toEqual([1400, 1400, 1550]);
    // the last of 10 full blocks is computed again: 4 tokens, 1,040 µs
    expect(simulation.table.firstTokenUs[0]).toBe(1550 + 1040);
    expect(simulation.table.status[0]).toBe(Status.COMPLETED);
    expect(simulation.table.e2eUs[0]).toBe(1550 + 1040 + 7 * 1010);
    expect(simulation.table.instance[0]).toBe(1);
    expect(simulation.handoffs.size).toBe(0);
    simulation.checkIntegrity();
  });

  it('a full decode side holds prefill up and drops nothing', () => {
    const requests: SmallRequest[] = Array.from({ length: 40 }, (_, i) => ({
      atUs: 100 * i,
      prompt: 32,
      output: 40,
    }));
    const simulation = smallSimulation(pair(24, 24), requests, handOff);
    simulation.run();
    const { table, handoffs } = simulation;
    expect([...table.status.subarray(0, table.size)]).toEqual(requests.map(() => Status.COMPLETED));
    expect(handoffs.counters.completed).toBe(40);
    expect(handoffs.counters.delayed).toBeGreaterThan(0);
    // 24 blocks hold three prompts of 8: no more can wait on the prefill instance
    expect(handoffs.counters.longestQueue).toBeLessThanOrEqual(3);
    simulation.checkIntegrity();
  });

  it('a request whose deadline ends during its hand-off is given up, and both sides let its blocks go', () => {
    const simulation = smallSimulation(
      pair(64),
      [{ atUs: 0, prompt: 40, output: 8, deadlineUs: 1500 }],
      handOff,
    );
    simulation.run();
    expect(simulation.table.status[0]).toBe(Status.TIMED_OUT);
    expect(simulation.handoffs.size).toBe(0);
    for (const { engine } of simulation.instances) expect(engine.tiers()[0].usedBlocks).toBe(0);
    simulation.checkIntegrity();
  });
});
