/**
 * Which layers of a model keep less than their whole context, by its `config.json`: those of a sliding window keep its last
 * tokens, linear ones (Mamba, gated delta rule) a state of one size.
 */

import type { SpecNode } from '../description/fields.ts';

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

/** Keys of a configuration that are read. */
interface LayerKeys {
  count(...keys: readonly string[]): number;
  text(key: string): string;
  holder(key: string): SpecNode;
}

const windowKinds: readonly string[] = ['sliding_attention', 'sliding_window_attention', 'sliding'];
const linearKinds: readonly string[] = ['linear_attention', 'mamba', 'mamba2', 'recurrent'];
/** Kinds in `layer_types` that are counted apart from full attention. */
export const countedKinds: readonly string[] = [...windowKinds, ...linearKinds];

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
