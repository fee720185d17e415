/**
 * With data parallel ranks the limits of a batch are of each rank, in every command and in every way to write a deployment;
 * `fit`, `compare` and `accuracy` take a run as `simulate` does. Under --as-upstream they are of the engine.
 */

import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { Command } from 'commander';
import { afterAll, describe, expect, it } from 'vitest';
import { servedOptions } from '../../../src/cli/latency/command.ts';
import { planSimulation } from '../../../src/sim/build/plan.ts';
import { knobs } from '../../../src/sim/description/knobs.ts';
import { askedBy, fromFields, readWords } from '../../../src/sim/description/readers.ts';
import type { Deployment } from '../../../src/sim/description/settings.ts';
import { measuredRun } from '../../../src/sim/fitting/fitRequests.ts';
import { replayRequests } from '../../../src/sim/latency/fit/runReplay.ts';
import { Linear, linearTerms } from '../../../src/sim/latency/linear.ts';

const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'tierkv-ranks-'));
afterAll(() => fs.rmSync(folder, { recursive: true }));

const model = 'qwen3-30b-a3b';
const byWords = (text: string): Deployment => askedBy(readWords(text.split(' '))).deployment;
const options = (dp: number, more: string): string =>
  `--model ${model} --gpu H100 --tp 1 --dp ${dp} --max-num-seqs 24 --max-num-batched-tokens 512 --max-loras 3 ` +
  `--workload chatbot --rate 5${more}`;

function batchOf(deployment: Deployment): object {
  const [{ engine, limits }] = planSimulation(deployment).pools;
  const { maxSequences, maxBatchedTokens, longPrefillTokens } = engine.scheduler;
  expect(limits.maxSequences).toBe(maxSequences);
  return { maxSequences, maxBatchedTokens, longPrefillTokens, adapters: engine.adapters?.slots };
}

describe.each([1, 2, 8])('with --dp %i', (dp) => {
  const batch = {
    maxSequences: dp * 24,
    maxBatchedTokens: dp * 512,
    longPrefillTokens: dp === 1 ? 0 : 512, // no prompt lies on two ranks
    adapters: dp * 3,
  };

  it('options, fields and a file limit each rank', () => {
    expect(batchOf(byWords(options(dp, '')))).toEqual(batch);
    const fields = {
      ...{ model, hardware: 'H100', tp: 1, dp },
      engine: { maxSequences: 24, maxBatchedTokens: 512, maxLoras: 3 },
      workload: { preset: 'chatbot', rate: 5 },
    };
    expect(batchOf(fromFields(fields))).toEqual(batch);
    const file = path.join(folder, 'ranks.yaml');
    const engine = '{ max_num_seqs: 24, max_num_batched_tokens: 512, max_loras: 3 }';
    fs.writeFileSync(
      file,
      `version: 1
models: [{ name: ${model}, hardware: H100, tp: 1, dp: ${dp} }]
pools: [{ name: a, engine: ${engine} }]
workload: { preset: chatbot, rate: 5 }
`,
    );
    expect(batchOf(byWords(`--deployment ${file}`))).toEqual(batch);
  });

  it('a measured run was served by the same limits', () => {
    const { limits } = measuredRun([], {
      ...{ model, gpu: 'H100', tp: 1, dp, maxSequences: 24, maxBatchedTokens: 512 },
      ...{ blockTokens: 16, memoryUtilization: 0.9 },
    });
    expect(limits).toMatchObject({ requests: batch.maxSequences, tokensPerStep: batch.maxBatchedTokens });
    expect(limits.tokensPerPrompt).toBe(dp === 1 ? undefined : 512);
  });

  it('under --as-upstream they are of the engine', () => {
    const upstream = { maxSequences: 24, maxBatchedTokens: 512, longPrefillTokens: 0 };
    expect(batchOf(byWords(options(dp, ' --as-upstream')))).toMatchObject(upstream);
  });
});

it('a smaller limit of a prompt stays, and more seats than a scheduler has are refused', () => {
  const small = byWords(options(2, ' --long-prefill-token-threshold 100'));
  expect(batchOf(small)).toMatchObject({ longPrefillTokens: 100 });
  const many = byWords(options(2, '').replace('seqs 24', 'seqs 1000000'));
  expect(() => batchOf(many)).toThrow(
    '--max-num-seqs is 1000000, and 2 ranks take 2000000 together. Set it to at most 524288.',
  );
});

it('a prompt in a measured run is computed by one rank, however many tokens a step of all ranks takes', () => {
  const ofOneMs = linearTerms.map((name) => (name === 'step' ? 1000 : 0));
  const model = new Linear({ alpha: [0, 0, 0], beta: ofOneMs });
  const times = { arrivalUs: 0, firstTokenUs: 1, lastTokenUs: 1 };
  const request = { ...times, promptTokens: 2048, outputTokens: 1, cachedTokens: 0 };
  const limits = { requests: 48, tokensPerStep: 1024 };
  const [whole] = replayRequests([request], model, limits);
  const [ofRank] = replayRequests([request], model, { ...limits, tokensPerPrompt: 512 });
  expect([whole.firstTokenUs, ofRank.firstTokenUs]).toEqual([2000, 4000]);
});

it('a fit has the defaults of simulate', () => {
  const given = servedOptions(new Command(), '').opts();
  expect(given).toMatchObject({
    maxNumSeqs: knobs['engine.maxSequences'].or,
    maxNumBatchedTokens: knobs['engine.maxBatchedTokens'].or,
    blockTokens: knobs['engine.blockTokens'].or,
    gpuMemoryUtilization: knobs['engine.memoryUtilization'].or,
  });
});
