/**
 * Which layers of a model attend, how far, and with how many heads of which size, by everything that its `config.json` says:
 * a list of kinds, a pattern of letters or numbers, indices, periods, a list of blocks. Layers of a sliding window keep its last
 * tokens, linear ones (Mamba, gated delta rule, short convolutions) a state of one size, idle ones nothing, and sharing ones attend to
 * what an earlier layer keeps. Sizes are as vLLM 0.33 counts them (v1/kv_cache_interface.py, layers/mamba/mamba_utils.py).
 */

import type { SpecNode } from '../description/fields.ts';
import { type LayerKind, layersFault, readLayerKinds } from './layerKeys.ts';

/** Layers that keep less than their whole context. */
export interface HybridLayers {
  /** Tokens that a layer of a sliding window attends to, itself included; 0 without such layers. */
  readonly windowTokens: number;
  /** Layers of a window that keep keys and values. */
  readonly windowLayers: number;
  /** Whether an engine keeps the whole context for them all the same, as vLLM without its hybrid manager. */
  readonly keepsWhole?: boolean;
  /** KV heads of a layer of a window, and the sizes of its keys and values, where layers of full attention have others. */
  readonly windowHeads?: HeadSizes;
  readonly linearLayers: number;
  /** Elements that one linear layer keeps of a sequence, over all GPUs, in the size of activations. */
  readonly stateElements: number;
  /** Columns of the projections into a linear layer, and rows of the one out of it. */
  readonly linearInputs: number;
  readonly linearOutputs: number;
  /** Layers without attention and without state: feed-forward blocks that count as layers, and blocks that were taken out. */
  readonly idleLayers?: number;
  /** Layers that attend to the keys and values of an earlier one, over the whole context and over a window. */
  readonly sharingLayers?: number;
  readonly sharingWindowLayers?: number;
}

/** KV heads of a layer, over all GPUs, and elements of a key and a value of one head. */
interface HeadSizes {
  readonly kvHeads: number;
  readonly headDim: number;
  readonly valueDim: number;
}

/** Keys of a configuration that are read. */
interface LayerKeys {
  readonly nodes: readonly SpecNode[];
  count(...keys: readonly string[]): number;
  text(key: string): string;
  holder(key: string): SpecNode;
}

const dtypeSizes: Readonly<Record<string, number>> = { float32: 4, float16: 2, bfloat16: 2 };

/** Which layers attend to a window, from what stands for `layer_types` in older files. */
function windowLayersOf(config: LayerKeys, layers: number, positions: number): number {
  const windowTokens = config.count('sliding_window');
  if (windowTokens === 0 || (positions > 0 && windowTokens >= positions)) return 0;
  if (config.holder('use_sliding_window').flag('use_sliding_window') === false) return 0;
  const type = config.text('model_type');
  const pattern =
    config.count('sliding_window_pattern') || (type.startsWith('gemma3') ? 6 : type === 'gemma2' ? 2 : 0);
  // the last layer of each pattern attends to all
  if (pattern > 1) return layers - Math.floor(layers / pattern);
  // the first layers, where a file says how many, attend to all
  const first = config.count('max_window_layers');
  return first > 0 ? Math.max(0, layers - first) : layers;
}

type LinearSizes = Pick<HybridLayers, 'stateElements' | 'linearInputs' | 'linearOutputs'>;

