/**
 * Keys of a `config.json` that speak of layers and attention: keys that give each layer its kind, and keys that this reader does
 * not know. A key that is not known may give each token other bytes of KV, so the model is refused with the key's name unless its user
 * says that all layers attend plainly. Keys that speak of anything else are not looked at.
 */

import type { Said, TierKVError } from '../../runtime/errors.ts';
import type { SpecNode } from '../description/fields.ts';
import { shownPlain } from '../workload/traceLines.ts';

/** Words in names of keys about layers, attention and what an engine keeps of a sequence. */
const speaksOfLayers =
  /layer|attn|attention|window|sliding|swa|mamba|ssm|conv|recurr|rwkv|linear|state|compress|indexer|index_|kv|key_value|latent|mla|head|block|hybrid|chunk|cache|share|sparse|lightning|delta|memory|global|local|pattern|interval|period|ratio|multi_query/i;

/** Keys that are read, here and in `modelConfig.ts` and `hybridLayers.ts`. */
const read: readonly string[] = [
  'attn_layer_offset attn_layer_period conv_kernel first_k_dense_replace full_attention_interval head_dim',
  'interleave_moe_layer_step kv_lora_rank layer_types linear_conv_kernel_dim linear_key_head_dim linear_num_key_heads',
  'linear_num_value_heads linear_value_head_dim mamba_d_conv mamba_d_state mamba_expand max_window_layers',
  'multi_query_group_num n_shared_experts num_attention_heads num_hidden_layers num_key_value_heads num_kv_heads',
  'num_local_experts qk_nope_head_dim qk_rope_head_dim shared_expert_intermediate_size sliding_window',
  'sliding_window_pattern ssm_state_size state_size use_sliding_window v_head_dim',
  'hybrid_override_pattern hybrid_layer_pattern layers_block_type block_configs attn_type_list full_attn_idxs attn_layer_indices',
  'linear_attn_config num_kv_shared_layers global_head_dim num_global_key_value_heads attention_k_eq_v attention_head_dim',
  'swa_num_key_value_heads swa_head_dim swa_v_head_dim sliding_window_size mamba_n_heads mamba_num_heads mamba_d_head',
  'mamba_head_dim mamba_n_groups mamba_ssm_cache_dtype mamba_ssm_dtype conv_L_cache index_topk index_head_dim index_n_heads',
  'index_topk_freq index_skip_topk_offset index_topk_pattern indexer_types mlp_layer_types multi_query',
];

/** Keys that speak of layers, and change no bytes of KV. */
const harmless: readonly string[] = [
  // numbers that enter a computation
  'attention_bias attention_dropout attention_multiplier attention_out_bias attention_scale attn_bias attn_dropout attn_pdrop',
  'attn_logit_softcapping attn_output_gate attn_scale attn_temperature_tuning attention_value_scale embedding_layernorm',
  'final_layer_norm_eps floor_scale layer_norm_eps layer_norm_epsilon layernorm_epsilon layernorm_eps layernorm_num_groups',
  'layer_scale_init_value lm_head_multiplier key_multiplier attention_in_multiplier attention_out_multiplier',
  'qk_layernorm use_qk_layernorm query_key_layer_scaling query_pre_attn_scalar parallel_attn parallel_attention_mlp_res',
  'apply_query_key_layer_scaling attention_softmax_in_fp32 apply_residual_connection_post_layernorm post_layer_norm',
  'rope_local_base_freq global_rope_theta local_rope_theta',
  'partial_rotary_factor rope_ratio scale_attention_softmax_in_fp32 scale_attn_weights reorder_and_upcast_attn use_attention_sinks',
  'layer_norm_type layernorm_type layer_norm_elementwise_affine attention_layer_norm attention_probs_dropout_prob qk_head_dim',
  'no_rope_layers no_rope_layer_interval nope_layer_interval num_key_value_groups weight_block_size mtp_loss_ratio',
  // what feed-forward blocks are
  'decoder_sparse_step mlp_only_layers moe_layer_freq moe_layers moe_layer_interval moe_layer_num_skipped moe_layer_start_index',
  'moe_layer_end_index expert_layer_offset expert_layer_period num_shared_experts mlp_ratio share_expert_dim',
  'moe_shared_expert_intermediate_size shared_intermediate_size shared_expert_gate capacity_ratio moe_every_n_layers',
  'moe_num_shared_experts moe_shared_experts moe_layers_enum',
  'num_dense_layers use_shared_expert',
  // drafts beside the model, vision and other parts
  'num_nextn_predict_layers num_nextn_predict_layer mtp_num_layers mtp_num_hidden_layers num_mtp_layers n_mtp_layers',
  'boi_token_index eoi_token_index image_token_index video_token_index audio_token_index vision_feature_layer',
  'vision_feature_select_strategy mm_hidden_layer image_seq_length',
  // how a library runs it
  'use_cache cache_implementation output_attentions output_hidden_states is_decoder add_cross_attention',
  'cross_attention_hidden_size chunk_size_feed_forward pruned_heads for_llm_compressor layerdrop use_flash_attention',
  '_attn_implementation _attn_implementation_autoset attn_implementation use_flash_attn flash_attention',
  'swa_rope_theta swa_num_attention_heads add_swa_attention_sink_bias add_full_attention_sink_bias layer_rope_theta chunk_size',
  'mamba_chunk_size mamba_hidden_act mamba_rms_norm mamba_use_mlp conv_bias use_conv_bias conv_dim conv_dim_out conv_use_xavier_init',
  'block_multiple_of block_auto_adjust_ff_dim block_ff_dim block_ffn_dim_multiplier block_mlp_init_scale block_norm_eps',
  'block_out_init_scale block_use_swiglu block_use_xavier_init block_dim use_unified_vision_chunk mla_use_nope mla_use_output_gate',
  'indexer_rope_interleave index_share_for_mtp_iteration residual_in_fp32 enable_moe_block vision_chunk_size',
  'attention_output_gate layernorm_full_attention_alpha layernorm_full_attention_beta layernorm_linear_attention_alpha',
  'layernorm_linear_attention_beta layernorm_mlp_alpha layernorm_mlp_beta activation_situ_linear_beta attn_res_block_size',
  'latent_moe_use_norm moe_latent_size moe_shared_expert_overlap replicate_shared_expert normalize_expert_share',
  'mtp_transformer_layers mtp_use_dedicated_embeddings mtp_layers_block_type mtp_hybrid_override_pattern',
  'num_hash_layers vocab_size_per_layer_input hidden_size_per_layer_input num_ln_in_parallel_attn use_bidirectional_attention head_dtype use_mamba_kernels mamba_conv_bias mamba_dt_rank mamba_inner_layernorms mamba_proj_bias full_attn_mod',
];

