/**
 * The facts that models of time compute with: of an LLM, from the `config.json` that HuggingFace publishes
 * with it, and of a GPU, from a data file. Each fact has one name and one unit. A required fact that is
 * missing or out of range is an error with file, line and key.
 */

import { nearestName, TierKVError } from '../../runtime/errors.ts';
import * as is from '../../runtime/kinds.ts';
import { checkInputs } from '../../runtime/options.ts';
import { readYaml, type SpecNode } from '../description/fields.ts';
import { shownPlain } from '../workload/traceLines.ts';
import { countedKinds, type HybridLayers, readHybridLayers } from './hybridLayers.ts';
import { assumeKey, requireKnownLayers } from './layerKeys.ts';

// Configuration of an LLM. Several families spell one thing in several ways. Keys that no model of time needs are
// ignored, but for keys that may change KV (`layerKeys.ts`).

/** Architecture of one model. Sizes are in elements; 0 stands for "absent" only where a field says so. */
export interface ModelConfig {
  /** Lower-case name without the organisation, as data files are named. */
  readonly name: string;
  readonly layers: number;
  readonly hiddenSize: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly vocabSize: number;
  /** Width of the feed-forward block, and of one expert where `expertFfnSize` is 0. */
  readonly ffnSize: number;
  /** Bytes of an activation, and of a KV element unless that is said. */
  readonly activationBytes: number;
  /** Bytes of a KV element where an engine keeps it in another precision: 1 for FP8. */
  readonly kvElementBytes?: number;
  /** Bytes of a weight; below `activationBytes` for quantised models, 0.5 for 4 bits. */
  readonly weightBytes: number;
  /** Bytes of a quantised weight with its share of scales and zero points, as an engine holds it; `weightBytes` unless set. */
  readonly storedWeightBytes?: number;
  /**
   * Multiples to which an engine pads the hidden size and a GPU's share of the width of an expert, which its kernels need;
   * left out where it pads nothing.
   */
  readonly expertPadding?: { readonly hidden: number; readonly width: number };
  /** Whether a quantised model keeps attention in the precision of activations. */
  readonly keepsAttention: boolean;
  /** 0 for a dense model, otherwise at least 2. */
  readonly experts: number;
  readonly expertsPerToken: number;
  /** 0: as `ffnSize`. */
  readonly expertFfnSize: number;
  /** Width of all shared experts together; 0 for none. */
  readonly sharedExpertFfnSize: number;
  /** s > 0: one MoE layer after every s dense ones. */
  readonly interleaveMoeLayerStep: number;
  /** Width of the dense layers of an interleaved model; 0: as `ffnSize`. */
  readonly denseFfnSize: number;
  /** The first k layers are dense. */
  readonly firstDenseLayers: number;
  /** MLA: width of the compressed KV latent; 0 for ordinary attention. */
  readonly kvLoraRank: number;
  readonly qkRopeHeadDim: number;
  /** MLA: what else its projections are made of, where the file says it. */
  readonly mla?: LatentProjections;
  /** Explicit head size; 0: hiddenSize / heads. */
  readonly headDim: number;
  /** Layers of sliding windows and linear ones; left out where all keep their whole context. */
  readonly hybrid?: HybridLayers;
  /** Empty when the file names none. */
  readonly hiddenAct: string;
  readonly tiedEmbeddings: boolean;
  /** Longest context in tokens after rope scaling; 0 when the file names none. */
  readonly maxModelTokens: number;
}

/** Sizes of the projections of MLA. */
interface LatentProjections {
  /** Width of the compressed queries; 0 where they are not compressed. */
  readonly queryRank: number;
  /** Size per head of the part of a query or key without position, and of a value. */
  readonly plainHeadDim: number;
  readonly valueHeadDim: number;
}

const dtypeBytes: Readonly<Record<string, number>> = {
  float32: 4,
  float16: 2,
  bfloat16: 2,
  int8: 1,
  uint8: 1,
  fp8: 1,
  int4: 1,
  nf4: 1,
};

