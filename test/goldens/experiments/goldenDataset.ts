/**
 * Upstream's regression data set of one instance: requests that are drawn one after the other from one stream,
 * and a roofline of a model and a GPU that are the same for all of its tests, whatever they name.
 */

import type { LatencyModel } from '../../../src/sim/latency/latencyModel.ts';
import { newLatencyModel } from '../../../src/sim/latency/makeModel.ts';
import type { Hardware, ModelConfig } from '../../../src/sim/latency/modelConfig.ts';
import { GoRandom } from '../../../src/sim/random/goRand.ts';
import { lengthSampler } from '../../../src/sim/random/samplers.ts';
import type { WorkloadRequest } from '../../../src/sim/workload/request.ts';
import { VOCABULARY } from '../../../src/sim/workload/tokens.ts';

export interface DatasetTest {
  readonly model: string;
  readonly rate: number;
  readonly seed: number;
  readonly tp: number;
  readonly prefix_tokens: number;
  readonly prompt_tokens: number;
  readonly prompt_tokens_stdev: number;
  readonly prompt_tokens_min: number;
  readonly prompt_tokens_max: number;
  readonly output_tokens: number;
  readonly output_tokens_stdev: number;
  readonly output_tokens_min: number;
  readonly output_tokens_max: number;
  readonly 'num-requests': number;
  readonly 'max-num-seqs': number;
  readonly 'max-num-batched-tokens': number;
  readonly 'max-model-len': number;
  readonly 'total-kv-blocks': number;
  readonly 'block-size-in-tokens': number;
  readonly 'alpha-coeffs': readonly number[];
  readonly metrics: Readonly<Record<string, number>>;
}

const model: ModelConfig = {
  name: 'fixed',
  layers: 32,
  hiddenSize: 4096,
  heads: 32,
  kvHeads: 8,
  vocabSize: 128_256,
  ffnSize: 4 * 4096,
  activationBytes: 2,
  weightBytes: 2,
  keepsAttention: false,
  experts: 0,
  expertsPerToken: 0,
  expertFfnSize: 0,
  sharedExpertFfnSize: 0,
  interleaveMoeLayerStep: 0,
  denseFfnSize: 0,
  firstDenseLayers: 0,
  kvLoraRank: 0,
  qkRopeHeadDim: 0,
  headDim: 0,
  hiddenAct: 'silu',
  tiedEmbeddings: false,
  maxModelTokens: 0,
};

const hardware: Hardware = {
  name: 'fixed',
  aliases: [],
  peakTflops: 989,
  peakTflops8bit: 0,
  memoryTbPerS: 3.35,
  memoryGib: 80,
  visibleGib: 0,
  reduceEfficiency: 0,
  reduceLatencyUs: 0,
  mfuPrefill: 0.55,
  mfuDecode: 0.3,
  interconnectGbPerS: 450,
};

export function datasetLatency({ tp, 'alpha-coeffs': alpha }: DatasetTest): LatencyModel {
  const coefficients = { backend: 'roofline', values: { alpha } } as const;
  return newLatencyModel({ model, hardware, tp, coefficients, floor: false });
}

export function datasetRequests(test: DatasetTest): WorkloadRequest[] {
  const seed = BigInt(test.seed);
  const random = new GoRandom(seed);
  const spanOf = (tokens: number): { seed: bigint; position: number; tokens: number } => {
    const position = random.position;
    random.skipIntn(tokens, VOCABULARY);
    return { seed, position, tokens };
  };
  const lengths = (name: 'prompt' | 'output'): ReturnType<typeof lengthSampler> =>
    lengthSampler({
      type: 'gaussian',
      mean: test[`${name}_tokens`],
      std_dev: test[`${name}_tokens_stdev`],
      min: test[`${name}_tokens_min`],
      max: test[`${name}_tokens_max`],
    });
  const [prompts, outputs] = [lengths('prompt'), lengths('output')];
  const prefix = spanOf(test.prefix_tokens);
  return Array.from({ length: test['num-requests'] }, (_, i): WorkloadRequest => {
    const prompt = spanOf(prompts.next(random));
    const output = spanOf(outputs.next(random));
    return {
      id: `request_${i}`,
      origin: {
        clientId: '',
        tenantId: '',
        sloClass: '',
        model: '',
        adapter: '',
        sloTargetUs: 0,
        prefixGroup: '',
      },
      // the rate is one of microseconds there, whose inverse is a hair below 100,000
      arrivalUs: i * Math.trunc(1 / (test.rate / 1e6)),
      inputTokens: prefix.tokens + prompt.tokens,
      outputTokens: output.tokens,
      prefixTokens: prefix.tokens,
      prompt: { kind: 'drawn', spans: prefix.tokens === 0 ? [prompt] : [prefix, prompt] },
      output: { kind: 'drawn', spans: [output] },
      deadlineUs: 0,
      sessionId: '',
      session: -1,
      round: 0,
      streaming: false,
      modalities: null,
      reasonRatio: 0,
      thinkTimeUs: 0,
      recordedPrefixGroup: '',
    };
  });
}
