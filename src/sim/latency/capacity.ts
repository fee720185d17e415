/**
 * Limits of a deployment's memory and links: how many KV blocks fit, and how long a transfer between tiers takes by a
 * link profile.
 */

import { configError, inputError, requireInteger, TierKVError } from '../../runtime/errors.ts';
import * as is from '../../runtime/kinds.ts';
import { checkInputs, type Kinds, optionTable } from '../../runtime/options.ts';
import { tierLinks } from '../../runtime/tier/tier.ts';
import { readYaml, type SpecNode } from '../description/fields.ts';
import type { LinkProfile, LinkProfiles } from '../links/modeledDriver.ts';
import { type Hardware, type ModelConfig, trueHeadDim } from './modelConfig.ts';

// How many KV blocks fit: GPU memory at its permitted utilisation, less weights, activations and what the
// runtime of the GPU takes. The same figures and the same truncations as upstream, so that a run without an
// explicit block count agrees.

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
  checkInputs({ model }, { model: is.fields({ name: is.text(), layers: is.number() }) });
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

interface BlockCountOptions {
  readonly tp: number;
  readonly dp: number;
  readonly blockTokens: number;
  /** Share of the GPU's memory that may be used, in (0, 1]. */
  readonly memoryUtilization: number;
  /** Bytes set aside for LoRA adapters. */
  readonly adapterBytes: number;
}

