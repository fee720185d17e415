/** Both upstream backends, to the microsecond: without the floor every recorded value is hit. */

import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { kvBytesPerToken } from '../../../src/sim/latency/capacity.ts';
import { sumBatch } from '../../../src/sim/latency/latencyModel.ts';
import { newLatencyModel } from '../../../src/sim/latency/makeModel.ts';
import { loadCoefficients, loadHardware, loadModel, request } from './setups.ts';

interface Case {
  readonly backend: 'trained-physics' | 'roofline';
  readonly model: string;
  readonly gpu: string;
  readonly tp: number;
  readonly dp: number;
  readonly kv_bytes_per_token: number;
  readonly otpt_us: number;
  readonly postdecode_us: number;
  readonly queueing_us_512in: number;
  readonly step_us: Record<string, number>;
  readonly model_config: Record<string, number | string>;
}

const golden = JSON.parse(readFileSync(new URL('fixtures/steptime.json', import.meta.url), 'utf8')) as {
  batches: Record<string, [number, number, number, number][] | null>;
  cases: Case[];
};

describe.each(golden.cases)('$backend of $model on $gpu, tp $tp, dp $dp', (golden_) => {
  const model = loadModel(golden_.model);
  const hardware = loadHardware(golden_.gpu);
  const coefficients = loadCoefficients(golden_.backend, hardware, undefined);
  const { tp, dp } = golden_;
  const latency = newLatencyModel({ model, hardware, tp, dp, coefficients, floor: false });

  it('takes the same time for each batch', () => {
    const got: Record<string, number> = {};
    for (const [name, batch] of Object.entries(golden.batches)) {
      got[name] = latency.stepTimeUs(sumBatch((batch ?? []).map((tuple) => request(...tuple))));
    }
    expect(got).toEqual(golden_.step_us);
    expect(Object.keys(got)).toHaveLength(14);
  });

  it('has the same overheads and KV bytes', () => {
    expect(latency.queueingTimeUs(512)).toBe(golden_.queueing_us_512in);
    expect(latency.outputTokenProcessingUs).toBe(golden_.otpt_us);
    expect(latency.postDecodeOverheadUs).toBe(golden_.postdecode_us);
    expect(kvBytesPerToken(model, tp)).toBe(golden_.kv_bytes_per_token);
  });

  it('reads the same configuration', () => {
    const expected = golden_.model_config;
    expect({
      num_hidden_layers: model.layers,
      hidden_size: model.hiddenSize,
      num_attention_heads: model.heads,
      num_key_value_heads: model.kvHeads,
      vocab_size: model.vocabSize,
      bytes_per_param: model.activationBytes,
      intermediate_size: model.ffnSize,
      num_local_experts: model.experts,
      num_experts_per_tok: model.expertsPerToken,
      moe_intermediate_size: model.expertFfnSize,
      shared_expert_intermediate_size: model.sharedExpertFfnSize,
      interleave_moe_layer_step: model.interleaveMoeLayerStep,
      intermediate_size_mlp: model.denseFfnSize,
      hidden_act: model.hiddenAct,
      ...(model.weightBytes === model.activationBytes ? {} : { weight_bytes_per_param: model.weightBytes }),
      ...(model.headDim === 0 ? {} : { head_dim: model.headDim }),
    }).toEqual(expected);
  });
});

describe('trained-physics by hand', () => {
  const model = loadModel('llama-3.1-8b-instruct');
  const hardware = loadHardware('H100');
  const batch = sumBatch([request(512, 512, 1, 8), request(300, 0, 300, 8)]);
  const stepOf = (beta: readonly number[]): number =>
    newLatencyModel({
      model,
      hardware,
      tp: 1,
      coefficients: { backend: 'trained-physics', values: { alpha: [0, 0, 0], beta } },
      floor: false,
    }).stepTimeUs(batch);

  it('takes the larger of compute and KV while there are few coefficients', () => {
    // 32 layers: projections 2 d (2d + 2 kv), attention 4 H dh t (S + t/2) in all, feed-forward 6 d ff
    const flops = 32 * (300 * (2 * 4096 * (8192 + 2048) + 6 * 4096 * 14336) + 4 * 4096 * 300 * (300 + 150));
    expect(stepOf([1, 0, 0, 0, 0, 0, 0])).toBe(Math.trunc(flops / 989.5e6));
    const kvBytes = 32 * 2 * 1024 * 2 * (512 + 1);
    const decodeFlops = 32 * (2 * 4096 * (8192 + 2048) + 6 * 4096 * 14336 + 4 * 4096 * 512);
    const larger = Math.max(kvBytes / 3.35e6, decodeFlops / 989.5e6);
    expect(stepOf([0, 100, 0, 0, 0, 0, 0])).toBe(Math.trunc(100 * larger));
  });

  it('splits the prefill from nine coefficients on and the decode from ten on', () => {
    const kvWrite = (32 * 2 * 1024 * 2 * 300) / 3.35e6;
    expect(stepOf([0, 0, 0, 0, 0, 0, 0, 0, 100])).toBe(Math.trunc(100 * kvWrite));
    const kvRead = (32 * 2 * 1024 * 2 * 513) / 3.35e6;
    expect(stepOf([0, 0, 0, 0, 0, 0, 0, 0, 0, 100])).toBe(Math.trunc(100 * kvRead));
  });

  it('adds layers, requests and the step', () => {
    expect(stepOf([0, 0, 0, 0, 10, 7, 5])).toBe(32 * 10 + 2 * 7 + 5);
  });
});
