/**
 * Layers of a model, and the part of a context that each keeps. Layers of full attention keep all of it, those of a
 * sliding window its last tokens, linear ones (Mamba, gated delta rule) a state of one size. Blocks are shared out as
 * vLLM's hybrid KV cache manager does it (vllm/v1/core/kv_cache_utils.py, `_get_kv_cache_groups_uniform_page_size`):
 * layers of a kind are dealt to groups of equally many layers, each group has its own table of blocks, and all take
 * blocks of one size from one pool.
 *
 * Not modelled: a prefix counts as found where the layers of full attention have it, and the window before its end, or
 * the state, is taken to be there too. Attention in chunks (Llama 4) keeps all tokens, as vLLM does unless told
 * otherwise.
 */

import { requireInteger } from '../../runtime/errors.ts';
import { fullLayersOf } from './hybridLayers.ts';
import { kvElements, type ModelConfig } from './modelConfig.ts';

/** How an engine shares KV memory out among the layers of a hybrid model. */
interface KvLayout {
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
  const full = fullLayersOf(model).keeping + (keepsWhole ? windows : 0);
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
    paddingLayers:
      (fullGroups + windowGroups + linearGroups) * groupLayers - full - windowLayers - linearLayers,
  };
}

/** KV of a sequence beside the blocks of its tokens, counted in blocks of that many tokens in all groups of full attention. */
export interface SideBlocks {
  /** Tokens of the window, and groups whose layers attend to it, in groups whose blocks are as large as those of full attention. */
  readonly windowTokens: number;
  readonly windowGroups: number;
  /** Blocks for the states of linear layers, from the first token on. */
  readonly stateBlocks: number;
  /** Groups of full attention, and so blocks of the engine's pool that are one block here. */
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
    windowGroups: (windowGroups * kvElements(model, tp, true)) / kvElements(model, tp),
    stateBlocks: Math.ceil((linearGroups * statePages) / fullGroups),
    fullGroups,
  };
}

/**
 * Blocks that a sequence of `blocks` blocks holds beside them: of the window its last tokens and what the step computes,
 * whose blocks are taken before the ones that leave the window are given back.
 * @param newBlocks blocks of them that the step opens
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