const blockCountOptionsTable = optionTable({
  tp: is.passed(),
  dp: is.integer(1),
  blockTokens: is.integer(1),
  memoryUtilization: is.positive(),
  adapterBytes: is.passed(),
} satisfies Kinds<BlockCountOptions>);

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
  checkInputs(
    { model, hardware, options },
    {
      model: is.fields({ name: is.text(), layers: is.number() }),
      hardware: is.fields({ name: is.text(), peakTflops: is.number() }),
      options: is.fields({ tp: is.number(), dp: is.number() }),
    },
  );
  const { tp, dp, blockTokens, memoryUtilization, adapterBytes } = blockCountOptionsTable.read(options);
  requireInteger('tp', tp, 1);
  if (memoryUtilization > 1) {
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

// The link profile that `tierkv calibrate` writes: for each direction between tiers a base latency and a
// bandwidth, or the measured sizes they are fitted from. The result is what the modeled driver takes, so that
// a simulated transfer lasts as long as a real one on the machine that was measured.
//
//     { "schema": "tierkv.links/1", "device": "...", "software": false,
//       "links": { "hbmToDdr": { "baseLatencyUs": 12.5, "bandwidthBytesPerS": 2.1e10 },
//                  "ddrToHbm": { "sizes": [ { "bytes": 65536, "latencyUs": 20 }, ... ],
//                                "delayUs": 35, "bothWaysShare": 0.7 } } }

export const linkSchema = 'tierkv.links/1';

/** One measured transfer: its size and how long it took. */
export interface LinkSample {
  readonly bytes: number;
  readonly latencyUs: number;
}

export interface LinkCalibration {
  /** Adapter or machine as the measurement names it. */
  readonly device: string;
  /** Whether it was a software device, whose times mean nothing for hardware. */
  readonly software: boolean;
  readonly links: LinkProfiles;
}

/**
 * Base latency and bandwidth with the least relative squared error over the samples; neither is negative.
 * @param samples at least two sizes.
 */
export function fitLink(samples: readonly LinkSample[]): LinkProfile {
  checkInputs({ samples }, { samples: is.list(is.fields({ bytes: is.number(), latencyUs: is.number() })) });
  if (samples.length === 0) throw inputError('samples', 'holds no transfer. Measure one or more.');
  // minimise the sum of ((a + b x - y) / y)^2
  let [w, wx, wxx, wy, wxy] = [0, 0, 0, 0, 0];
  for (const { bytes, latencyUs } of samples) {
    const weight = 1 / (latencyUs * latencyUs);
    w += weight;
    wx += weight * bytes;
    wxx += weight * bytes * bytes;
    wy += weight * latencyUs;
    wxy += weight * bytes * latencyUs;
  }
  const determinant = w * wxx - wx * wx;
  let perByte = (w * wxy - wx * wy) / determinant;
  let base = (wy - perByte * wx) / w;
  if (!(base >= 0)) {
    base = 0;
    perByte = wxy / wxx;
  }
  if (!(perByte > 0)) {
    // a link whose time does not grow over the measured sizes is at least as fast as its largest sample says
    const largest = samples.reduce((a, b) => (b.bytes > a.bytes ? b : a));
    base = 0;
    perByte = largest.latencyUs / largest.bytes;
  }
  return { baseLatencyUs: base, bandwidthBytesPerS: 1e6 / perByte };
}

/** Most bytes of a transfer, or of a link in a second. */
const maxBytes = 1e15;
/** Longest time of a transfer: a day. */
const maxUs = 86_400e6;

function linkOf(node: SpecNode): LinkProfile {
  const samples = node.list('sizes').map((sample): LinkSample => {
    const bytes = sample.integer('bytes', { min: 1, max: maxBytes }, Number.NaN);
    const latencyUs = sample.number('latencyUs', { min: 1e-3, max: maxUs }, Number.NaN);
    if (Number.isNaN(bytes)) throw sample.error('bytes', 'is missing', 'Give the size of the transfer');
    if (Number.isNaN(latencyUs)) throw sample.error('latencyUs', 'is missing', 'Give the time it took');
    sample.close();
    return { bytes, latencyUs };
  });
  const baseLatencyUs = node.optionalNumber('baseLatencyUs', { min: 0, max: maxUs });
  const bandwidthBytesPerS = node.optionalNumber('bandwidthBytesPerS', { min: 1, max: maxBytes });
  const delayUs = node.optionalNumber('delayUs', { min: 0, max: maxUs });
  const bothWaysShare = node.optionalNumber('bothWaysShare', { min: 1e-3, max: 1 });
  const batchBytes = node.optionalNumber('batchBytes', { min: 0, max: maxBytes });
  node.close();
  const more = {
    ...(delayUs === undefined ? {} : { delayUs }),
    ...(bothWaysShare === undefined ? {} : { bothWaysShare }),
    ...(batchBytes === undefined ? {} : { batchBytes }),
  };
  if (bandwidthBytesPerS !== undefined) {
    return { baseLatencyUs: baseLatencyUs ?? 0, bandwidthBytesPerS, ...more };
  }
  if (new Set(samples.map((sample) => sample.bytes)).size < 2) {
    const remedy = 'Give it in bytes/s, or list transfers of at least two sizes under sizes';
    throw node.error('bandwidthBytesPerS', 'is missing', remedy);
  }
  return { ...fitLink(samples), ...more };
}

/** The profiles under `links`, by direction; undefined without that key. */
export function readLinks(root: SpecNode): LinkProfiles | undefined {
  const section = root.section('links');
  if (section === undefined) return undefined;
  const links: Record<string, LinkProfile> = {};
  for (const { name } of tierLinks()) {
    const link = section.section(name);
    if (link !== undefined) links[name] = linkOf(link);
  }
  section.close();
  return links;
}

/**
 * Reads the text of a link profile.
 * @throws {TierKVError} TKV_INPUT with file, line and key.
 */
export function parseLinkCalibration(text: string, file: string): LinkCalibration {
  checkInputs({ text, file }, { text: is.text(), file: is.name() });
  const root = readYaml(text, file);
  root.choice('schema', [linkSchema]);
  const device = root.text('device');
  const software = root.flag('software') ?? false;
  root.text('driver');
  root.text('date');
  root.flag('sustained');
  root.has('uploads'); // how the runtime uploads: known, and of no interest to a model of links
  const links = readLinks(root);
  if (links === undefined) throw root.error('links', 'is missing', 'Write the file with tierkv calibrate');
  root.close();
  return { device, software, links };
}
