/**
 * Speculative decoding: tokens a step by their formula, the times of a batch beside a simulation of each request's own draws,
 * and whole runs. Experts that are unevenly loaded make steps as long as their busiest GPU does.
 */

import { describe, expect, it } from 'vitest';
import { loadCoefficients } from '../../../src/sim/build/dataFiles.ts';
import { simulate } from '../../../src/sim/build/simulate.ts';
import { adapterBytesOf, engineMemory } from '../../../src/sim/latency/engineMemory.ts';
import type { SpeculationChoice } from '../../../src/sim/latency/latencyModel.ts';
import { BatchSums, type LatencyModel } from '../../../src/sim/latency/latencyModel.ts';
import { newLatencyModel } from '../../../src/sim/latency/makeModel.ts';
import { SpeculativeSteps } from '../../../src/sim/latency/speculation.ts';
import { loadHardware, loadModel } from './setups.ts';

/** Mean of the tokens that a request gets of a step. */
function tokensPerStep({ draftTokens, acceptance }: SpeculationChoice): number {
  let sum = 0;
  for (let power = 1, j = 0; j <= draftTokens; j++, power *= acceptance) sum += power;
  return sum;
}

const choice = (draftTokens: number, acceptance: number, draftUs = 0) => ({
  draftTokens,
  acceptance,
  draftUs,
  seed: '7',
});

/** A verification takes 10 ms and 10 µs a token; prompts as much a token. */
const model: LatencyModel = {
  backend: 'plain',
  stepTimeUs: (batch) => 10_000 + 10 * batch.tokens,
  explain: () => [],
  queueingTimeUs: () => 0,
  outputTokenProcessingUs: 0,
  postDecodeOverheadUs: 0,
};

describe('tokens of a step', () => {
  it.each([
    [1, 0.8],
    [3, 0.5],
    [5, 0.7],
    [4, 0],
  ])('%i drafted at %f are (1 - a^(k+1)) / (1 - a)', (k, a) => {
    expect(tokensPerStep(choice(k, a))).toBeCloseTo((1 - a ** (k + 1)) / (1 - a), 12);
  });
  it('are k + 1 where all are accepted', () => {
    expect(tokensPerStep(choice(4, 1))).toBe(5);
  });
});

/** Mean number of verifications in which a request gets `tokens` tokens, each by draws of its own (a plain generator). */
function drawnOneByOne(requests: number, tokens: number, k: number, a: number): number {
  let state = 12_345;
  const random = (): number => {
    state = (Math.imul(state, 1_103_515_245) + 12_345) >>> 0;
    return (state >>> 8) / 2 ** 24;
  };
  let verifications = 0;
  for (let i = 0; i < requests; i++) {
    for (let left = tokens; left > 0; verifications++) {
      let got = 1;
      while (got <= k && random() < a) got++;
      left -= got;
    }
  }
  return verifications / requests;
}

describe('the steps of an instance', () => {
  const run = (requests: number, tokens: number, k: number, a: number, seed = 0): number => {
    const steps = new SpeculativeSteps(model, choice(k, a), seed);
    const sums = new BatchSums();
    sums.addDecodes(requests, requests * 100);
    let us = 0;
    for (let i = 0; i < tokens; i++) {
      us += steps.stepTimeUs(sums);
      sums.advanceDecodes();
    }
    return us;
  };

  it.each([
    [1, 4000, 3, 0.6],
    [16, 2000, 4, 0.8],
    [64, 2000, 1, 0.7],
  ])('%i requests with %i tokens each take what their own draws come to', (requests, tokens, k, a) => {
    const drawnUs = drawnOneByOne(requests, tokens, k, a) * (10_000 + 10 * requests * (k + 1));
    // 16 requests of 2000 tokens are some 10,000 draws each way: a deviation of 0.5 %
    expect(Math.abs(run(requests, tokens, k, a) / drawnUs - 1)).toBeLessThan(0.02);
    const plain = tokens * (10_000 + 10 * requests);
    expect(run(requests, tokens, k, a)).toBeLessThan(plain);
  });

  it('take the time of a verification for each token where none is accepted, and of a (k+1)-th where all are', () => {
    expect(run(4, 100, 3, 0)).toBe(100 * (10_000 + 10 * 4 * 4));
    expect(run(4, 100, 3, 1)).toBe((100 / 4) * (10_000 + 10 * 4 * 4));
  });

  it('draw by their seed', () => {
    expect(run(4, 50, 3, 0.5)).toBe(run(4, 50, 3, 0.5));
    expect(run(4, 50, 3, 0.5)).not.toBe(run(4, 50, 3, 0.5, 1));
  });

  it('charge prompts whole, and drafting for each proposed token', () => {
    const sums = new BatchSums();
    sums.add({ promptTokens: 500, progressTokens: 0, newTokens: 500, outputTokens: 9 });
    const steps = new SpeculativeSteps(model, choice(3, 1, 100), 0);
    expect(steps.stepTimeUs(sums)).toBe(10_000 + 10 * 500);
    sums.addDecodes(2, 200);
    // the prompt's 5 ms, and a quarter of the verification of 8 tokens and of 3 proposals
    expect(steps.stepTimeUs(sums)).toBe(5000 + Math.trunc((10_000 + 80 + 300) / 4));
  });
});

