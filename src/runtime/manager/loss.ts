/**
 * The bytes of a whole tier are gone: the device was lost, the disk died. Every replica of the tier goes, and
 * with it every way in and out that still counts on its bytes; its slots live on, for the store that takes
 * the lost one's place.
 *
 * - What a sequence held there is brought back from another tier where a copy lies (the entry is MATCHED
 *   again, `load` brings it), and is FAILED, to be computed again, where none does.
 * - Jobs that fill the tier are detached: their slots wait for the driver, as after a deadline. Jobs that
 *   read from it and that the driver has are left to it, since only the driver knows whether it had the bytes
 *   by then.
 */

import type { Digest } from '../digest.ts';
import { invariant } from '../errors.ts';
import { DecisionOp } from '../log/decisionSink.ts';
import { NO_PARENT, UNKNOWN_PARENT } from '../tables/contentTable.ts';
import { type JobId, JobState, Leaving } from '../tables/jobTable.ts';
import { ReplicaState } from '../tables/replicaTable.ts';
import { Outcome, TOP } from '../tier/tier.ts';
import { fail, repinOrFail } from './blocks.ts';
import type { Core } from './core.ts';
import { serveEnded } from './drain.ts';
import { cancelWaiting, detach, letGo } from './jobs.ts';
import { makeRoom } from './residency.ts';
import { Entry, type Sequence } from './sequence.ts';

export interface TierLoss {
  /** Ready replicas that went. */
  readonly replicas: number;
  /** Contents among them without another copy, ready or on its way. */
  readonly lost: number;
}

interface HeldAtLoss {
  readonly sequence: Sequence;
  readonly block: number;
  readonly generation: number;
}

export function loseTier(core: Core, tier: number): TierLoss {
  const held = heldIn(core, tier);
  const jobs = jobsOn(core, tier);
  const gone = unpublishAll(core, tier);
  forgetLeaving(core, tier);
  for (const id of jobs) endJob(core, id, tier);
  serveEnded(core);
  for (const entry of held) settleEntry(core, entry, tier);
  for (let r = core.replicas.base[tier]; r < core.replicas.end(tier); r++) core.freeIfDrained(r);
  let lost = 0;
  for (const content of gone) if (!isAnywhere(core, content)) lost++;
  for (const content of gone) core.contents.unhold(content);
  core.counters.lost += lost;
  for (let each = 0; each < core.tiers; each++) core.deferred.mayBeCrowded(each);
  return { replicas: gone.length, lost };
}

/** Block table entries that hold a replica of the tier, before anything changes. */
function heldIn(core: Core, tier: number): HeldAtLoss[] {
  const held: HeldAtLoss[] = [];
  for (const sequence of core.sequences.values()) {
    for (let block = 0; block < sequence.length; block++) {
      const replica = sequence.replica[block];
      if (replica === -1 || core.replicas.tierOf(replica) !== tier) continue;
      held.push({ sequence, block, generation: core.generationOf(replica) });
    }
  }
  return held;
}

/** Jobs that fill the tier in the driver's hands, and jobs that wait to read from it. */
function jobsOn(core: Core, tier: number): JobId[] {
  const { jobs, replicas } = core;
  const found: JobId[] = [];
  for (let row = 0; row < jobs.rows; row++) {
    const source = jobs.source[row];
    const fills = jobs.state[row] === JobState.ISSUED && jobs.targetTier[row] === tier;
    const reads = jobs.state[row] === JobState.WAITING && source !== -1 && replicas.tierOf(source) === tier;
    if (fills || reads) found.push(jobs.idOf(row));
  }
  return found;
}

/**
 * Takes every ready replica of the tier out of the directory. @returns their contents, held so that they can
 * be counted
 */
function unpublishAll(core: Core, tier: number): number[] {
  const { replicas, contents } = core;
  const gone: number[] = [];
  for (let r = replicas.base[tier]; r < replicas.end(tier); r++) {
    if (replicas.state[r] !== ReplicaState.READY) continue;
    const content = replicas.content[r];
    contents.hold(content);
    gone.push(content);
    core.logReplica(DecisionOp.DROP, r);
    core.unpublish(r);
    core.setResident(r, 0);
  }
  return gone;
}

/** Blocks on their way down from the tier are not found there again. */
function forgetLeaving({ jobs, replicas }: Core, tier: number): void {
  for (let row = 0; row < jobs.rows; row++) {
    if (jobs.leaving[row] === Leaving.NOT || replicas.tierOf(jobs.source[row]) !== tier) continue;
    jobs.leaving[row] = Leaving.LOST;
  }
}

function isAnywhere(core: Core, content: number): boolean {
  for (let tier = 0; tier < core.tiers; tier++) {
    if (core.readyIn(content, tier) !== -1 || core.incomingTo(content, tier) !== -1) return true;
  }
  return false;
}

/** MISSING sends the waiters to another copy, as after any load that found no block. */
function endJob(core: Core, id: JobId, tier: number): void {
  if (!core.jobs.isLive(id)) return;
  const row = core.jobs.rowOf(id);
  const state = core.jobs.state[row];
  if (state === JobState.WAITING) cancelWaiting(core, row, Outcome.MISSING);
  else if (state === JobState.ISSUED && core.jobs.targetTier[row] === tier)
    detach(core, row, Outcome.MISSING);
}

