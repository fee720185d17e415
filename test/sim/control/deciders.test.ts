/**
 * The deciders between a whole request and a hand-off, at the edges of their rules. Upstream has `never`,
 * `always` and `prefix-threshold`, and no recorded run of the last; `token-cap` is Dynamo's rule. So both are
 * held to tables that were worked out by hand, and to an oracle over a whole run.
 */

import { describe, expect, it } from 'vitest';
import type { Simulation } from '../../../src/sim/cluster/simulation.ts';
import { type PrefillDecodeDecider, prefillDecodeDeciders } from '../../../src/sim/control/disaggregation.ts';
import { type SmallRequest, smallPool, smallSimulation } from '../cluster/smallCluster.ts';
import { instance, request, router, world } from './fixtures.ts';

const make = (choice: Parameters<typeof prefillDecodeDeciders.make>[0]): PrefillDecodeDecider =>
  prefillDecodeDeciders.make(choice, world());

function splits(
  decider: PrefillDecodeDecider,
  promptTokens: number,
  cachedBlocks: number,
  queueDepth: number,
): boolean {
  const decode = instance(0, { queueDepth });
  return decider.decide(request({ promptTokens }), decode, router({ cached: [cachedBlocks] })).disaggregate;
}

describe('token-cap', () => {
  // blocks have 16 tokens; uncached tokens = prompt - 16 x cached blocks
  it.each([
    [5000, 0, 0, false],
    [5000, 0, 9, false],
    [5001, 0, 0, false],
    [5001, 0, 1, true],
    [16_384, 0, 0, false],
    [16_384, 0, 1, true],
    [16_385, 0, 0, true],
    [16_385, 0, 1, true],
    // 16,400 - 16 = 16,384, and 16,401 - 16 = 16,385
    [16_400, 1, 0, false],
    [16_401, 1, 0, true],
    // 5,016 - 16 = 5,000, and 5,017 - 16 = 5,001
    [5016, 1, 3, false],
    [5017, 1, 3, true],
    [1, 0, 100, false],
    [40_000, 2500, 5, false],
  ])('%i prompt tokens, %i blocks cached, %i waiting: %s', (prompt, cached, waiting, expected) => {
    expect(splits(make({ policy: 'token-cap' }), prompt, cached, waiting)).toBe(expected);
  });

  it('takes both limits, and says how many tokens are not cached', () => {
    const decider = make({ policy: 'token-cap', bypassTokens: 10, alwaysTokens: 20 });
    expect([10, 11, 20, 21].map((tokens) => splits(decider, tokens, 0, 0))).toEqual([
      false,
      false,
      false,
      true,
    ]);
    expect([10, 11, 20, 21].map((tokens) => splits(decider, tokens, 0, 1))).toEqual([
      false,
      true,
      true,
      true,
    ]);
    const { reason } = decider.decide(request({ promptTokens: 50 }), instance(0), router({ cached: [2] }));
    expect(reason).toBe('18 tokens are not cached there');
  });

  it.each([
    [{ bypassTokens: -1 }, /bypassTokens is -1/],
    [{ alwaysTokens: 2.5 }, /alwaysTokens is 2\.5/],
    [{ bypassToken: 3 }, /bypassToken is not known.*bypassTokens/],
  ])('refuses %j', (parameters, says) => {
    expect(() => make({ policy: 'token-cap', ...parameters })).toThrow(says);
  });

  /** H for a hand-off, w for a whole request, in order of routing. */
  function run(bypassTokens: number, alwaysTokens: number): { decided: string; oracle: string } {
    const pools = [
      smallPool({ role: 'prefill', replicas: 1, topBlocks: 200 }),
      smallPool({ role: 'decode', replicas: 2, topBlocks: 60, maxSequences: 2 }),
    ];
    const requests: SmallRequest[] = Array.from({ length: 48 }, (_, i) => ({
      atUs: 2500 * i,
      prompt: 8 + ((i * 37) % 90),
      output: 6 + (i % 5),
      stream: i % 6,
    }));
    const running: { simulation: Simulation | null } = { simulation: null };
    let decided = '';
    let oracle = '';
    running.simulation = smallSimulation(
      pools,
      requests,
      {
        decider: { policy: 'token-cap', bypassTokens, alwaysTokens },
        routing: { policy: 'least-loaded' },
        signals: { snapshotIntervalUs: 0, cacheSignalUs: 0 },
      },
      {
        routing: ({ keys, promptBlocks, promptTokens }, decision) => {
          const engine = running.simulation?.instances[decision?.target ?? 0].engine;
          if (decision === null || engine === undefined) throw new Error('every request is routed');
          const uncached = promptTokens - 4 * engine.cachedBlocks(keys, promptBlocks);
          const isBetween = uncached > bypassTokens && engine.waitingCount > 0;
          oracle += uncached > alwaysTokens || isBetween ? 'H' : 'w';
          decided += decision.prefillInstance === -1 ? 'w' : 'H';
        },
      },
    );
    running.simulation.run();
    expect(running.simulation.close().completed).toBe(48);
    return { decided, oracle };
  }

  it('decides over a whole run as an oracle does that looks into the instances', () => {
    for (const [bypass, always] of [
      [0, 0],
      [20, 60],
      [30, 30],
      [20, 1000],
      [1000, 2000],
    ]) {
      const { decided, oracle } = run(bypass, always);
      expect(decided, `${bypass} and ${always}`).toBe(oracle);
    }
    const recorded = run(20, 60).decided;
    expect(recorded).toMatch(/H/);
    expect(recorded).toMatch(/w/);
    expect(run(1000, 2000).decided).toBe('w'.repeat(48));
  });
});

describe('prefix-threshold', () => {
  // upstream's rule is `>`; the one of llm-d, `>=`, would hand off 16 too
  it.each([
    [16, 0, false],
    [17, 0, true],
    [32, 1, false],
    [33, 1, true],
  ])('%i prompt tokens, %i blocks cached: %s', (prompt, cached, expected) => {
    expect(splits(make({ policy: 'prefix-threshold' }), prompt, cached, 5)).toBe(expected);
  });
});