/** State and projections of a linear layer. @param activationBytes of an element of its convolution */
function linearOf(config: LayerKeys, hiddenSize: number, activationBytes: number): LinearSizes {
  // states of 32 bits count as elements of the activations' size
  const isNemotron = config.text('model_type') === 'nemotron_h';
  const dtype =
    config.text('mamba_ssm_cache_dtype') || config.text('mamba_ssm_dtype') || (isNemotron ? 'float32' : '');
  const wide = (dtypeSizes[dtype] ?? activationBytes) / activationBytes;
  const valueHeads = config.count('linear_num_value_heads');
  if (valueHeads > 0) {
    // gated delta rule (Qwen3-Next): a matrix a head, and the last inputs of a convolution over q, k and v
    const keyDim = config.count('linear_key_head_dim');
    const valueDim = config.count('linear_value_head_dim');
    const keys = config.count('linear_num_key_heads') * keyDim;
    const values = valueHeads * valueDim;
    const convolution = (2 * keys + values) * Math.max(0, config.count('linear_conv_kernel_dim') - 1);
    return {
      stateElements: convolution + valueHeads * keyDim * valueDim * wide,
      linearInputs: 2 * keys + 2 * values + 2 * valueHeads,
      linearOutputs: values,
    };
  }
  const kda = config.holder('linear_attn_config').section('linear_attn_config');
  if (kda !== undefined) {
    // Kimi delta attention: a matrix a head in 32 bits, and the last inputs of convolutions over q, k and v
    const heads = kda.integer('num_heads', { min: 1 }, 1);
    const dim = kda.integer('head_dim', { min: 1 }, 1);
    const kernel = kda.integer('short_conv_kernel_size', { min: 1 }, 4);
    return {
      stateElements: 3 * heads * dim * (kernel - 1) + heads * dim * dim * (4 / activationBytes),
      linearInputs: 5 * heads * dim,
      linearOutputs: heads * dim,
    };
  }
  const short = config.count('conv_L_cache');
  if (short > 0) {
    // LFM2: the last inputs of a convolution over the hidden size
    return {
      stateElements: hiddenSize * (short - 1),
      linearInputs: 3 * hiddenSize,
      linearOutputs: hiddenSize,
    };
  }
  if (config.holder('attn_type_list').says('attn_type_list')) {
    // MiniMax-Text-01: a matrix a head
    const heads = config.count('num_attention_heads');
    const dim = config.count('head_dim') || hiddenSize / heads;
    return { stateElements: heads * dim * dim, linearInputs: 4 * heads * dim, linearOutputs: heads * dim };
  }
  const state = config.count('mamba_d_state', 'ssm_state_size', 'state_size') || 16;
  const kernel = config.count('mamba_d_conv', 'conv_kernel') || 4;
  const heads = config.count('mamba_n_heads', 'mamba_num_heads');
  const headDim = config.count('mamba_d_head', 'mamba_head_dim');
  if (heads > 0 && headDim > 0) {
    // Mamba 2: a matrix a head, and the last inputs of a convolution over channels and groups
    const groups = config.count('mamba_n_groups', 'n_groups') || 1;
    const inner = heads * headDim;
    return {
      stateElements: (inner + 2 * groups * state) * (kernel - 1) + inner * state * wide,
      linearInputs: 2 * inner + 2 * groups * state + heads,
      linearOutputs: inner,
    };
  }
  // Mamba (Jamba): a state of d_state numbers for each of the inner width's channels
  const inner = (config.count('mamba_expand') || 2) * hiddenSize;
  return {
    stateElements: inner * (kernel - 1 + state * wide),
    linearInputs: 2 * inner,
    linearOutputs: inner,
  };
}

/** Kinds of all layers where a file tells them by a window, a period or an interval. */
function kindsByPeriod(config: LayerKeys, layers: number, positions: number): readonly LayerKind[] {
  const interval = config.count('full_attention_interval');
  const period = config.count('attn_layer_period');
  const all = Array.from({ length: layers }, (_, i) => i);
  if (interval > 1) return all.map((i) => ((i + 1) % interval === 0 ? 'full' : 'linear'));
  if (period > 1) {
    const offset = config.count('attn_layer_offset');
    return all.map((i) => (i % period === offset ? 'full' : 'linear'));
  }
  const windows = windowLayersOf(config, layers, positions);
  return all.map((i) => (i < layers - windows ? 'full' : 'window'));
}

/** Heads of layers of a window, where the file gives them others. */
function windowHeadsOf(config: LayerKeys, full: HeadSizes): Pick<HybridLayers, 'windowHeads'> {
  const isOther = [
    'swa_num_key_value_heads',
    'swa_head_dim',
    'global_head_dim',
    'num_global_key_value_heads',
  ];
  if (isOther.every((key) => config.count(key) === 0)) return {};
  if (config.count('swa_num_key_value_heads', 'swa_head_dim') > 0) {
    const headDim = config.count('swa_head_dim') || full.headDim;
    return {
      windowHeads: {
        kvHeads: config.count('swa_num_key_value_heads') || full.kvHeads,
        headDim,
        valueDim:
          config.count('swa_v_head_dim') || (config.count('swa_head_dim') > 0 ? headDim : full.valueDim),
      },
    };
  }
  // Gemma 4: the usual keys are of layers of a window, and those of full attention have keys of their own
  const headDim = config.count('head_dim') || full.headDim;
  return {
    windowHeads: { kvHeads: config.count('num_key_value_heads') || full.kvHeads, headDim, valueDim: headDim },
  };
}