const expertKeys = [
  'num_experts',
  'moe_num_experts',
  'n_routed_experts',
  'num_local_experts',
  'num_routed_experts',
] as const;

/** Most of any size in a configuration; layers and experts have a lower limit. */
const maxSize = 1e9;
const maxParts = 100_000;

/** Looks a key up in `text_config` first, which multimodal models nest their language model in. */
class Config {
  readonly nodes: readonly SpecNode[];

  constructor(root: SpecNode) {
    const text = root.section('text_config');
    this.nodes = text === undefined ? [root] : [text, root];
  }

  holder(key: string): SpecNode {
    return this.nodes.find((node) => node.keys().includes(key)) ?? this.nodes[0];
  }

  /** The first of `keys` that is present and not 0, or 0. */
  count(...keys: readonly string[]): number {
    for (const key of keys) {
      const value = this.holder(key).optionalInteger(key, { min: 0, max: maxSize });
      if (value !== undefined && value !== 0) return value;
    }
    return 0;
  }

  required(...keys: readonly [string, ...string[]]): number {
    const value = this.count(...keys);
    if (value > 0) return value;
    throw this.error(keys[0], 'is missing or 0', 'Take it from the model card or its config.json');
  }

  text(key: string): string {
    return this.holder(key).text(key);
  }

  error(key: string, problem: string, remedy: string): TierKVError {
    return this.holder(key).error(key, problem, remedy);
  }
}

function activationBytesOf(config: Config): number {
  const dtype = config.text('torch_dtype') || config.text('dtype');
  const bytes = Object.hasOwn(dtypeBytes, dtype) ? dtypeBytes[dtype] : undefined;
  if (bytes === undefined) {
    const problem = dtype === '' ? 'is missing' : `is "${shownPlain(dtype)}"`;
    throw config.error('torch_dtype', problem, `Set it to one of: ${Object.keys(dtypeBytes).join(', ')}`);
  }
  return bytes;
}

function groupBits(quantization: SpecNode): number {
  const groups = quantization.section('config_groups');
  for (const name of groups?.keys().sort() ?? []) {
    const bits = groups!
      .section(name)
      ?.section('weights')
      ?.optionalNumber('num_bits', { min: 0, max: maxBits });
    if (bits !== undefined && bits > 0) return bits;
  }
  return 0;
}

const maxBits = 64;

/** Bits by the naming custom of quantised checkpoints: `w4a16`, `fp8`. 0 when the name says nothing. */
function bitsByName(name: string): number {
  const scheme = /(?:^|[.\-_/])w(\d+)a\d+(?:$|[.\-_])/i.exec(name);
  if (scheme !== null && Number(scheme[1]) > 0 && Number(scheme[1]) <= maxBits) return Number(scheme[1]);
  return /(?:^|[.\-_/])fp8(?:$|[.\-_])/i.test(name) ? 8 : 0;
}

/** Weights that share a scale, unless a file says how many. */
const usualGroup = 128;
/** NVFP4: 16 weights of 4 bits share a scale of 8. */
const nvfp4Bits = 4.5;
/** MXFP4: 32 weights of 4 bits share an exponent of 8. */
const mxfp4Bits = 4.25;

/** Bits of a weight by methods whose name says them. 0 for others. */
function bitsByMethod(quantization: SpecNode): number {
  const method = quantization.text('quant_method').toLowerCase();
  const algorithm = quantization.text('quant_algo').toUpperCase();
  if (method === 'mxfp4') return mxfp4Bits;
  if (algorithm === 'NVFP4') return nvfp4Bits;
  if (algorithm === 'FP8' || ['fbgemm_fp8', 'experts_int8'].includes(method)) return 8;
  if (method !== 'bitsandbytes') return 0;
  const flag = (key: string): boolean =>
    (quantization.flag(`load_in_${key}`) ?? quantization.flag(`_load_in_${key}`)) === true;
  return flag('4bit') ? 4 : flag('8bit') ? 8 : 0;
}

