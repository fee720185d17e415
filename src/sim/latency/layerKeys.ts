/**
 * Keys of a `config.json` that speak of layers and attention and that this reader does not know. Such a key may give
 * each token other bytes of KV, so the model is refused with the key's name unless its user says that all layers attend
 * plainly. Keys that speak of anything else are not looked at.
 */

import type { Said } from '../../runtime/errors.ts';
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
  'num_ln_in_parallel_attn rope_local_base_freq global_rope_theta local_rope_theta',
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
  'head_dtype use_mamba_kernels mamba_conv_bias mamba_dt_rank mamba_inner_layernorms mamba_proj_bias full_attn_mod',
];

/**
 * Layers of Llama 4 that attend to chunks: an engine keeps the whole context for them, as for the others, unless its manager knows
 * groups.
 */
const kept = ['attention_chunk_size'];

const known: ReadonlySet<string> = new Set([...[...read, ...harmless].join(' ').split(' '), ...kept]);

/** Kinds of `layer_types` that are counted as what they are. */
const knownKinds = /^(full_attention|attention|global_attention|global|chunked_attention|moe|dense)$/;

/** The parts of a configuration that are read. */
interface WholeConfig {
  readonly nodes: readonly SpecNode[];
}

/** The key by which a file says it, where a command has no option for it. */
export const assumeKey = 'assume_plain_attention';

const remedy: Said = (name) =>
  'Where every layer keeps keys and values of every token as usual, ' +
  `write "${assumeKey}": true into the file, or give ${name('assumePlainAttention')}`;

/** Whether a value says nothing: null, false, 0, an empty text, list or mapping. */
function isSilent(node: SpecNode, key: string): boolean {
  if (!node.says(key)) return true;
  const value = node.bare(key);
  return value === null || value === false || value === 0 || value === 0n || value === '';
}

/**
 * @param counted kinds of layers that `hybridLayers.ts` counts apart
 * @throws TKV_INPUT with file, line and key of the first that is not known
 */
export function requireKnownLayers({ nodes }: WholeConfig, counted: readonly string[]): void {
  for (const node of nodes) {
    const speaking = node.keys().filter((key) => speaksOfLayers.test(key) && !known.has(key));
    const unknown = speaking.find((key) => !isSilent(node, key));
    if (unknown !== undefined) {
      throw node.error(unknown, 'speaks of layers or attention, and is not known here', remedy);
    }
    const kind = node.texts('layer_types').find((each) => !counted.includes(each) && !knownKinds.test(each));
    if (kind !== undefined) {
      throw node.error(
        'layer_types',
        `names ${JSON.stringify(shownPlain(kind))}, which is not known here`,
        remedy,
      );
    }
    const quantised = node.keys().includes('quantization_config')
      ? node.section('quantization_config')
      : undefined;
    const kv = ['kv_cache_scheme', 'kv_cache_quant_algo'].find(
      (key) => quantised?.keys().includes(key) === true && !isSilent(quantised, key),
    );
    if (kv !== undefined) {
      throw quantised!.error(kv, 'says in which precision KV is kept, and is not read here', remedy);
    }
  }
}
