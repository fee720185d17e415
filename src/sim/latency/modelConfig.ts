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
import { type HybridLayers, readHybridLayers } from './hybridLayers.ts';
import { assumeKey, blockHeads, layersFault, requireKnownLayers } from './layerKeys.ts';
import { type Quantisation, readQuantisation } from './quantisation.ts';

// Configuration of an LLM. Several families spell one thing in several ways. Keys that no model of time needs are
// ignored, but for keys that may change KV (`layerKeys.ts`).

/** Architecture of one model. Sizes are in elements; 0 stands for "absent" only where a field says so. */
export interface ModelConfig extends Quantisation {
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
  /** Size of the value of a head, where keys have another. */
  readonly valueDim?: number;
  /** The part that finds the tokens that sparse attention reads, where it does. */
  readonly indexer?: Indexer;
  /** Feed-forward blocks with and without experts, where they are not one a layer. */
  readonly blocks?: { readonly moe: number; readonly dense: number };
  /** Layers of sliding windows and linear ones; left out where all keep their whole context. */
  readonly hybrid?: HybridLayers;
  /** Empty when the file names none. */
  readonly hiddenAct: string;
  readonly tiedEmbeddings: boolean;
  /** Longest context in tokens after rope scaling; 0 when the file names none. */
  readonly maxModelTokens: number;
}

/** The indexer of sparse attention (DeepSeek V3.2): an own key a token, in 8 bits with a scale of 32 bits for 128 elements. */
interface Indexer {
  /** Layers that have one; others take what an earlier one found. */
  readonly layers: number;
  /** Bytes of a token's key in such a layer, on each GPU. */
  readonly tokenBytes: number;
  /** Most tokens that a query attends to. */
  readonly topk: number;
  /** Heads of its queries, and the size of each. */
  readonly heads: number;
  readonly headDim: number;
}

/** Sizes of the projections of MLA. */
interface LatentProjections {
  /** Width of the compressed queries; 0 where they are not compressed. */
  readonly queryRank: number;
  /** Size per head of the part of a query or key without position, and of a value. */
  readonly plainHeadDim: number;
  readonly valueHeadDim: number;
}