/** Bytes that scales and zero points of groups add to a weight. */
function groupBytes(quantization: SpecNode): number {
  const method = quantization.text('quant_method').toLowerCase();
  if (['gptq', 'awq', 'auto-round', 'auto_round'].includes(method)) {
    const bits = Number(quantization.text('bits', '0'));
    const size = Number(quantization.text('group_size', String(usualGroup)));
    // -1: one group a column, whose scales are nothing beside it
    return bits > 0 && size > 0 ? (2 + bits / 8) / size : 0;
  }
  const format = quantization.text('format');
  if (format.startsWith('nvfp4')) return (nvfp4Bits - 4) / 8;
  if (format === 'pack-quantized') return 2 / usualGroup;
  return method === 'bitsandbytes' && groupedBitsAndBytes(quantization) ? 4 / 64 : 0;
}

/** 4 bits of bitsandbytes: 64 weights share a scale of 32 bits. */
function groupedBitsAndBytes(quantization: SpecNode): boolean {
  return (quantization.flag('load_in_4bit') ?? quantization.flag('_load_in_4bit')) === true;
}

function weightBytesOf(config: Config, name: string, activationBytes: number): number {
  const quantization = config.holder('quantization_config').section('quantization_config');
  if (quantization !== undefined) {
    const bits = Number(quantization.text('bits', '0'));
    if (bits > maxBits) throw quantization.error('bits', `is ${bits}`, `Set it to at most ${maxBits}`);
    if (bits > 0) return bits / 8;
    const method = quantization.text('quant_method').toLowerCase();
    if (method === 'fp8') return 1;
    const ofMethod = bitsByMethod(quantization);
    if (ofMethod > 0) return ofMethod / 8;
    const ofGroup = method === 'compressed-tensors' ? groupBits(quantization) : 0;
    if (ofGroup > 0) return ofGroup / 8;
  }
  const bits = bitsByName(name);
  return bits > 0 ? bits / 8 : activationBytes;
}

/**
 * Bytes that an engine holds of a weight beyond its bits, and the padding of its experts. vLLM's kernels for MXFP4 take
 * hidden sizes in multiples of 256 and widths in multiples of 128 (vllm/model_executor/layers/quantization/mxfp4.py,
 * Marlin).
 */
function storedAs(
  config: Config,
  weightBytes: number,
): Pick<ModelConfig, 'storedWeightBytes' | 'expertPadding'> {
  const quantization = config.holder('quantization_config').section('quantization_config');
  if (quantization === undefined) return {};
  const more = groupBytes(quantization);
  const isMxfp4 = quantization.text('quant_method').toLowerCase() === 'mxfp4';
  return {
    ...(more > 0 ? { storedWeightBytes: weightBytes + more } : {}),
    ...(isMxfp4 ? { expertPadding: { hidden: 256, width: 128 } } : {}),
  };
}

/** Projections of MLA, where the file says what they are made of. */
function latentOf(config: Config): LatentProjections | undefined {
  const plainHeadDim = config.count('qk_nope_head_dim');
  const valueHeadDim = config.count('v_head_dim');
  if (config.count('kv_lora_rank') === 0 || plainHeadDim === 0 || valueHeadDim === 0) return undefined;
  return { queryRank: config.count('q_lora_rank'), plainHeadDim, valueHeadDim };
}

/** Whether quantisation left attention out: `model.layers.*.self_attn` among what was not converted. */
function keepsAttention(config: Config): boolean {
  const left = config
    .holder('quantization_config')
    .section('quantization_config')
    ?.texts('modules_to_not_convert');
  return left?.some((name) => name.includes('.*.self_attn')) ?? false;
}

/** Rope variants that already state the stretched length in `max_position_embeddings`. */
const unscaledRope: readonly string[] = ['su', 'longrope', 'llama3'];

