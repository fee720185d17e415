/**
 * How vLLM shares out the memory of a GPU: what it may use, less weights, less the peak of its profile run, less what the
 * runtime and the collectives take, is KV. Each part is a formula with its source; the peak of the profile run is the higher
 * of two: a forward pass over `maxBatchedTokens`, and sampling for `maxSequences`.
 *
 * The two constants of the peak were fitted to what vLLM logged on H100 for seven pairs of model and parallelism
 * (llm-d/llm-d-benchmark, config_explorer/empirical-vllm-memory-results.md at 25933486: 8,192 tokens, 1,024 sequences); none
 * of them is off by more than 0.03 GiB. Block counts that other engines logged judge them (test/sim/latency).
 */

import { configError, namedError, requireInteger } from '../../runtime/errors.ts';
import * as is from '../../runtime/kinds.ts';
import { checkInputs, type Kinds, optionTable } from '../../runtime/options.ts';
import { kvLayout } from './kvLayout.ts';
import {
  type Hardware,
  kvElementBytesOf,
  kvElements,
  layerSplit,
  localKvHeads,
  type ModelConfig,
  trueHeadDim,
} from './modelConfig.ts';

const gib = 2 ** 30;

/**
 * Bytes that sampling holds at its peak for a sequence and an entry of the vocabulary: logits in 16 and 32 bits, a sorted
 * copy with 64-bit places, shares, their sums and what filters by them.
 */
const samplingBytes = 38.3;
/** Hidden states of a forward pass that are alive at once while a feed-forward block runs: input, residual, output. */
const hiddenCopies = 3;
/** Context of the GPU's runtime, and with several GPUs the buffers of the collectives, in GiB on each GPU. */
const runtimeGib = { alone: 0.13, several: 0.55 } as const;
/** Share of the memory on the data sheet that a process is shown where a GPU's file does not say it. */
const visibleShare = 0.985;

/** Options of `engineMemory` beside model and GPU. */
export interface EngineMemoryOptions {
  readonly tp: number;
  /** Data parallel ranks of a mixture of experts, over which its experts are spread too. */
  readonly dp: number;
  readonly blockTokens: number;
  /** Share of the GPU's memory that may be used, in (0, 1]. */
  readonly memoryUtilization: number;
  /** Most sequences and tokens of a step, which the profile run takes. */
  readonly maxSequences: number;
  readonly maxBatchedTokens: number;
  /** Bytes of a KV element; as an activation unless set. 1 for FP8. */
  readonly kvElementBytes?: number;
  /** GiB on each GPU for captured graphs: vLLM counts them from 0.21 on, 0 before. */
  readonly graphGib?: number;
  /** Bytes on each GPU for LoRA adapters. */
  readonly adapterBytes?: number;
  /** A model that drafts tokens: its weights and its KV lie beside those of the model. */
  readonly draft?: ModelConfig;
}

const engineMemoryOptionsTable = optionTable({
  tp: is.passed(),
  dp: is.passed(),
  blockTokens: is.passed(),
  memoryUtilization: is.positive(),
  maxSequences: is.passed(),
  maxBatchedTokens: is.passed(),
  kvElementBytes: is.optional(is.passed()),
  graphGib: is.optional(is.passed()),
  adapterBytes: is.optional(is.passed()),
  draft: is.optional(is.passed()),
} satisfies Kinds<EngineMemoryOptions>);

/** Memory of one GPU, in GiB, and its KV blocks. */
export interface EngineMemory {
  /** Memory that the driver shows a process. */
  readonly visibleGib: number;
  readonly usableGib: number;
  readonly weightsGib: number;
  readonly activationsGib: number;
  readonly runtimeGib: number;
  readonly graphsGib: number;
  readonly adaptersGib: number;
  readonly kvGib: number;
  readonly blockBytes: number;
  /** KV blocks of the engine: of one rank, and of all ranks with `dp`. */
  readonly blocks: number;
}

/** Elements of one layer's attention: queries, keys, values and output, on one GPU. */
function attentionElements(model: ModelConfig, tp: number): number {
  const d = model.hiddenSize;
  const headDim = trueHeadDim(model);
  if (model.kvLoraRank > 0) {
    // the projection into the latent is on every GPU, those out of it are shared out
    const latent = d * (model.kvLoraRank + model.qkRopeHeadDim);
    if (model.mla !== undefined) {
      const { queryRank, plainHeadDim, valueHeadDim } = model.mla;
      const query = model.heads * (plainHeadDim + model.qkRopeHeadDim);
      const queries = queryRank > 0 ? d * queryRank + (queryRank * query) / tp : (d * query) / tp;
      const keysAndValues = model.kvLoraRank * model.heads * (plainHeadDim + valueHeadDim);
      return latent + queries + (keysAndValues + model.heads * valueHeadDim * d) / tp;
    }
    return latent + (d * model.heads * headDim * 2 + model.kvLoraRank * model.heads * headDim * 2) / tp;
  }
  const queries = (model.heads * headDim) / tp;
  const values = (model.heads * (model.valueDim ?? headDim)) / tp;
  return d * (queries + values + kvElements(model, tp));
}