/**
 * Layers of Llama 4 that attend to chunks: an engine keeps the whole context for them, as for the others, unless its manager knows
 * groups.
 */
const kept = ['attention_chunk_size'];

const known: ReadonlySet<string> = new Set([...[...read, ...harmless].join(' ').split(' '), ...kept]);

/** Kinds of layers: of full attention, of a window, of a state, and without any of them. */
export type LayerKind = 'full' | 'window' | 'linear' | 'idle';

/** Names of kinds in `layer_types`. Layers of experts attend as others do there. */
const typeNames: readonly (readonly [names: string, kind: LayerKind])[] = [
  [
    'full_attention attention global_attention global chunked_attention moe dense deepseek_sparse_attention',
    'full',
  ],
  ['sliding_attention sliding_window_attention sliding', 'window'],
  ['linear_attention mamba mamba2 recurrent conv', 'linear'],
];

/** Names in `layers_block_type`, where feed-forward blocks are layers of their own. */
const blockNames: readonly (readonly [names: string, kind: LayerKind])[] = [
  ['attention', 'full'],
  ['mamba mamba2', 'linear'],
  ['moe mlp', 'idle'],
];

/** Letters of `hybrid_override_pattern` (Nemotron-H): attention, Mamba, a dense block, a block of experts. */
const letters: Readonly<Record<string, LayerKind>> = { '*': 'full', M: 'linear', '-': 'idle', E: 'idle' };

/** The parts of a configuration that are read. */
interface WholeConfig {
  readonly nodes: readonly SpecNode[];
}

/** The key by which a file says it, where a command has no option for it. */
export const assumeKey = 'assume_plain_attention';

const remedy: Said = (name) =>
  'Where every layer keeps keys and values of every token as usual, ' +
  `write "${assumeKey}": true into the file, or give ${name('assumePlainAttention')}`;

/** The error about a key of layers that cannot be read. */
export function layersFault(node: SpecNode, key: string, problem: string): TierKVError {
  return node.error(key, problem, remedy);
}

/** Whether a value says nothing: null, false, 0, an empty text, list or mapping. */
function isSilent(node: SpecNode, key: string): boolean {
  if (!node.says(key)) return true;
  const value = node.bare(key);
  return value === null || value === false || value === 0 || value === 0n || value === '';
}

/** Reads the kinds of `layers` layers from one key; undefined for what it does not say. */
type KindReader = (node: SpecNode, layers: number) => readonly (LayerKind | undefined)[];

const byName =
  (key: string, names: typeof typeNames): KindReader =>
  (node) =>
    node.texts(key).map((text) => {
      const kind = names.find(([all]) => all.split(' ').includes(text))?.[1];
      if (kind === undefined) {
        throw layersFault(node, key, `names ${JSON.stringify(shownPlain(text))}, which is not known here`);
      }
      return kind;
    });

const indexed = (node: SpecNode, key: string, layers: number, first: number): ReadonlySet<number> => {
  const indices = node.integers(key).map((at) => at - first);
  const wrong = indices.find((at) => !(at >= 0 && at < layers));
  if (wrong !== undefined) throw layersFault(node, key, `names layer ${wrong + first} of ${layers}`);
  return new Set(indices);
};