function maxModelTokensOf(config: Config): number {
  const positions = config.count('max_position_embeddings');
  const rope = config.holder('rope_scaling').section('rope_scaling');
  if (rope === undefined || config.text('model_type').includes('gemma3')) return positions;
  const type = rope.text('rope_type') || rope.text('type');
  const factor = rope.number('factor', { above: 0, max: 1e6 }, 1);
  if (unscaledRope.includes(type) || factor <= 1) return positions;
  const original = rope.optionalInteger('original_max_position_embeddings', { min: 1 });
  return Math.trunc((type === 'yarn' ? (original ?? positions) : positions) * factor);
}

/** The name that data files use: lower case, without the organisation before the first slash. */
export function modelFileName(model: string): string {
  checkInputs({ model }, { model: is.text() });
  return model.toLowerCase().slice(model.indexOf('/') + 1);
}

/**
 * Reads the text of a HuggingFace `config.json`.
 * @param file how errors name the text; @param name the model's name, which may tell its weight precision.
 * @param assumePlainAttention whether keys about layers that are not known here change nothing
 * @throws {TierKVError} TKV_INPUT with file, line and key.
 */
export function parseModelConfig(
  text: string,
  file: string,
  name: string,
  assumePlainAttention: boolean = false,
): ModelConfig {
  checkInputs(
    { text, file, name, assumePlainAttention },
    { text: is.text(), file: is.name(), name: is.text(), assumePlainAttention: is.flag() },
  );
  const config = new Config(readYaml(text, file));
  if (!assumePlainAttention && config.holder(assumeKey).flag(assumeKey) !== true) {
    requireKnownLayers(config, countedKinds);
  }
  const heads = config.required('num_attention_heads');
  const layers = config.required('num_hidden_layers');
  if (layers > maxParts)
    throw config.error('num_hidden_layers', `is ${layers}`, `Set it to at most ${maxParts}`);
  const ffnSize = config.required('intermediate_size', 'ffn_hidden_size', 'moe_intermediate_size');
  const experts = expertKeys.map((key) => config.count(key)).find((count) => count >= 2) ?? 0;
  if (experts > maxParts) {
    const key = expertKeys.find((one) => config.count(one) >= 2) ?? expertKeys[0];
    throw config.error(key, `is ${experts}`, `Set it to at most ${maxParts}`);
  }
  const expertsPerToken = config.count('num_experts_per_tok');
  if (experts > 0 && (expertsPerToken < 1 || expertsPerToken > experts)) {
    const problem = `is ${expertsPerToken} for a model of ${experts} experts`;
    throw config.error('num_experts_per_tok', problem, `Set it from 1 to ${experts}`);
  }
  const hiddenSize = config.required('hidden_size');
  const headDim = config.count('head_dim');
  if (headDim === 0 && hiddenSize % heads !== 0) {
    const problem = `is ${heads}, which does not divide hidden_size ${hiddenSize}`;
    throw config.error('num_attention_heads', problem, 'Mend one of them, or set head_dim');
  }
  const expertFfnSize = config.count('moe_intermediate_size');
  const activationBytes = activationBytesOf(config);
  const maxModelTokens = maxModelTokensOf(config);
  const hybrid = readHybridLayers(config, layers, hiddenSize, maxModelTokens);
  const mla = latentOf(config);
  const weightBytes = weightBytesOf(config, name, activationBytes);
  return {
    ...(mla === undefined ? {} : { mla }),
    ...storedAs(config, weightBytes),
    ...(hybrid === undefined ? {} : { hybrid }),
    name: modelFileName(name),
    layers,
    hiddenSize,
    heads,
    kvHeads: config.count('num_key_value_heads', 'num_kv_heads', 'multi_query_group_num') || heads,
    vocabSize: config.required('vocab_size'),
    ffnSize,
    activationBytes,
    weightBytes,
    keepsAttention: keepsAttention(config),
    experts,
    expertsPerToken,
    expertFfnSize,
    sharedExpertFfnSize:
      config.count('shared_expert_intermediate_size') ||
      config.count('n_shared_experts') * (expertFfnSize || ffnSize),
    interleaveMoeLayerStep: config.count('interleave_moe_layer_step'),
    denseFfnSize: config.count('intermediate_size_mlp'),
    firstDenseLayers: config.count('first_k_dense_replace'),
    kvLoraRank: config.count('kv_lora_rank'),
    qkRopeHeadDim: config.count('qk_rope_head_dim'),
    headDim,
    hiddenAct: config.text('hidden_act'),
    tiedEmbeddings: config.holder('tie_word_embeddings').flag('tie_word_embeddings') ?? false,
    maxModelTokens,
  };
}

