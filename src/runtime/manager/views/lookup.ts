/** What is cached of a chain of keys: found without changing or counting anything. */

import { invariant } from '../../errors.ts';
import { type Core, HBM } from '../core.ts';
import { fastestIncoming } from '../sequences/blockTable/entries.ts';

export interface Match {
  /** Leading blocks that are ready or on their way, in any tier. */
  readonly blocks: number;
  /** Of these, by tier position (0 = HBM). */
  readonly byTier: readonly number[];
  /** Of these, not ready yet: a job is bringing them. */
  readonly pending: number;
}

/**
 * What a request with these keys would find. Changes nothing, counts nothing. `keys` holds four words a
 * block.
 */
export function lookup(core: Core, keys: Uint32Array, count: number): Match {
  const byTier = new Array<number>(core.tiers).fill(0);
  let pending = 0;
  let i = 0;
  for (; i < count; i++) {
    const content = core.contents.find(keys, i * 4);
    if (content === -1) break;
    const ready = core.fastestReady(content, HBM);
    const arriving = fastestIncoming(core, content);
    if (ready === -1 && arriving === -1) break;
    const tier = ready === -1 ? arriving : core.replicas.tierOf(ready);
    const joins = arriving !== -1 && (ready === -1 || arriving < tier);
    byTier[joins ? arriving : tier]++;
    if (joins) pending++;
  }
  return { blocks: i, byTier, pending };
}

/**
 * Leading blocks of the chain that are ready or on their way: the fast form of `lookup`. A cached prefix has
 * no holes as long as no block went before its descendants, so the end of the match is found by search; after
 * such an event, or where keys are not known to be chained, by walking.
 */
export function matchLength(core: Core, keys: Uint32Array, count: number): number {
  return mustWalk(core) ? walkLength(core, keys, 0, count) : core.contents.search.length(keys, count);
}

/** `matchLength` of many chains at once; chain r has the `counts[r]` keys from key `firsts[r]`. */
export function matchLengths(
  core: Core,
  keys: Uint32Array,
  firsts: Uint32Array,
  counts: Uint32Array,
  out: Uint32Array,
  requests: number,
): void {
  for (let r = 0; r < requests; r++)
    invariant((firsts[r] + counts[r]) * 4 <= keys.length, 'four key words a block');
  if (mustWalk(core)) {
    for (let r = 0; r < requests; r++) out[r] = walkLength(core, keys, firsts[r], counts[r]);
  } else {
    core.contents.search.lengths(keys, firsts, counts, out, requests);
  }
}

function mustWalk(core: Core): boolean {
  return core.contents.holes > 0 || !core.config.chainedKeys;
}

function walkLength(core: Core, keys: Uint32Array, first: number, count: number): number {
  const { contents } = core;
  let i = 0;
  for (; i < count; i++) {
    const content = contents.find(keys, (first + i) * 4);
    if (content === -1 || !contents.isPresent(content)) break;
  }
  return i;
}