/** Keys about layers of one kind. */
const ofKinds = [
  ...['swa_num_key_value_heads', 'swa_head_dim', 'global_head_dim', 'num_global_key_value_heads'],
  'num_kv_shared_layers',
] as const;

/**
 * The layers of a configuration that keep less than their context; undefined where none does, and where all attend to a
 * window: then every layer counts as one of full attention, and the configuration keeps too much.
 * @param positions longest context, 0 where it is not said
 * @param full heads of a layer of full attention
 * @param vouched whether a pattern that is not understood changes nothing
 */
export function readHybridLayers(
  config: LayerKeys,
  layers: number,
  sizes: { readonly hiddenSize: number; readonly positions: number; readonly activationBytes: number },
  full: HeadSizes,
  vouched: boolean,
): HybridLayers | undefined {
  const told = readLayerKinds(config, layers, vouched);
  // heads by kind, and sharing, say nothing without the kinds
  const byKind = told === undefined && !vouched ? ofKinds.find((key) => config.count(key) > 0) : undefined;
  if (byKind !== undefined) {
    throw layersFault(config.holder(byKind), byKind, 'speaks of kinds of layers, and no key here gives them');
  }
  const windowTokens = config.count('sliding_window', 'sliding_window_size');
  const given = told ?? kindsByPeriod(config, layers, sizes.positions);
  // without a layer of full attention, those of a window count as such, and the configuration keeps too much
  const isNone = windowTokens === 0 || !given.includes('full');
  const kinds = given.map((kind) => (kind === 'window' && isNone ? 'full' : kind));
  if (!kinds.includes('full')) {
    const problem = 'has no layer of attention, and is not known here';
    throw config.nodes[0].error('architectures', problem, 'Name a model with one');
  }
  const said = config.count('num_kv_shared_layers');
  const shared = vouched && (told === undefined || said >= layers) ? 0 : said;
  if (shared >= layers) {
    const problem = `is ${shared} of ${layers} layers`;
    throw layersFault(config.holder('num_kv_shared_layers'), 'num_kv_shared_layers', problem);
  }
  const own = kinds.slice(0, layers - shared);
  const sharing = kinds.slice(layers - shared);
  const count = (of: readonly LayerKind[], kind: LayerKind): number =>
    of.filter((each) => each === kind).length;
  const [windowLayers, linearLayers] = [count(own, 'window'), count(own, 'linear')];
  const idleLayers = count(kinds, 'idle');
  if (windowLayers + linearLayers + idleLayers + shared === 0) return undefined;
  const none: LinearSizes = { stateElements: 0, linearInputs: 0, linearOutputs: 0 };
  return {
    windowTokens: windowLayers > 0 ? windowTokens : 0,
    windowLayers,
    ...(windowLayers > 0 ? windowHeadsOf(config, full) : {}),
    linearLayers,
    ...(linearLayers > 0 ? linearOf(config, sizes.hiddenSize, sizes.activationBytes) : none),
    ...(idleLayers > 0 ? { idleLayers } : {}),
    ...(count(sharing, 'full') > 0 ? { sharingLayers: count(sharing, 'full') } : {}),
    ...(count(sharing, 'window') > 0 ? { sharingWindowLayers: count(sharing, 'window') } : {}),
  };
}

/** Layers that attend to their whole context, and those of them that keep it. */
export function fullLayersOf(model: { readonly layers: number; readonly hybrid?: HybridLayers }): {
  readonly attending: number;
  readonly keeping: number;
} {
  const {
    windowLayers = 0,
    linearLayers = 0,
    idleLayers = 0,
    sharingLayers = 0,
    sharingWindowLayers = 0,
  } = model.hybrid ?? {};
  const attending = model.layers - windowLayers - linearLayers - idleLayers - sharingWindowLayers;
  return { attending, keeping: attending - sharingLayers };
}