/** Size of a head as upstream's step times take it, which ignore an explicit `head_dim`. */
export function derivedHeadDim(model: ModelConfig): number {
  return Math.floor(model.hiddenSize / model.heads);
}

/** Bytes of a KV element. */
export function kvElementBytesOf(model: ModelConfig): number {
  return model.kvElementBytes ?? model.activationBytes;
}

/** KV heads on one of `tp` GPUs; from more GPUs than heads on they are repeated. */
export function localKvHeads(model: ModelConfig, tp: number): number {
  return Math.max(1, Math.ceil(model.kvHeads / tp));
}

/** Size of a head as the model has it. */
export function trueHeadDim(model: ModelConfig): number {
  return model.headDim || derivedHeadDim(model);
}

/**
 * Layers with and without experts.
 * @param prefix whether the first `firstDenseLayers` count as dense, as they truly are; upstream's step times
 * leave them MoE.
 */
export function layerSplit(model: ModelConfig, prefix: boolean): { moe: number; dense: number } {
  let moe = 0;
  if (model.experts > 0) {
    const step = model.interleaveMoeLayerStep;
    if (step > 0) moe = Math.floor(model.layers / (step + 1));
    else moe = model.layers - (prefix ? Math.min(model.firstDenseLayers, model.layers) : 0);
  }
  return { moe, dense: model.layers - moe };
}

// Figures of a GPU that latency models use, read from a data file of ours or from one entry of upstream's
// `hardware_config.json`. Every number is checked; an unknown key is an error with the nearest known one.

/** A GPU: peaks, bandwidths and memory. */
export interface Hardware {
  readonly name: string;
  /** Other names under which users ask for it. */
  readonly aliases: readonly string[];
  /** Dense 16-bit tensor peak in TFLOP/s. */
  readonly peakTflops: number;
  /** Dense 8-bit tensor peak in TFLOP/s; 0 when the GPU has no such units. */
  readonly peakTflops8bit: number;
  /** Memory bandwidth in TB/s, 10^12 bytes a second. */
  readonly memoryTbPerS: number;
  readonly memoryGib: number;
  /** GiB that the driver shows a process, somewhat less; 0 where it is not known. */
  readonly visibleGib: number;
  /** Shares of the peak that `roofline` takes as reached in prefill and decode. */
  readonly mfuPrefill: number;
  readonly mfuDecode: number;
  /** Bandwidth to the other GPUs of a node in one direction, GB/s; 0 without a fast link. */
  readonly interconnectGbPerS: number;
  /** Share of that bandwidth which a reduction reaches on this link, for coefficients of another link; 0: theirs. */
  readonly reduceEfficiency: number;
  /** Least time of a reduction on this link, beyond its share in a layer's time on NVLink, µs. */
  readonly reduceLatencyUs: number;
}

/** Range of a data sheet's figure, in any of the units here. */
const figure = { min: 1e-4, max: 1e7 } as const;

