/**
 * How many KV blocks fit: GPU memory at its permitted utilisation, less weights, activations and what the
 * runtime of the GPU takes. The same figures and the same truncations as upstream, so that a run without an
 * explicit block count agrees.
 */

import { configError, requireInteger, requirePositive, TierKVError } from '../../runtime/errors.ts';
import type { Hardware } from './description/hardware.ts';
import { type ModelConfig, trueHeadDim } from './description/modelConfig.ts';

const gib = 2 ** 30;
const activationGib = { dense: 5.5, moe: 8 };
/** CUDA context, and with several GPUs the collectives' buffers too. */
const runtimeGib = { alone: 0.15, eachOfSeveral: 0.6 };
const gatedActivations: readonly string[] = ['', 'silu', 'swiglu', 'geglu', 'situ'];

/**
 * KV bytes of one token on one GPU of `tp`. The compressed latent of MLA is not shared out, every GPU holds
 * it whole.
 */
export function kvBytesPerToken(model: ModelConfig, tp: number): number {
  requireInteger('tp', tp, 1);
  if (model.kvLoraRank > 0) {
    return model.layers * (model.kvLoraRank + model.qkRopeHeadDim) * model.activationBytes;
  }
  return (model.layers * 2 * trueHeadDim(model) * model.kvHeads * model.activationBytes) / tp;
}

/** Bytes of all weights, over all GPUs, with three matrices a feed-forward block. */
export function weightBytes(model: ModelConfig): number {
  const d = model.hiddenSize;
  const kvSize = model.kvHeads * trueHeadDim(model);
  const attention = d * (d + 2 * kvSize) + d * d;
  const norms = 2 * d;
  let ffn = model.layers * 3 * d * model.ffnSize;
  if (model.experts > 0) {
    const prefix = Math.min(model.firstDenseLayers, model.layers);
    const moeLayer =
      3 * d * (model.expertFfnSize || model.ffnSize) * model.experts +
      3 * d * model.sharedExpertFfnSize +
      model.experts * d;
    ffn = prefix * 3 * d * (model.denseFfnSize || model.ffnSize) + (model.layers - prefix) * moeLayer;
  }
  const head = model.tiedEmbeddings ? 0 : model.vocabSize * d;
  const elements = model.vocabSize * d + model.layers * (attention + norms) + ffn + head + d;
  return Math.trunc(elements * model.weightBytes);
}

export interface BlockCountOptions {
  readonly tp: number;
  readonly dp: number;
  readonly blockTokens: number;
  /** Share of the GPU's memory that may be used, in (0, 1]. */
  readonly memoryUtilization: number;
  /** Bytes set aside for LoRA adapters. */
  readonly adapterBytes: number;
}

/**
 * KV blocks of one engine (of all its ranks, for a mixture-of-experts model).
 * @throws {TierKVError} TKV_CONFIG for a model whose size this formula does not describe; TKV_CAPACITY when
 * it does not fit.
 */
export function automaticBlockCount(
  model: ModelConfig,
  hardware: Hardware,
  options: BlockCountOptions,
): number {
  const { tp, dp, blockTokens, memoryUtilization, adapterBytes } = options;
  requireInteger('tp', tp, 1);
  requireInteger('dp', dp, 1);
  requireInteger('blockTokens', blockTokens, 1);
  if (requirePositive('memoryUtilization', memoryUtilization) > 1) {
    throw configError('memoryUtilization', `is ${memoryUtilization}, above 1`, 'Set a share of the memory.');
  }
  if (!gatedActivations.includes(model.hiddenAct)) {
    const remedy = 'Take the number of blocks from the log of its engine.';
    throw configError('hidden_act', `of ${model.name} is "${model.hiddenAct}", not a gated one`, remedy);
  }
  if (model.kvHeads >= tp && model.kvHeads % tp !== 0) {
    const remedy = `Choose one that divides ${model.kvHeads}.`;
    throw configError('tp', `is ${tp}, which does not divide the ${model.kvHeads} KV heads`, remedy);
  }
  const blockBytes = Math.trunc(kvBytesPerToken(model, tp) * blockTokens);
  if (blockBytes < 1) {
    throw configError(
      'blockTokens',
      `makes blocks of ${blockBytes} bytes of ${model.name}`,
      'Raise it, or lower tp.',
    );
  }
  const availableGib = hardware.memoryGib * memoryUtilization * tp;
  const weightsGib = weightBytes(model) / gib;
  const activations = model.experts > 0 ? activationGib.moe : activationGib.dense;
  const runtime = (tp === 1 ? runtimeGib.alone : runtimeGib.eachOfSeveral) * tp;
  const overheadGib = weightsGib + activations + runtime + adapterBytes / gib;
  const blocks = Math.trunc(Math.trunc((availableGib - overheadGib) * gib) / blockBytes);
  if (blocks < 1) {
    const each = hardware.memoryGib * memoryUtilization - runtimeGib.eachOfSeveral;
    const least = Math.ceil((weightsGib + activations + adapterBytes / gib) / each);
    throw new TierKVError(
      'TKV_CAPACITY',
      `${model.name} needs ${overheadGib.toFixed(1)} GiB before its first KV block and ` +
        `${tp} ${hardware.name} give ${availableGib.toFixed(1)} GiB. Use ` +
        `${each > 0 ? `at least ${Math.max(least, tp + 1)} of them` : 'a larger GPU'}.`,
      { field: 'tp' },
    );
  }
  return model.experts > 0 ? blocks * dp : blocks;
}