/** Elements of one of the three matrices of an expert on one GPU of `tp`, with what its kernels pad. */
function expertElements(model: ModelConfig, tp: number): number {
  const width = (model.expertFfnSize || model.ffnSize) / tp;
  const { expertPadding } = model;
  if (expertPadding === undefined) return model.hiddenSize * width;
  const upTo = (size: number, multiple: number): number => Math.ceil(size / multiple) * multiple;
  return upTo(model.hiddenSize, expertPadding.hidden) * upTo(width, expertPadding.width);
}

/** Copies that vLLM keeps of MLA's projections out of the latent, in 16 bits, to multiply queries and outputs with instead. */
function absorbedBytes(model: ModelConfig, tp: number): number {
  if (model.mla === undefined) return 0;
  const { plainHeadDim, valueHeadDim } = model.mla;
  const elements = (model.heads / tp) * (plainHeadDim + valueHeadDim) * model.kvLoraRank;
  return model.layers * elements * model.activationBytes;
}

/** Bytes of the weights on one GPU. Embedding and output head stay in the activations' precision when others are quantised. */
export function localWeightBytes(model: ModelConfig, tp: number, dp: number): number {
  const d = model.hiddenSize;
  const { moe, dense } = layerSplit(model, true);
  const { linearLayers = 0, linearInputs = 0, linearOutputs = 0, idleLayers = 0 } = model.hybrid ?? {};
  const matrices =
    (model.layers - linearLayers - idleLayers) * attentionElements(model, tp) +
    (linearLayers * d * (linearInputs + linearOutputs)) / tp;
  const denseFfn = (dense * 3 * d * (model.denseFfnSize || model.ffnSize)) / tp;
  const experts = (moe * 3 * model.experts * expertElements(model, tp)) / dp;
  const shared = (moe * 3 * d * model.sharedExpertFfnSize) / tp;
  const router = moe * model.experts * d;
  const stored = model.storedWeightBytes ?? model.weightBytes;
  const quantised =
    matrices * (model.keepsAttention ? model.activationBytes : stored) +
    (denseFfn + experts + shared) * stored +
    absorbedBytes(model, tp);
  const embedding = (model.vocabSize * d) / tp;
  const whole = embedding * (model.tiedEmbeddings ? 1 : 2) + router + (2 * model.layers + 1) * d;
  return quantised + whole * model.activationBytes;
}

/**
 * Bytes of one LoRA adapter of that rank on one GPU, over the projections of attention and of dense feed-forward blocks: of
 * a matrix with i inputs and o outputs i x r and r x o elements. Where a matrix is split over GPUs, the half on the split side
 * is split too and the other is whole, as vLLM has it without `fully_sharded_loras`.
 */
export function adapterBytesOf(model: ModelConfig, rank: number, tp: number): number {
  const d = model.hiddenSize;
  const queries = (model.heads * trueHeadDim(model)) / tp;
  const keys = localKvHeads(model, tp) * trueHeadDim(model);
  const { dense } = layerSplit(model, true);
  const { linearLayers = 0, idleLayers = 0 } = model.hybrid ?? {};
  const attention = 3 * d + queries + 2 * keys + queries + d;
  const width = (model.denseFfnSize || model.ffnSize) / tp;
  const feedForward = 2 * (d + width) + width + d;
  return (
    rank *
    ((model.layers - linearLayers - idleLayers) * attention + dense * feedForward) *
    model.activationBytes
  );
}

/**
 * Bytes of one token's KV in one layer of full attention, on one GPU. A latent of 8 bits that sparse attention reads has a scale of 32
 * bits for 128 elements, and its rotated part in 16 bits (`fp8_ds_mla` of vLLM: 656 bytes of 512 and 64 elements).
 */
export function layerKvBytesPerToken(model: ModelConfig, tp: number, elementBytes: number): number {
  const { kvLoraRank, qkRopeHeadDim, indexer } = model;
  if (kvLoraRank === 0) return kvElements(model, tp) * elementBytes;
  if (indexer !== undefined && elementBytes === 1)
    return kvLoraRank + (4 * kvLoraRank) / 128 + 2 * qkRopeHeadDim;
  return (kvLoraRank + qkRopeHeadDim) * elementBytes;
}