function readOurs(node: SpecNode): Hardware {
  const hardware: Hardware = {
    name: node.text('name'),
    aliases: node
      .text('aliases')
      .split(/\s*,\s*/)
      .filter((alias) => alias !== ''),
    peakTflops: node.number('peakTflops', figure, Number.NaN),
    peakTflops8bit: node.number('peakTflops8bit', { min: 0, max: figure.max }, 0),
    memoryTbPerS: node.number('memoryTbPerS', figure, Number.NaN),
    memoryGib: node.number('memoryGib', figure, Number.NaN),
    visibleGib: node.number('visibleGib', { min: 0, max: figure.max }, 0),
    mfuPrefill: node.number('mfuPrefill', { ...figure, max: 1 }, Number.NaN),
    mfuDecode: node.number('mfuDecode', { ...figure, max: 1 }, Number.NaN),
    interconnectGbPerS: node.number('interconnectGbPerS', { min: 0, max: figure.max }, 0),
    reduceEfficiency: node.number('reduceEfficiency', { min: 0, max: 1 }, 0),
    reduceLatencyUs: node.number('reduceLatencyUs', { min: 0, max: 1e6 }, 0),
  };
  node.text('source');
  node.close();
  if (hardware.name === '') throw node.error('name', 'is missing', 'Name the GPU as users will type it');
  for (const [key, value] of Object.entries(hardware)) {
    if (Number.isNaN(value)) throw node.error(key, 'is missing', "Take it from the vendor's data sheet");
  }
  return hardware;
}

/**
 * Reads the text of one GPU file (`data/hardware/*.json`).
 * @throws {TierKVError} TKV_INPUT with file, line and key.
 */
export function parseHardware(text: string, file: string): Hardware {
  checkInputs({ text, file }, { text: is.text(), file: is.name() });
  return readOurs(readYaml(text, file));
}

/**
 * Reads upstream's `hardware_config.json`: GPU name to TFlopsPeak, TFlopsFP8, BwPeakTBs, mfuPrefill,
 * mfuDecode, MemoryGiB.
 * @throws {TierKVError} TKV_INPUT with file, line and key.
 */
export function parseUpstreamHardware(text: string, file: string): Hardware[] {
  checkInputs({ text, file }, { text: is.text(), file: is.name() });
  const root = readYaml(text, file);
  return root.keys().map((name) => {
    const node = root.section(name);
    if (node === undefined) throw root.error(name, 'is empty', 'Give it the figures of the GPU');
    const need = (key: string, max: number = figure.max): number => {
      const value = node.optionalNumber(key, { ...figure, max });
      if (value === undefined) throw node.error(key, 'is missing', "Take it from the vendor's data sheet");
      return value;
    };
    node.text('_comment');
    const hardware: Hardware = {
      name,
      aliases: [],
      peakTflops: need('TFlopsPeak'),
      peakTflops8bit: node.number('TFlopsFP8', { min: 0, max: figure.max }, 0),
      memoryTbPerS: need('BwPeakTBs'),
      memoryGib: need('MemoryGiB'),
      mfuPrefill: need('mfuPrefill', 1),
      mfuDecode: need('mfuDecode', 1),
      interconnectGbPerS: 0,
      visibleGib: 0,
      reduceEfficiency: 0,
      reduceLatencyUs: 0,
    };
    node.close();
    return hardware;
  });
}

/**
 * The one of `names` that `asked` means, ignoring case.
 * @param what the kind of thing, for the message; @param remedy how to add one.
 * @throws {TierKVError} TKV_CONFIG with the nearest name and all names.
 */
export function requireKnownName(
  what: string,
  asked: string,
  names: readonly string[],
  remedy: string,
): string {
  checkInputs(
    { what, asked, names, remedy },
    { what: is.text(), asked: is.text(), names: is.list(is.text()), remedy: is.text() },
  );
  const found = names.find((name) => name.toLowerCase() === asked.toLowerCase());
  if (found !== undefined) return found;
  const near = nearestName(asked, names);
  const hint = near === undefined ? '' : ` Did you mean ${near}?`;
  throw new TierKVError(
    'TKV_CONFIG',
    `unknown ${what} "${shownPlain(asked)}".${hint} Known: ${[...names].sort().join(', ')}. ${remedy}`,
    { field: what },
  );
}
