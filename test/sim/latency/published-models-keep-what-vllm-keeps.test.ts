/**
 * Configurations as published, against bytes that vLLM's own rules give: of a token in layers of full attention and in those of a
 * window, and of a sequence's states. A model that the reader does not know is refused by the name of a key.
 */

import { describe, expect, it } from 'vitest';
import { readText } from '../../../src/sim/build/dataFiles.ts';
import { engineHardware } from '../../../src/sim/build/engineSettings.ts';
import { simulate } from '../../../src/sim/build/simulate.ts';
import { fromFields } from '../../../src/sim/description/readers.ts';
import { layerKvBytesPerToken, localWeightBytes } from '../../../src/sim/latency/engineMemory.ts';
import { fullLayersOf } from '../../../src/sim/latency/hybridLayers.ts';
import {
  kvElementBytesOf,
  kvElements,
  type ModelConfig,
  parseModelConfig,
} from '../../../src/sim/latency/modelConfig.ts';
import { weightFormatOf } from '../../../src/sim/latency/quantisation.ts';

/** Bytes of KV of one token that a model keeps on one GPU of `tp`, of layers of full attention with their indexers, and of windows. */
function keptBytes(
  model: ModelConfig,
  tp: number,
  elementBytes: number,
): { readonly full: number; readonly window: number; readonly state: number } {
  const { layers: indexing = 0, tokenBytes = 0 } = model.indexer ?? {};
  const { windowLayers = 0, linearLayers = 0, stateElements = 0 } = model.hybrid ?? {};
  return {
    full: fullLayersOf(model).keeping * layerKvBytesPerToken(model, tp, elementBytes) + indexing * tokenBytes,
    window: windowLayers * kvElements(model, tp, true) * elementBytes,
    state: (linearLayers * stateElements * model.activationBytes) / tp,
  };
}

interface Published {
  readonly model: string;
  readonly config: object;
  readonly side: object | null;
  /** Bytes in full, window and state, on one GPU of a number; null where vLLM's rules were not written down. */
  readonly bytes: Readonly<Record<string, readonly [number, number, number] | null>>;
}

const fixture = new URL('fixtures/publishedConfigs.jsonl.gz', import.meta.url).pathname;
const published = readText(fixture)
  .trim()
  .split('\n')
  .map((line) => JSON.parse(line) as Published);

const modelOf = ({ model, config, side }: Published) => {
  const beside = side === null ? undefined : { text: JSON.stringify(side), file: 'hf_quant_config.json' };
  return parseModelConfig(JSON.stringify(config), 'config.json', model, false, beside);
};

describe('a published model', () => {
  it('is one of many', () => {
    expect(published.filter(({ bytes }) => bytes['1'] !== null).length).toBeGreaterThanOrEqual(80);
  });

  it.each(published.map((one) => [one.model, one] as const))('%s', (_, one) => {
    if (one.bytes['1'] === null) {
      expect(() => modelOf(one)).toThrow(
        expect.objectContaining({ code: 'TKV_INPUT', field: expect.stringMatching(/\w/) }),
      );
      return;
    }
    const model = modelOf(one);
    for (const [tp, want] of Object.entries(one.bytes)) {
      const { full, window, state } = keptBytes(model, Number(tp), kvElementBytesOf(model));
      expect([full, window, state]).toEqual(want);
    }
  });

  it.each([
    ['nvidia/DeepSeek-V3.1-NVFP4', 'nvfp4', 1],
    ['nvidia/Qwen3-235B-A22B-NVFP4', 'nvfp4', 1],
    ['nvidia/Llama-3.1-70B-Instruct-FP8', 'fp8', 1],
    ['Qwen/Qwen3-32B-FP8', 'fp8_block', 2],
    ['Qwen/Qwen3-32B-FP8-Static-PerTensor', 'fp8', 1],
    ['moonshotai/Kimi-K2.5', 'int4', 2],
    ['openai/gpt-oss-120b', 'mxfp4', 2],
    ['meta-llama/Meta-Llama-3.1-8B', 'bfloat16', 2],
  ])('%s has weights in %s and %i bytes an element of KV', (name, format, bytes) => {
    const model = modelOf(published.find((one) => one.model === name)!);
    expect([weightFormatOf(model), kvElementBytesOf(model)]).toEqual([format, bytes]);
  });

  it('of blocks that count as layers has as many of each as its pattern', () => {
    const model = modelOf(
      published.find((one) => one.model === 'nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16')!,
    );
    expect(model.blocks).toEqual({ moe: 23, dense: 0 });
    // 31.6 billion weights by its card, in 16 bits; 1.6 of them are embeddings and shared experts' rest
    expect(localWeightBytes(model, 1, 1) / 2e9).toBeGreaterThan(27);
  });
});

describe('an engine that quantises while it loads', () => {
  const machine = (model: string) => (quantization?: 'fp8') =>
    engineHardware(
      fromFields({
        model,
        hardware: 'H100',
        tp: 2,
        engine: quantization === undefined ? {} : { quantization },
      }),
    );

  it('holds half the weights of a 70B, and steps are shorter', async () => {
    const of = machine('llama-3.1-70b-instruct');
    const [whole, halved] = [of(), of('fp8')];
    const ratio = localWeightBytes(halved.model, 2, 1) / localWeightBytes(whole.model, 2, 1);
    expect(ratio).toBeGreaterThan(0.5);
    expect(ratio).toBeLessThan(0.53);
    const run = {
      model: 'llama-3.1-70b-instruct',
      hardware: 'H100',
      tp: 2,
      workload: { preset: 'chatbot', requests: 20 },
    } as const;
    const slow = await simulate({ ...run, tp: 4 });
    const fast = await simulate({ ...run, tp: 4, engine: { quantization: 'fp8' } });
    expect(fast.metrics.itl_mean_ms).toBeLessThan(0.9 * slow.metrics.itl_mean_ms);
  });

  it('takes a checkpoint of that precision as it is, and refuses one of 4 bits', () => {
    const ready = 'llama-4-scout-17b-16e-instruct-fp8-dynamic';
    expect(machine(ready)('fp8').model).toEqual(machine(ready)().model);
    expect(() => machine('gpt-oss-120b')('fp8')).toThrow(
      expect.objectContaining({ code: 'TKV_CONFIG', message: expect.stringContaining('mxfp4 already') }),
    );
  });
});

describe('more GPUs than KV heads', () => {
  it('repeat them, as vLLM does, where they divide the GPUs', async () => {
    const run = {
      model: 'qwen3-30b-a3b',
      hardware: 'H100',
      workload: { preset: 'chatbot', requests: 10 },
    } as const;
    expect((await simulate({ ...run, tp: 8 })).metrics.completed_requests).toBe(10);
    const { model } = engineHardware(fromFields({ model: run.model, hardware: 'H100', tp: 8 }));
    expect(keptBytes(model, 8, 2).full).toBe(keptBytes(model, 4, 2).full);
    expect(() => engineHardware(fromFields({ model: run.model, hardware: 'H100', tp: 3 }))).toThrow(
      expect.objectContaining({ code: 'TKV_CONFIG' }),
    );
  });
});