/** Bytes that one token takes on one GPU beyond windows and states: in all groups of full attention, and in indexers. */
export function localKvBytesPerToken(model: ModelConfig, tp: number, elementBytes: number): number {
  const { groupLayers, fullGroups } = kvLayout(model);
  const { layers: indexing = 0, tokenBytes = 0 } = model.indexer ?? {};
  return groupLayers * fullGroups * layerKvBytesPerToken(model, tp, elementBytes) + indexing * tokenBytes;
}

function activationBytes(model: ModelConfig, options: EngineMemoryOptions): number {
  const { tp, maxSequences, maxBatchedTokens } = options;
  const element = model.activationBytes;
  const hidden = maxBatchedTokens * model.hiddenSize * element;
  const { moe, dense } = layerSplit(model, true);
  const wide = (width: number): number => (3 * maxBatchedTokens * width * element) / tp; // both inputs and their product
  const denseBytes = dense > 0 ? wide(model.denseFfnSize || model.ffnSize) : 0;
  const routed = maxBatchedTokens * model.expertsPerToken;
  const expertBytes =
    moe > 0 ? routed * element * ((3 * (model.expertFfnSize || model.ffnSize)) / tp + model.hiddenSize) : 0;
  const forward = hiddenCopies * hidden + Math.max(denseBytes, expertBytes);
  // a dummy request samples one of its tokens, so there are no more of them than tokens
  const sampled = Math.min(maxSequences, maxBatchedTokens);
  const sampling = hidden + sampled * model.vocabSize * samplingBytes;
  return Math.max(forward, sampling);
}

/**
 * How much of a GPU's memory weights and activations take, and how many KV blocks are left.
 * @throws {TierKVError} TKV_CONFIG for options out of range; TKV_CAPACITY when no KV block fits.
 */
export function engineMemory(
  model: ModelConfig,
  hardware: Hardware,
  options: EngineMemoryOptions,
): EngineMemory {
  checkInputs(
    { model, hardware, options },
    {
      model: is.fields({ name: is.text(), layers: is.number() }),
      hardware: is.fields({ name: is.text(), peakTflops: is.number() }),
      options: is.fields({ tp: is.number(), dp: is.number() }),
    },
  );
  const { tp, dp, blockTokens, memoryUtilization } = engineMemoryOptionsTable.read(options);
  for (const name of ['tp', 'dp', 'blockTokens', 'maxSequences', 'maxBatchedTokens'] as const) {
    requireInteger(name, options[name], 1);
  }
  if (memoryUtilization > 1) {
    throw configError('memoryUtilization', `is ${memoryUtilization}, above 1`, 'Set a share of the memory.');
  }
  const visibleGib = hardware.visibleGib || hardware.memoryGib * visibleShare;
  const usableGib = visibleGib * memoryUtilization;
  const { draft } = options;
  const draftBytes = draft === undefined ? 0 : localWeightBytes(draft, tp, 1);
  const weightsGib = (localWeightBytes(model, tp, dp) + draftBytes) / gib;
  const activationsGib = activationBytes(model, options) / gib;
  const runtime = tp * dp === 1 ? runtimeGib.alone : runtimeGib.several;
  const graphsGib = options.graphGib ?? 0;
  const adaptersGib = (options.adapterBytes ?? 0) / gib;
  const usedGib = weightsGib + activationsGib + runtime + graphsGib + adaptersGib;
  const kvGib = usableGib - usedGib;
  const kvElementBytes = options.kvElementBytes ?? kvElementBytesOf(model);
  const draftKv = draft === undefined ? 0 : localKvBytesPerToken(draft, tp, kvElementBytes);
  const blockBytes = Math.trunc((localKvBytesPerToken(model, tp, kvElementBytes) + draftKv) * blockTokens);
  const blocks = Math.floor((kvGib * gib) / blockBytes);
  if (blocks < 1) {
    const each = adaptersGib.toFixed(1);
    const adapters = (name: (field: string) => string): string =>
      adaptersGib > 0
        ? `LoRA adapters take ${each} GiB of it: lower ${name('engine.maxLoras')} or ${name('engine.maxLoraRank')}. `
        : '';
    throw namedError(
      'TKV_CAPACITY',
      { field: 'tp' },
      (name) =>
        `${model.name} needs ${usedGib.toFixed(1)} GiB on each GPU before its first KV block, and ` +
        `${hardware.name} gives ${usableGib.toFixed(1)} GiB. ${adapters(name)}Use more GPUs (${name('tp')}), or a larger one.`,
    );
  }
  return {
    visibleGib,
    usableGib,
    weightsGib,
    activationsGib,
    runtimeGib: runtime,
    graphsGib,
    adaptersGib,
    kvGib,
    blockBytes,
    blocks: model.experts > 0 ? blocks * dp : blocks,
  };
}
