/**
 * Blocks that a lower tier holds since an earlier run become replicas again, under the same keys. Nothing is
 * moved and nothing read: the store has said that the bytes are there, and every later read is verified as
 * always.
 *
 * A block names the block before it, so that the index knows again that what it holds are whole prefixes. One
 * that comes before its parent gets a row for it; a parent that never comes leaves a hole, which only makes
 * lookups walk.
 */

import { NO_PARENT, UNKNOWN_PARENT } from '../../content/contentTable.ts';
import type { Digest } from '../../digest.ts';
import { invariant } from '../../errors.ts';
import { State } from '../../replica/state.ts';
import type { Core } from '../core.ts';

export interface AdoptedBlock {
  readonly slot: number;
  readonly generation: number;
  readonly sizeClass: number;
  /** The content's key: four words. */
  readonly key: Uint32Array;
  /** Key of the block before it; zeros for the first of a chain, undefined where it is not known. */
  readonly parent: Uint32Array | undefined;
  readonly digest: Digest;
  readonly tokens: number;
}

export function adopt(core: Core, tier: number, block: AdoptedBlock): boolean {
  const { contents, replicas } = core;
  const { slot, generation, sizeClass, key, digest, tokens } = block;
  const pool = core.pools[tier];
  const exists =
    slot < pool.shape.slotLimit &&
    sizeClass < core.config.unitBytes.length &&
    slot % pool.shape.slotsPerPageMax < pool.shape.slotsPerPage[sizeClass];
  if (!exists) return false;
  pool.reach(slot);
  if (generation < pool.generation[slot]) return false;
  const known = contents.find(key, 0);
  const fits = core.residentBytes[tier] + core.unitBytes(sizeClass) <= core.capacityBytes[tier];
  const redundant = known !== -1 && (core.readyIn(known, tier) !== -1 || contents.sealed[known] === 1);
  const replica = replicas.base[tier] + slot;
  replicas.reach(replica);
  if (!fits || redundant || !pool.takeSlot(slot, sizeClass, generation)) {
    if (replicas.state[replica] === State.FREE) pool.generation[slot] = generation;
    return false;
  }

  core.census[tier]?.took(slot);
  replicas.owner[replica] = 0;
  const parent = parentOf(core, block);
  const content = contents.intern(key, 0, sizeClass, tokens, parent);
  contents.learnParent(content, parent);
  contents.dropUnused(parent);
  contents.sizeClass[content] = sizeClass;
  contents.tokens[content] = tokens;
  contents.sealed[content] = 1;
  contents.digestLo[content] = digest.lo;
  contents.digestHi[content] = digest.hi;
  for (const state of [State.RESERVED, State.FILLING, State.VERIFYING]) replicas.become(replica, state);
  core.setResident(replica, 1);
  core.publish(replica, content);
  core.counters.adopted++;
  return true;
}

function parentOf(core: Core, { parent, sizeClass, tokens }: AdoptedBlock): number {
  if (parent === undefined || !core.config.chainedKeys) return UNKNOWN_PARENT;
  if (parent.every((word) => word === 0)) return NO_PARENT;
  return core.contents.intern(parent, 0, sizeClass, tokens, UNKNOWN_PARENT);
}

const HAS_PARENT = 1;

/** What the decision log keeps of a block besides its place. */
export function adoptionWords({ key, parent, digest, tokens }: AdoptedBlock): Uint32Array {
  const words = new Uint32Array(12);
  words.set(key);
  words.set(parent ?? [0, 0, 0, 0], 4);
  words.set([digest.lo, digest.hi, tokens, parent === undefined ? 0 : HAS_PARENT], 8);
  return words;
}

/** The block that the words came from. */
export function adoptedFrom(
  slot: number,
  generation: number,
  sizeClass: number,
  words: Uint32Array,
): AdoptedBlock {
  invariant(words.length === 12, 'an adopted block is logged in twelve words');
  return {
    slot,
    generation,
    sizeClass,
    key: words.slice(0, 4),
    parent: words[11] === HAS_PARENT ? words.slice(4, 8) : undefined,
    digest: { lo: words[8], hi: words[9] },
    tokens: words[10],
  };
}