describe('a whole run', () => {
  const asked = (speculation: object) => ({
    model: 'llama-3.1-8b-instruct',
    hardware: 'H100',
    workload: { prompt: 200, output: 200, rate: 2, requests: 40 },
    ...speculation,
  });
  it('has the same tokens in less time, all of them, and the same again', () => {
    const plain = simulate(asked({}));
    const spoken = simulate(asked({ speculation: { draftTokens: 3, acceptance: 0.7, draftUs: 200 } }));
    expect(spoken.metrics.total_output_tokens).toBe(plain.metrics.total_output_tokens);
    expect(spoken.conservation.completed).toBe(40);
    // memory-bound decodes: near to 2.53 tokens a step, less the drafting
    const faster = plain.metrics.itl_mean_ms / spoken.metrics.itl_mean_ms;
    expect(faster).toBeGreaterThan(1.8);
    expect(faster).toBeLessThan(tokensPerStep(choice(3, 0.7)));
    expect(
      simulate(asked({ speculation: { draftTokens: 3, acceptance: 0.7, draftUs: 200 } })).metrics,
    ).toEqual(spoken.metrics);
  });

  it('has a draft model whose weights and KV take room', () => {
    const options = {
      tp: 1,
      dp: 1,
      blockTokens: 16,
      memoryUtilization: 0.9,
      maxSequences: 256,
      maxBatchedTokens: 2048,
    };
    const h100 = loadHardware('H100');
    const target = loadModel('qwen3-14b');
    const draft = loadModel('qwen3-0.6b');
    const alone = engineMemory(target, h100, options);
    const both = engineMemory(target, h100, { ...options, draft });
    // 40 layers of 8 heads of 128 in K and V, and 28 of the draft, of 2 bytes
    expect(both.blockBytes).toBe(16 * (40 + 28) * 2 * 8 * 128 * 2);
    expect(alone.kvGib - both.kvGib).toBeCloseTo((0.596e9 * 2) / 2 ** 30, 1); // 0.6 billion parameters
    const { metrics } = simulate(
      asked({
        model: 'qwen3-14b',
        speculation: { draftTokens: 3, acceptance: 0.7, draftModel: 'qwen3-0.6b' },
      }),
    );
    expect(metrics.completed_requests).toBe(40);
  });

  it('is refused without an acceptance, and where the model of time has no part for it', () => {
    expect(() => simulate(asked({ speculation: { draftTokens: 3 } }))).toThrow(/acceptance/);
    expect(() =>
      simulate(asked({ latency: { model: 'roofline' }, speculation: { draftTokens: 3, acceptance: 0.5 } })),
    ).toThrow(/roofline has no part/);
  });
});

describe('experts that are unevenly loaded', () => {
  const stepUs = (expertImbalance: number, tokens: number): number => {
    const hardware = loadHardware('H100');
    const coefficients = loadCoefficients('calibrated', hardware, undefined);
    const setup = { model: loadModel('qwen3-235b-a22b'), hardware, tp: 1, dp: 8, coefficients, floor: false };
    const sums = new BatchSums();
    sums.add({ promptTokens: tokens, progressTokens: 0, newTokens: tokens, outputTokens: 1 });
    return newLatencyModel({ ...setup, expertImbalance }).stepTimeUs(sums);
  };
  it('make a step longer, the more of it they are, and never by more than the imbalance', () => {
    const [even, uneven, worst] = [1, 1.5, 3].map((imbalance) => stepUs(imbalance, 16_384));
    expect(uneven).toBeGreaterThan(even * 1.05);
    expect(uneven).toBeLessThan(even * 1.5);
    expect(worst).toBeGreaterThan(uneven);
    expect(worst).toBeLessThan(even * 3);
  });
  it('are refused for a dense model, and beyond what they can be', () => {
    const asked = { hardware: 'H100', latency: { expertImbalance: 1.5 } };
    expect(() => simulate({ ...asked, model: 'llama-3.1-70b-instruct', tp: 4 })).toThrow(/dense/);
    expect(() =>
      simulate({ ...asked, model: 'mixtral-8x7b-v0.1', tp: 2, latency: { expertImbalance: 3 } }),
    ).toThrow(/from 1, all alike, to 2/);
  });
});

describe('an adapter', () => {
  it('has the bytes of its two matrices for each projection', () => {
    const m = loadModel('llama-3.1-8b-instruct');
    // q, k, v, o, gate, up, down of 32 layers: r x (inputs + outputs), 2 bytes each
    const one = 4096 + 4096 + (4096 + 1024) * 2 + (4096 + 4096) + (4096 + 14_336) * 3;
    expect(adapterBytesOf(m, 16, 1)).toBe(16 * 32 * one * 2);
  });
});
