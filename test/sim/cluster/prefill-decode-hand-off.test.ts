/** Prefill and decode instances: who owns the KV when, and what happens when the decode side is full. */

import { describe, expect, it } from 'vitest';
import type { Handoff, HandoffConfig } from '../../../src/sim/cluster/handoffs.ts';
import type { SimulationObserver } from '../../../src/sim/cluster/parts.ts';
import { Status } from '../../../src/sim/metrics/requestTable.ts';
import { SeededRandom } from '../../../src/testing/index.ts';
import { sized } from '../../sized.ts';
import { type SmallRequest, smallPool, smallSimulation } from './smallCluster.ts';

const handOff = { decider: { policy: 'always' } };
const pair = (decodeBlocks: number, prefillBlocks = 64): ReturnType<typeof smallPool>[] => [
  smallPool({ role: 'prefill', topBlocks: prefillBlocks }),
  smallPool({ role: 'decode', topBlocks: decodeBlocks }),
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

type Setting = Required<Pick<HandoffConfig, 'granularity' | 'pipelined'>>;

const settings: readonly Setting[] = [
  { granularity: 'request', pipelined: false },
  ...(['chunk', 'block', 'stream'] as const).flatMap((granularity) => [
    { granularity, pipelined: false },
    { granularity, pipelined: true },
  ]),
];

/** Prefill instances of which prompts are computed 8 tokens at a time, so that several are under way. */
function interleaved(topBlocks: number, replicas: number): ReturnType<typeof smallPool> {
  const pool = smallPool({ role: 'prefill', topBlocks, replicas });
  const scheduler = { ...pool.engine.scheduler, longPrefillTokens: 8 };
  return { ...pool, engine: { ...pool.engine, scheduler } };
}

const usedBlocks = (simulation: ReturnType<typeof smallSimulation>): number[] =>
  simulation.instances.map(({ engine }) => engine.tiers()[0].usedBlocks);

describe('a hand-off in parts', () => {
  // 160 tokens are computed in steps of 64, 64 and 32, which end at 1,640, 3,280 and 4,600 µs; their 16, 16
  // and 8 blocks take 10 µs each, and a transfer 50 µs more
  it.each([
    ['request', false, 1, 4600, 4600 + 50 + 400],
    ['chunk', false, 3, 4600, 4600 + 3 * 50 + 400],
    ['block', false, 40, 4600, 4600 + 40 * 50 + 400],
    ['stream', false, 1, 4600, 4600 + 50 + 400],
    ['chunk', true, 3, 1640, 4600 + 50 + 80],
    ['block', true, 40, 1640, 4600 + 8 * 50 + 80],
    ['stream', true, 1, 1640, 4600 + 80],
  ] as const)('by %s, pipelined %s: %i transfers', (granularity, pipelined, transfers, startUs, endUs) => {
    const seen: Handoff[] = [];
    const observer: SimulationObserver = { handedOff: (handoff) => seen.push({ ...handoff }) };
    const requests = [{ atUs: 0, prompt: 160, output: 8 }];
    const setting = { granularity, pipelined };
    const simulation = smallSimulation(pair(64), requests, handOff, observer, undefined, setting);
    simulation.run();
    expect(seen).toHaveLength(1);
    const whole = { state: 'transferred', blocks: 40, bytes: 40_000, readyUs: 4600, parts: [] };
    expect(seen[0]).toMatchObject({ ...whole, transfers, startUs, endUs });
    // decode begins when all has arrived, and computes the last block again
    expect(simulation.table.firstTokenUs[0]).toBe(endUs + 1040);
    expect(usedBlocks(simulation)).toEqual([0, 0]);
    simulation.checkIntegrity();
  });

  it.each(['chunk', 'block', 'stream'] as const)(
    'by %s: long prompts start no later pipelined',
    (granularity) => {
      const requests = Array.from({ length: 20 }, (_, i) => ({ atUs: 9000 * i, prompt: 200 - i, output: 6 }));
      const [pipelined, plain] = [true, false].map((isPipelined) => {
        const setting = { granularity, pipelined: isPipelined };
        const simulation = smallSimulation(pair(128), requests, handOff, {}, undefined, setting);
        simulation.run();
        return [...simulation.table.firstTokenUs.subarray(0, 20)];
      });
      for (const [i, ttft] of pipelined.entries()) expect(ttft).toBeLessThan(plain[i]);
    },
  );

  it('leaves blocks where they are that the decode instance has, where it is told so', () => {
    const requests: SmallRequest[] = [
      { atUs: 0, prompt: 40, output: 2, stream: 7 },
      { atUs: 100_000, prompt: 40, output: 2, stream: 7 },
      { atUs: 200_000, prompt: 80, output: 2, stream: 7 },
    ];
    const sent = (missingOnly: boolean): number[][] => {
      const seen: number[][] = [];
      const observer: SimulationObserver = {
        handoffSent: ({ firstBlock, blocks, bytes }) => seen.push([firstBlock, blocks, bytes]),
      };
      const simulation = smallSimulation(pair(64), requests, handOff, observer, undefined, { missingOnly });
      simulation.run();
      expect(simulation.handoffs.counters.bytes).toBe(seen.reduce((sum, [, , bytes]) => sum + bytes, 0));
      simulation.checkIntegrity();
      return seen;
    };
    const whole = [0, 10, 10_000];
    expect(sent(false)).toEqual([whole, whole, [0, 20, 20_000]]);
    expect(sent(true)).toEqual([whole, [10, 0, 0], [10, 10, 10_000]]);
  });

  it('shares the link: what one prompt sends early, another waits behind', () => {
    const requests: SmallRequest[] = [
      { atUs: 0, prompt: 32, output: 2 },
      { atUs: 0, prompt: 96, output: 2 },
    ];
    const ends: number[] = [];
    const observer: SimulationObserver = { handedOff: ({ endUs }) => ends.push(endUs) };
    const setting = { granularity: 'stream', pipelined: true, bandwidthBytesPerS: 1e6 } as const;
    smallSimulation(pair(64), requests, handOff, observer, undefined, setting).run();
    // the first step ends at 1,640 with 8 blocks of each, the second at 3,280 with the other 16
    expect(ends).toEqual([1640 + 50 + 8000, 1640 + 2 * (50 + 8000) + 16_000]);
  });

  it.each(settings)('by $granularity, pipelined $pipelined: all of many requests complete', (setting) => {
    const count = sized(300, 1000);
    const random = new SeededRandom(15);
    let atUs = 0;
    const requests: SmallRequest[] = Array.from({ length: count }, () => {
      atUs += random.below(3000);
      return { atUs, prompt: 1 + random.below(80), output: 1 + random.below(20), stream: random.below(300) };
    });
    const pools = [interleaved(28, 2), smallPool({ role: 'decode', topBlocks: 32, replicas: 2 })];
    let early = 0;
    const observer: SimulationObserver = {
      handedOff: ({ startUs, readyUs, endUs, computedBlocks, blocks }) => {
        expect(endUs).toBeGreaterThanOrEqual(readyUs);
        expect(computedBlocks).toBe(blocks);
        if (startUs < readyUs) early++;
      },
    };
    const slow = { ...setting, bandwidthBytesPerS: 2e7 };
    const simulation = smallSimulation(pools, requests, handOff, observer, undefined, slow);
    simulation.run();
    expect(simulation.close()).toMatchObject({ injected: count, completed: count });
    const { counters, size } = simulation.handoffs;
    expect([counters.completed, size]).toEqual([count, 0]);
    expect(counters.delayed).toBeGreaterThan(0);
    expect(early > 0).toBe(setting.pipelined);
    expect(usedBlocks(simulation)).toEqual([0, 0, 0, 0]);
    simulation.checkIntegrity();
  });

  it('is given up with the deadline while the prompt is computed, and both sides have their room again', () => {
    const requests = [{ atUs: 0, prompt: 160, output: 8, deadlineUs: 2000 }];
    const setting = { granularity: 'chunk', pipelined: true } as const;
    const simulation = smallSimulation(pair(64), requests, handOff, {}, undefined, setting);
    simulation.run();
    expect(simulation.table.status[0]).toBe(Status.TIMED_OUT);
    expect(simulation.handoffs.size).toBe(0);
    expect(usedBlocks(simulation)).toEqual([0, 0]);
    simulation.checkIntegrity();
  });

  it('gives its room back when its request gives way, and goes anew', () => {
    const requests: SmallRequest[] = Array.from({ length: 12 }, (_, i) => ({
      atUs: i,
      prompt: 60,
      output: 4,
    }));
    const pools = [interleaved(24, 1), smallPool({ role: 'decode', topBlocks: 64 })];
    let given = 0;
    const observer: SimulationObserver = {
      preempted: ({ number }, instance) => {
        if (instance === 0 && simulation.handoffs.find(number)?.state === 'transferring') given++;
      },
    };
    const setting = { granularity: 'block', pipelined: true } as const;
    const simulation = smallSimulation(pools, requests, handOff, observer, undefined, setting);
    simulation.run();
    expect(given).toBeGreaterThan(0);
    expect(simulation.close()).toMatchObject({ injected: 12, completed: 12 });
    expect(simulation.handoffs.counters.bytes).toBe(12 * 15 * 1000);
    expect(usedBlocks(simulation)).toEqual([0, 0]);
    simulation.checkIntegrity();
  });

  it('of an unknown granularity, or of whole requests that are pipelined, is refused', () => {
    const made = (handoff: Partial<HandoffConfig>) => () =>
      smallSimulation(pair(64), [], handOff, {}, undefined, handoff);
    expect(made({ granularity: 'blok' as 'block' })).toThrow(
      `handoff.granularity is "blok". Did you mean 'block'?`,
    );
    expect(made({ pipelined: true })).toThrow(
      'handoff.pipelined has nothing to send before the prompt is done',
    );
  });
});