const kindsAt =
  (key: string): KindReader =>
  (node, layers) => {
    const full = indexed(node, key, layers, 0);
    return Array.from({ length: layers }, (_, i) => (full.has(i) ? 'full' : 'linear'));
  };

const byNumber =
  (key: string, kinds: readonly [LayerKind, LayerKind]): KindReader =>
  (node) =>
    node.integers(key).map((value) => {
      if (value === 0 || value === 1) return kinds[value];
      throw layersFault(node, key, `has an entry of ${value}, and entries must be 0 or 1`);
    });

/** Keys that give each layer its kind; the first that a file has is read. */
const kindReaders: Readonly<Record<string, KindReader>> = {
  layer_types: byName('layer_types', typeNames),
  layers_block_type: byName('layers_block_type', blockNames),
  hybrid_override_pattern: (node) =>
    [...node.text('hybrid_override_pattern')].map((letter) => {
      if (Object.hasOwn(letters, letter)) return letters[letter];
      const problem = `has the letter ${JSON.stringify(shownPlain(letter))}, which is not known here`;
      throw layersFault(node, 'hybrid_override_pattern', problem);
    }),
  hybrid_layer_pattern: byNumber('hybrid_layer_pattern', ['full', 'window']),
  attn_type_list: byNumber('attn_type_list', ['linear', 'full']),
  full_attn_idxs: kindsAt('full_attn_idxs'),
  attn_layer_indices: kindsAt('attn_layer_indices'),
  linear_attn_config: (node, layers) => {
    const section = node.section('linear_attn_config')!;
    // layers are counted from 1
    const linear = indexed(section, 'kda_layers', layers, 1);
    const full = indexed(section, 'full_attn_layers', layers, 1);
    if (linear.size + full.size !== layers) {
      throw layersFault(node, 'linear_attn_config', `names ${linear.size + full.size} of ${layers} layers`);
    }
    return Array.from({ length: layers }, (_, i) => (linear.has(i) ? 'linear' : 'full'));
  },
  block_configs: (node) =>
    node.list('block_configs').map((block) => {
      const attention = block.section('attention');
      if (attention === undefined) throw layersFault(node, 'block_configs', 'has a block without attention');
      const unknown = ['window_length', 'sparsify', 'num_sink_tokens'].find(
        (key) => !isSilent(attention, key),
      );
      if (unknown !== undefined) throw layersFault(attention, unknown, 'is not known here');
      const isGone = attention.flag('no_op') === true || attention.flag('replace_with_linear') === true;
      return isGone ? 'idle' : 'full';
    }),
};

/**
 * The kind of each layer, where a key gives it; undefined where none does.
 * @param vouched whether a key that is not understood changes nothing
 * @throws TKV_INPUT with file, line and key
 */
export function readLayerKinds(
  { nodes }: WholeConfig,
  layers: number,
  vouched: boolean,
): readonly LayerKind[] | undefined {
  for (const node of nodes) {
    const key = Object.keys(kindReaders).find((each) => !isSilent(node, each));
    if (key === undefined) continue;
    try {
      const kinds = kindReaders[key](node, layers);
      // a list may go on with layers that draft
      if (kinds.length >= layers || (key === 'layer_types' && kinds.length > 0)) {
        const rest = Array.from({ length: Math.max(0, layers - kinds.length) }, () => 'full' as const);
        return [...(kinds.slice(0, layers) as LayerKind[]), ...rest];
      }
      throw layersFault(node, key, `is of ${kinds.length} layers, and num_hidden_layers is ${layers}`);
    } catch (error) {
      if (!vouched) throw error;
      return undefined;
    }
  }
  return undefined;
}

/** KV heads of the blocks of `block_configs` that attend; undefined where no block says them. */
export function blockHeads({ nodes }: WholeConfig, heads: number): number | undefined {
  for (const node of nodes) {
    if (isSilent(node, 'block_configs')) continue;
    const groups = node
      .list('block_configs')
      .map((block) => block.section('attention')?.optionalInteger('n_heads_in_group', { min: 1 }))
      .filter((size) => size !== undefined);
    if (new Set(groups).size > 1) {
      throw layersFault(
        node,
        'block_configs',
        `has blocks of ${[...new Set(groups)].join(' and ')} heads in a group`,
      );
    }
    if (groups.length > 0) return heads / groups[0];
  }
  return undefined;
}

/** @throws TKV_INPUT with file, line and key of the first that is not known */
export function requireKnownLayers({ nodes }: WholeConfig): void {
  for (const node of nodes) {
    const speaking = node.keys().filter((key) => speaksOfLayers.test(key) && !known.has(key));
    const unknown = speaking.find((key) => !isSilent(node, key));
    if (unknown !== undefined) {
      throw layersFault(node, unknown, 'speaks of layers or attention, and is not known here');
    }
  }
}
