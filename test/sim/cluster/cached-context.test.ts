import { expect, it } from 'vitest';
import type { BatchSums } from '../../../src/sim/latency/latencyModel.ts';
import { sumBatch } from '../../../src/sim/latency/latencyModel.ts';
import { plainLatency, type SmallRequest, smallPool, smallSimulation } from './smallCluster.ts';

it('the first step of a request with a cached prefix attends over that prefix', () => {
  const causalPairs = (stream: number): number[] => {
    const seen: number[] = [];
    const latency = {
      ...plainLatency,
      stepTimeUs: (batch: BatchSums): number => {
        if (batch.prefillTokens > 0) seen.push(batch.prefillCausalPairs2);
        return plainLatency.stepTimeUs(batch);
      },
    };
    const requests: SmallRequest[] = [
      { atUs: 0, prompt: 40, output: 1, stream: 1 },
      { atUs: 50_000, prompt: 46, output: 1, stream },
    ];
    smallSimulation([{ ...smallPool(), latency }], requests).run();
    return seen;
  };
  const step = (progressTokens: number, newTokens: number): number =>
    sumBatch([{ promptTokens: 46, progressTokens, newTokens, outputTokens: 1 }]).prefillCausalPairs2;
  // ten blocks are cached: six tokens are computed over 40 before them
  expect(causalPairs(1)[1]).toBe(step(40, 6));
  expect(step(40, 6)).toBeGreaterThan(step(0, 6));
  // with another prompt nothing is
  expect(causalPairs(2)[1]).toBe(step(0, 46));
});
