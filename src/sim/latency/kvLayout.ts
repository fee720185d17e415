/**
 * What layers of a model keep of a context. Layers of full attention keep all of it, those of a sliding window its last
 * tokens, linear ones (Mamba, gated delta rule) a state of one size. Blocks are shared out as vLLM's hybrid KV cache
 * manager does it (vllm/v1/core/kv_cache_utils.py, `_get_kv_cache_groups_uniform_page_size`): layers of a kind are dealt to
 * groups of equally many layers, each group has its own table of blocks, and all take blocks of one size from one pool.
 *
 * Not modelled: a prefix counts as found where the layers of full attention have it, and the window before its end, or the
 * state, is taken to be there too. Attention in chunks (Llama 4) keeps all tokens, as vLLM does unless told otherwise.
 */

import { requireInteger } from '../../runtime/errors.ts';
import type { SpecNode } from '../description/fields.ts';
import type { ModelConfig } from './modelConfig.ts';

/** Layers that keep less than their whole context. */
export interface HybridLayers {
  /** Tokens that a layer of a sliding window attends to, itself included; 0 without such layers. */
  readonly windowTokens: number;
  readonly windowLayers: number;
  /** Whether an engine keeps the whole context for them all the same, as vLLM without its hybrid manager. */
  readonly keepsWhole?: boolean;
  readonly linearLayers: number;
  /** Elements that one linear layer keeps of a sequence, over all GPUs. */
  readonly stateElements: number;
  /** Columns of the projections into a linear layer, and rows of the one out of it. */
  readonly linearInputs: number;
  readonly linearOutputs: number;
}

/** What is read of a configuration. */
interface LayerKeys {
  count(...keys: readonly string[]): number;
  text(key: string): string;
  holder(key: string): SpecNode;
}

const windowKinds: readonly string[] = ['sliding_attention', 'sliding_window_attention', 'sliding'];
const linearKinds: readonly string[] = ['linear_attention', 'mamba', 'mamba2', 'recurrent'];

/** Which layers attend to a window, from `layer_types` or from what stands for it in older files. */
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

/** State and projections of a linear layer. */
function linearOf(
  config: LayerKeys,
  hiddenSize: number,
): Pick<HybridLayers, 'stateElements' | 'linearInputs' | 'linearOutputs'> {
  const valueHeads = config.count('linear_num_value_heads');
  if (valueHeads > 0) {
    // gated delta rule (Qwen3-Next): a matrix a head, and the last inputs of a convolution over q, k and v
    const keyDim = config.count('linear_key_head_dim');
    const valueDim = config.count('linear_value_head_dim');
    const keys = config.count('linear_num_key_heads') * keyDim;
    const values = valueHeads * valueDim;
    const convolution = (2 * keys + values) * Math.max(0, config.count('linear_conv_kernel_dim') - 1);
    return {
      stateElements: convolution + valueHeads * keyDim * valueDim,
      linearInputs: 2 * keys + 2 * values + 2 * valueHeads,
      linearOutputs: values,
    };
  }
  // Mamba (Jamba, Bamba): a state of d_state numbers for each of the inner width's channels
  const inner = (config.count('mamba_expand') || 2) * hiddenSize;
  const state = config.count('mamba_d_state', 'ssm_state_size', 'state_size') || 16;
  const kernel = config.count('mamba_d_conv', 'conv_kernel') || 4;
  return { stateElements: inner * (kernel - 1 + state), linearInputs: 2 * inner, linearOutputs: inner };
}

/**
 * The layers of a configuration that keep less than their context; undefined where none does, and where all attend to a
 * window: then every layer counts as one of full attention, and the configuration keeps too much.
 * @param positions longest context, 0 where it is not said
 */