/** Bytes that an engine computes in: vLLM takes 16 bits for a model of 32, and where a file says none. */
const dtypeBytes: Readonly<Record<string, number>> = {
  '': 2,
  float32: 2,
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

/** Sections that multimodal models nest their language model in. */
const textSections = ['text_config', 'llm_config', 'language_config'] as const;

/** Looks a key up in the section of the language model first. */
class Config {
  readonly nodes: readonly SpecNode[];

  constructor(root: SpecNode) {
    const text = textSections.map((key) => root.section(key)).find((section) => section !== undefined);
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
    const known = Object.keys(dtypeBytes).filter((name) => name !== '');
    throw config.error('torch_dtype', `is "${shownPlain(dtype)}"`, `Set it to one of: ${known.join(', ')}`);
  }
  return bytes;
}

/** Projections of MLA, where the file says what they are made of. */
function latentOf(config: Config): LatentProjections | undefined {
  const plainHeadDim = config.count('qk_nope_head_dim');
  const valueHeadDim = config.count('v_head_dim');
  if (config.count('kv_lora_rank') === 0 || plainHeadDim === 0 || valueHeadDim === 0) return undefined;
  return { queryRank: config.count('q_lora_rank'), plainHeadDim, valueHeadDim };
}

/** The indexer of sparse attention, where the file has one. */
function indexerOf(config: Config, layers: number, vouched: boolean): Indexer | undefined {
  const topk = config.count('index_topk');
  if (topk === 0) return undefined;
  const headDim = config.count('index_head_dim');
  if (headDim === 0 || config.count('kv_lora_rank') === 0) {
    if (vouched) return undefined;
    const key = headDim === 0 ? 'index_topk' : 'index_head_dim';
    throw layersFault(config.holder('index_topk'), key, 'speaks of an indexer, and its sizes are not here');
  }
  const types = config.holder('indexer_types').texts('indexer_types').slice(0, layers);
  const pattern = config.text('index_topk_pattern').slice(0, layers);
  const every = config.count('index_topk_freq') || 1;
  const offset = config.count('index_skip_topk_offset') || 2;
  const indexes = (layer: number): boolean => {
    if (types.length > 0) return types[layer] === 'full';
    if (pattern !== '') return pattern[layer] !== 'S';
    return Math.max(layer - offset + 1, 0) % every === 0;
  };
  const counted = Array.from({ length: layers }, (_, i) => i).filter(indexes).length;
  return {
    layers: counted,
    tokenBytes: headDim + Math.floor(headDim / 128) * 4,
    topk,
    heads: config.count('index_n_heads'),
    headDim,
  };
}

/** Feed-forward blocks of a model that says which layers have experts, or counts blocks as layers. */
function blocksOf(config: Config, layers: number, experts: number): ModelConfig['blocks'] {
  const pattern = config.text('hybrid_override_pattern').slice(0, layers);
  const block = config.holder('layers_block_type').texts('layers_block_type').slice(0, layers);
  const letters = pattern === '' ? block.map((name) => ({ moe: 'E', mlp: '-' })[name] ?? '') : [...pattern];
  const count = (letter: string): number => letters.filter((each) => each === letter).length;
  if (letters.length > 0) return { moe: count('E'), dense: count('-') };
  if (experts === 0) return undefined;
  const frequency = config.holder('moe_layer_freq').integers('moe_layer_freq').slice(0, layers);
  const types = config.holder('mlp_layer_types').texts('mlp_layer_types').slice(0, layers);
  const moe = [...frequency.map((each) => each > 0), ...types.map((each) => each === 'sparse')];
  if (moe.length !== layers) return undefined;
  const sparse = moe.filter((each) => each).length;
  return { moe: sparse, dense: layers - sparse };
}

/** Width of the feed-forward blocks of `block_configs`, on average over all layers: each a multiple of 256 of 2/3 of a share. */
function blockWidth(config: Config, layers: number, hiddenSize: number): number {
  const blocks = config.nodes.flatMap((node) =>
    node.keys().includes('block_configs') ? node.list('block_configs') : [],
  );
  const widths = blocks.slice(0, layers).map((block) => {
    const share = block.section('ffn')?.optionalNumber('ffn_mult', { min: 0, max: 1e3 }) ?? 0;
    return Math.ceil(Math.floor((2 * share * hiddenSize) / 3) / 256) * 256;
  });
  return Math.round(widths.reduce((sum, width) => sum + width, 0) / layers);
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

/** A file that stands beside a `config.json` and says more of the model. */
interface SideFile {
  readonly text: string;
  /** How errors name it. */
  readonly file: string;
}

/** The section of a quantisation: the model's own, else the one in the file beside it, as vLLM takes them. */
function quantisationNode(config: Config, side: SideFile | undefined): SpecNode | undefined {
  const own = config.holder('quantization_config').section('quantization_config');
  if (own !== undefined || side === undefined) return own;
  const root = readYaml(side.text, side.file);
  return root.section('quantization') ?? root;
}

/**
 * Reads the text of a HuggingFace `config.json`.
 * @param file how errors name the text; @param name the model's name, which may tell its weight precision.
 * @param assumePlainAttention whether keys about layers that are not known here change nothing
 * @param side `hf_quant_config.json` where one lies beside it, which ModelOpt writes
 * @throws {TierKVError} TKV_INPUT with file, line and key.
 */
export function parseModelConfig(
  text: string,
  file: string,
  name: string,
  assumePlainAttention: boolean = false,
  side?: SideFile,
): ModelConfig {
  checkInputs(
    { text, file, name, assumePlainAttention, side },
    {
      text: is.text(),
      file: is.name(),
      name: is.text(),
      assumePlainAttention: is.flag(),
      side: is.optional(is.fields({ text: is.text(), file: is.name() })),
    },
  );
  const config = new Config(readYaml(text, file));
  const vouched = assumePlainAttention || config.holder(assumeKey).flag(assumeKey) === true;
  if (!vouched) requireKnownLayers(config);
  const heads = config.required('num_attention_heads');
  const layers =
    config.count('num_hidden_layers') ||
    config.holder('layers_block_type').texts('layers_block_type').length ||
    config.required('num_hidden_layers');
  if (layers > maxParts)
    throw config.error('num_hidden_layers', `is ${layers}`, `Set it to at most ${maxParts}`);
  const hiddenSize = config.required('hidden_size');
  const blockFfn = blockWidth(config, layers, hiddenSize);
  const ffnSize =
    blockFfn || config.required('intermediate_size', 'ffn_hidden_size', 'moe_intermediate_size');
  const experts = expertKeys.map((key) => config.count(key)).find((count) => count >= 2) ?? 0;
  if (experts > maxParts) {
    const key = expertKeys.find((one) => config.count(one) >= 2) ?? expertKeys[0];
    throw config.error(key, `is ${experts}`, `Set it to at most ${maxParts}`);
  }
  const expertsPerToken = config.count(
    'num_experts_per_tok',
    'num_experts_per_token',
    'experts_per_token',
    'top_k_experts',
    'moe_k',
  );
  if (experts > 0 && (expertsPerToken < 1 || expertsPerToken > experts)) {
    const problem = `is ${expertsPerToken} for a model of ${experts} experts`;
    throw config.error('num_experts_per_tok', problem, `Set it from 1 to ${experts}`);
  }
  const kvLoraRank = config.count('kv_lora_rank');
  // Gemma 4 gives layers of full attention a size of their own
  const isMixed = config.holder('layer_types').texts('layer_types').length > 0;
  const headDim =
    (isMixed ? config.count('global_head_dim') : 0) || config.count('head_dim', 'attention_head_dim');
  if (headDim === 0 && kvLoraRank === 0 && hiddenSize % heads !== 0) {
    const problem = `is ${heads}, which does not divide hidden_size ${hiddenSize}`;
    throw config.error('num_attention_heads', problem, 'Mend one of them, or set head_dim');
  }
  const isK = config.holder('attention_k_eq_v').flag('attention_k_eq_v') === true;
  const isMulti = config.holder('multi_query').flag('multi_query') === true;
  const kvHeads =
    (isK ? config.count('num_global_key_value_heads') : 0) ||
    config.count('num_key_value_heads', 'num_kv_heads', 'multi_query_group_num') ||
    (blockHeads(config, heads) ?? (isMulti ? 1 : heads));
  const expertFfnSize = config.count('moe_intermediate_size');
  const activationBytes = activationBytesOf(config);
  const maxModelTokens = maxModelTokensOf(config);
  const valueDim = kvLoraRank > 0 ? 0 : config.count('v_head_dim');
  const keyDim = headDim || Math.floor(hiddenSize / heads);
  const hybrid = readHybridLayers(
    config,
    layers,
    { hiddenSize, positions: maxModelTokens, activationBytes },
    { kvHeads, headDim: keyDim, valueDim: valueDim || keyDim },
    vouched,
  );
  const mla = latentOf(config);
  const indexer = indexerOf(config, layers, vouched);
  const blocks = blocksOf(config, layers, experts);
  return {
    ...(mla === undefined ? {} : { mla }),
    ...readQuantisation(quantisationNode(config, side), name, layers, activationBytes),
    ...(hybrid === undefined ? {} : { hybrid }),
    ...(indexer === undefined ? {} : { indexer }),
    ...(blocks === undefined ? {} : { blocks }),
    ...(valueDim === 0 || valueDim === keyDim ? {} : { valueDim }),
    name: modelFileName(name),
    layers,
    hiddenSize,
    heads,
    kvHeads,
    vocabSize: config.required('vocab_size'),
    ffnSize,
    activationBytes,
    experts,
    expertsPerToken,
    expertFfnSize,
    sharedExpertFfnSize:
      config.count(
        'shared_expert_intermediate_size',
        'moe_shared_expert_intermediate_size',
        'share_expert_dim',
      ) || config.count('n_shared_experts', 'num_shared_experts') * (expertFfnSize || ffnSize),
    interleaveMoeLayerStep: config.count('interleave_moe_layer_step'),
    denseFfnSize: config.count('intermediate_size_mlp', 'dense_intermediate_size'),
    firstDenseLayers: config.count('first_k_dense_replace'),
    kvLoraRank,
    qkRopeHeadDim: config.count('qk_rope_head_dim'),
    headDim,
    hiddenAct: config.text('hidden_act') || config.text('mlp_hidden_act'),
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

/** Elements of a token's key and value in one layer of full attention, or of a window where `window`, on one of `tp` GPUs. */
export function kvElements(model: ModelConfig, tp: number, window: boolean = false): number {
  const own = window ? model.hybrid?.windowHeads : undefined;
  if (own !== undefined) return Math.max(1, Math.ceil(own.kvHeads / tp)) * (own.headDim + own.valueDim);
  return localKvHeads(model, tp) * (trueHeadDim(model) + (model.valueDim ?? trueHeadDim(model)));
}

/** Size of a head as the model has it. */
export function trueHeadDim(model: ModelConfig): number {
  return model.headDim || derivedHeadDim(model);
}

/**
 * Layers with and without experts.
 * @param prefix whether the first `firstDenseLayers` count as dense and blocks as the file lists them, as they truly are; upstream's step
 * times leave them MoE.
 */
export function layerSplit(model: ModelConfig, prefix: boolean): { moe: number; dense: number } {
  if (prefix && model.blocks !== undefined) return model.blocks;
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