function settleEntry(core: Core, { sequence, block, generation }: HeldAtLoss, tier: number): void {
  const { replicas, waiters, jobs } = core;
  const replica = sequence.replica[block];
  if (replica === -1 || replicas.tierOf(replica) !== tier || core.generationOf(replica) !== generation)
    return;
  if (sequence.state[block] === Entry.LOADING) {
    sequence.replica[block] = -1;
    letGo(core, replica);
    return;
  }
  const wasPublished =
    sequence.state[block] === Entry.MATCHED || replicas.state[replica] === ReplicaState.DRAINING;
  if (!wasPublished) {
    fail(core, sequence, block, Outcome.REFUSED);
    return;
  }
  sequence.state[block] = Entry.MATCHED;
  core.disturb(sequence);
  const content = sequence.content[block];
  const arriving = core.fastestReady(content, TOP) === -1 ? arrivingBelow(core, content) : -1;
  if (arriving === -1) {
    repinOrFail(core, sequence, block, Outcome.REFUSED);
    return;
  }
  waiters.append(jobs.waiter, arriving, sequence.id, block);
  sequence.replica[block] = -1;
  letGo(core, replica);
}

function arrivingBelow(core: Core, content: number): number {
  for (let tier = TOP + 1; tier < core.tiers; tier++) {
    if (core.incomingTo(content, tier) !== -1) return core.incomingTo(content, tier);
  }
  return -1;
}

// Blocks that a lower tier holds since an earlier run become replicas again, under the same keys. Nothing is
// moved and nothing read: the store has said that the bytes are there, and every later read is verified as
// always.
//
// A block names the block before it, so that the index knows again that what it holds are whole prefixes. One
// that comes before its parent gets a row for it; a parent that never comes leaves a hole, which only makes
// lookups walk.

export interface AdoptedBlock extends NamedBlock {
  readonly slot: number;
  readonly generation: number;
}

/** A block as a store that outlives this process knows it, without its place. */
export interface NamedBlock {
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
  const { slot, generation, sizeClass, key } = block;
  const pool = core.pools[tier];
  const exists =
    slot < pool.shape.slotLimit &&
    sizeClass < core.config.unitBytes.length &&
    slot % pool.shape.slotsPerPageMax < pool.shape.slotsPerPage[sizeClass];
  if (!exists) return false;
  pool.reach(slot);
  if (generation < pool.generation[slot]) return false;
  const known = contents.index.find(key, 0);
  const fits = core.residentBytes[tier] + core.unitBytes(sizeClass) <= core.capacityBytes[tier];
  const redundant = known !== -1 && (core.readyIn(known, tier) !== -1 || contents.sealed[known] === 1);
  const replica = replicas.base[tier] + slot;
  replicas.reach(replica);
  if (!fits || redundant || !pool.takeSlot(slot, sizeClass, generation)) {
    if (replicas.state[replica] === ReplicaState.FREE) pool.generation[slot] = generation;
    return false;
  }

  core.census[tier]?.took(slot);
  replicas.owner[replica] = 0;
  replicas.become(replica, ReplicaState.RESERVED);
  publishNamed(core, replica, block, 0);
  return true;
}

// A block that a lookup has found in a store which others write too. The tier's slots are a directory of what is
// believed to lie there: the manager takes one for it, as for a block of its own, and forgets another block where
// the directory is full.

export interface SharedBlock extends NamedBlock {
  /** Who asked for it. */
  readonly owner: number;
}

/** @returns the replica, or -1 where the block is in some tier already, or the tier has no room for it */
export function adoptFound(core: Core, tier: number, block: SharedBlock): number {
  const { sizeClass, key, digest, owner } = block;
  const { contents } = core;
  const known = contents.index.find(key, 0);
  if (known !== -1) {
    const isSame = contents.digestLo[known] === digest.lo && contents.digestHi[known] === digest.hi;
    if (isAnywhere(core, known) || (contents.sealed[known] === 1 && !isSame)) return -1;
  }
  const bytes = core.unitBytes(sizeClass);
  makeRoom(core, tier, bytes, owner);
  if (core.residentBytes[tier] + bytes > core.capacityBytes[tier] || core.claims[tier].size > 0) return -1;
  const replica = core.reserve(tier, sizeClass, owner);
  if (replica !== -1) publishNamed(core, replica, block, owner);
  return replica;
}

/** The reserved replica holds the block, as its store says. */
function publishNamed(core: Core, replica: number, block: NamedBlock, owner: number): void {
  const { contents, replicas } = core;
  const { sizeClass, key, digest, tokens } = block;
  const parent = parentOf(core, block);
  const content = contents.intern(key, 0, sizeClass, tokens, parent, owner);
  contents.learnParent(content, parent);
  contents.dropUnused(parent);
  contents.sizeClass[content] = sizeClass;
  contents.tokens[content] = tokens;
  core.noteTokens(tokens);
  contents.sealed[content] = 1;
  contents.digestLo[content] = digest.lo;
  contents.digestHi[content] = digest.hi;
  for (const state of [ReplicaState.FILLING, ReplicaState.VERIFYING]) replicas.become(replica, state);
  core.setResident(replica, 1);
  core.publish(replica, content);
  core.counters.adopted++;
}

function parentOf(core: Core, { parent, sizeClass, tokens }: NamedBlock): number {
  if (parent === undefined || !core.config.chainedKeys) return UNKNOWN_PARENT;
  if (parent.every((word) => word === 0)) return NO_PARENT;
  return core.contents.intern(parent, 0, sizeClass, tokens, UNKNOWN_PARENT);
}

const HAS_PARENT = 1;

/** A block's words in the decision log, without its place. */
export function adoptionWords({ key, parent, digest, tokens }: NamedBlock): Uint32Array {
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