export function readHybridLayers(
  config: LayerKeys,
  layers: number,
  hiddenSize: number,
  positions: number,
): HybridLayers | undefined {
  const types = config.holder('layer_types').texts('layer_types').slice(0, layers);
  const interval = config.count('full_attention_interval');
  const period = config.count('attn_layer_period');
  let windowLayers = 0;
  let linearLayers = 0;
  if (types.length > 0) {
    linearLayers = types.filter((type) => linearKinds.includes(type)).length;
    windowLayers =
      config.count('sliding_window') > 0 ? types.filter((type) => windowKinds.includes(type)).length : 0;
  } else if (interval > 1) linearLayers = layers - Math.floor(layers / interval);
  else if (period > 1) {
    const offset = config.count('attn_layer_offset');
    linearLayers = layers - Math.ceil(Math.max(0, layers - offset) / period);
  } else windowLayers = windowLayersOf(config, layers, positions);
  if (windowLayers + linearLayers === 0 || windowLayers === layers) return undefined;
  const none = { stateElements: 0, linearInputs: 0, linearOutputs: 0 };
  return {
    windowTokens: windowLayers > 0 ? config.count('sliding_window') : 0,
    windowLayers,
    linearLayers,
    ...(linearLayers > 0 ? linearOf(config, hiddenSize) : none),
  };
}

/** How an engine shares KV memory out among the layers of a hybrid model. */
export interface KvLayout {
  /** Layers of a group, and groups of each kind. */
  readonly groupLayers: number;
  readonly fullGroups: number;
  readonly windowGroups: number;
  readonly linearGroups: number;
  /** Layers that only fill a group up: their share of blocks is never used. */
  readonly paddingLayers: number;
}

/** Where no kind has this many times as many layers as the rarest, groups are as large as the most frequent kind. */
const nearlyAlike = 1.5;

/** Groups of the layers, one of all layers where all keep their context. */
export function kvLayout(model: ModelConfig): KvLayout {
  const { windowLayers: windows = 0, linearLayers = 0, keepsWhole = false } = model.hybrid ?? {};
  const windowLayers = keepsWhole ? 0 : windows;
  const full = model.layers - windowLayers - linearLayers;
  const kinds = [full, windowLayers, linearLayers].filter((count) => count > 0);
  const least = Math.min(...kinds);
  const most = Math.max(...kinds);
  const groupLayers = most < nearlyAlike * least ? most : least;
  const groups = (count: number): number => Math.ceil(count / groupLayers);
  const [fullGroups, windowGroups, linearGroups] = [groups(full), groups(windowLayers), groups(linearLayers)];
  return {
    groupLayers,
    fullGroups,
    windowGroups,
    linearGroups,
    paddingLayers: (fullGroups + windowGroups + linearGroups) * groupLayers - model.layers,
  };
}

/** What a sequence holds beside the blocks of its tokens, in blocks of as many tokens in all groups of full attention. */
export interface SideBlocks {
  /** Tokens of the window, and groups whose layers attend to it. */
  readonly windowTokens: number;
  readonly windowGroups: number;
  /** Blocks for the states of linear layers, from the first token on. */
  readonly stateBlocks: number;
  /** Groups of full attention: so many blocks of the engine's pool are one block here. */
  readonly fullGroups: number;
}

/**
 * @param layerTokenBytes KV of a token in one layer, on one GPU
 * @param tp GPUs that share a state out
 * @returns undefined for a model whose layers all keep their context
 */
export function sideBlocksOf(
  model: ModelConfig,
  tp: number,
  blockTokens: number,
  layerTokenBytes: number,
): SideBlocks | undefined {
  if (model.hybrid === undefined) return undefined;
  const { windowTokens, stateElements } = model.hybrid;
  const { windowGroups, linearGroups, fullGroups } = kvLayout(model);
  const stateBytes = (stateElements * model.activationBytes) / tp;
  const statePages = Math.ceil(
    stateBytes / (layerTokenBytes * requireInteger('blockTokens', blockTokens, 1)),
  );
  return {
    windowTokens,
    windowGroups,
    stateBlocks: Math.ceil((linearGroups * statePages) / fullGroups),
    fullGroups,
  };
}

/**
 * Blocks that a sequence of `blocks` blocks holds beside them: of the window its last tokens and what the step computes,
 * whose blocks are taken before those that leave the window are given back.
 * @param newBlocks of them, those that the step opens
 */
export function sideBlockCount(
  { windowTokens, windowGroups, stateBlocks, fullGroups }: SideBlocks,
  blocks: number,
  newBlocks: number,
  blockTokens: number,
): number {
  if (blocks === 0) return 0;
  const window =
    windowGroups === 0 ? 0 : Math.ceil((windowTokens - 1) / blockTokens) + Math.max(1, newBlocks);
  return Math.ceil((windowGroups * Math.min(blocks, window)) / fullGroups) + stateBlocks;
}
