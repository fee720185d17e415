/**
 * Where a sequence's blocks are held. A block that several tiers have may be held in any of them; the copies
 * above that nobody holds any more give up their room. This is how a running sequence has some of its units
 * in HBM and the rest below.
 */

import { type Core, HBM } from '../core.ts';
import { Entry, type Sequence } from '../sequences/blockTable/sequence.ts';
import { letGo } from '../sequences/holding.ts';
import { stopWaitingBelow } from '../sequences/releasing.ts';
import { giveUp } from './residency.ts';

/**
 * Holds block i in `tier` from now on. @returns false, with nothing changed, where the tier has not the
 * block's bytes ready, or the block is not one that has been found, loaded or sealed
 */
export function keepIn(core: Core, sequence: Sequence, i: number, tier: number): boolean {
  const state = sequence.state[i];
  if (state !== Entry.READY && state !== Entry.MATCHED) return false;
  const content = sequence.content[i];
  const held = sequence.replica[i];
  const { replicas } = core;
  // A copy whose bytes differ from the content's is the sequence's own: no other copy can stand for it.
  if (content === -1 || (held !== -1 && replicas.content[held] !== content && state === Entry.READY))
    return false;
  const there = core.readyIn(content, tier);
  if (there === -1) return false;
  if (held !== -1 && replicas.tierOf(held) === tier) return true;
  core.hold(there);
  if (held === -1) stopWaitingBelow(core, sequence, i, content);
  sequence.replica[i] = there;
  sequence.state[i] = tier === HBM ? Entry.READY : Entry.MATCHED;
  letGo(core, held);
  if (held === -1) return true;
  const above = replicas.tierOf(held);
  if (above < tier && replicas.evictable[held] === 1) giveUp(core, held, above);
  return true;
}
