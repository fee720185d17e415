/** The cached part of a chain of keys: found without changing or counting anything. */

import { described, requireInteger, TierKVError } from '../errors.ts';

import type { LoadEstimate } from '../planning/loadOrRecompute.ts';
import type { ContentTable, UseHistory } from '../tables/contentTable.ts';
import {
  JobKind,
  type JobPriority,
  type JobRoute,
  JobState,
  type Place,
  type Transfer,
} from '../tables/jobTable.ts';
import { ReplicaState } from '../tables/replicaTable.ts';
import type { Tier } from '../tier/tier.ts';
import { TOP } from '../tier/tier.ts';
import type { Core } from './core.ts';
import { fastestIncoming, fastestIncomingBelow } from './jobs.ts';
import { isKept } from './residency.ts';
import { Entry, type Sequence } from './sequence.ts';

/** How much of a prompt the tiers hold, from its first block on. */
export interface Match {
  /** Leading blocks that are ready or on their way, in any tier. */
  readonly blocks: number;
  /** Matched blocks by tier position (0 = HBM). */
  readonly byTier: readonly number[];
  /** Matched blocks that are not ready yet: a job is bringing them. */
  readonly pending: number;
}

/**
 * Finds what a request with these keys would find. Changes nothing, counts nothing. `keys` holds four words a block.
 */
export function lookup(core: Core, keys: Uint32Array, count: number): Match {
  const byTier = new Array<number>(core.tiers).fill(0);
  let pending = 0;
  let i = 0;
  for (; i < count; i++) {
    const content = core.contents.index.find(keys, i * 4);
    if (content === -1) break;
    const ready = core.fastestReady(content, TOP);
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
 * Some comparisons where all is well: each lookup makes them. Other arrays than words would be looked up too, and nothing
 * ever found.
 * @throws TKV_INPUT naming what is too short, or not made of words; TKV_CONFIG for a count that is not a whole number
 */
export function requireKeys(keys: Uint32Array, count: number, from = 0): void {
  const isCount = Number.isInteger(count) && count >= 0;
  if (isCount && keys instanceof Uint32Array && keys.length >= from + count * 4) return;
  requireInteger('count', count, 0);
  throw notWords('keys', keys, `four words a block, of ${count} blocks`);
}

/** An argument that must be words, and is something else or too short. */
export function notWords(field: string, value: unknown, words: string): TierKVError {
  const are = value instanceof Uint32Array ? `it has ${value.length}` : `it is ${described(value)}`;
  return new TierKVError(
    'TKV_INPUT',
    `${field} must be a Uint32Array with ${words}, and ${are}. Pass a longer one, or a smaller count.`,
    { field },
  );
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
  for (let r = 0; r < requests; r++) requireKeys(keys, firsts[r] + counts[r]);
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
    const content = contents.index.find(keys, (first + i) * 4);
    if (content === -1 || !contents.isPresent(content)) break;
  }
  return i;
}

// How long it would take to bring a part of a sequence up, as loads go now.

/** A block that another sequence has computed is there as soon as its digest is taken. */
const SEAL_BYTES_PER_S = 1e12;

/**
 * Estimates the load of the blocks [from, to) that are below HBM or on their way. Where they lie in several tiers, one
 * is loaded behind the other: the bandwidth is the bandwidth of the mixture.
 * @returns undefined when all of them are in HBM
 */
export function loadEstimate(
  core: Core,
  sequence: Sequence,
  from: number,
  to: number,
  nowUs: number,
): LoadEstimate | undefined {
  const bytes = new Float64Array(core.tiers);
  const ownBytes = new Float64Array(core.tiers);
  for (let i = from; i < to; i++) {
    const state = sequence.state[i];
    if (state !== Entry.MATCHED && state !== Entry.LOADING) continue;
    const tier = tierItComesFrom(core, sequence, i);
    const size = core.unitBytes(core.contents.sizeClass[sequence.content[i]]);
    bytes[tier] += size;
    if (state === Entry.LOADING) ownBytes[tier] += size;
  }
  let startUs = 0;
  let behindCompute = 0;
  let allBytes = bytes[TOP];
  let seconds = bytes[TOP] / SEAL_BYTES_PER_S;
  for (let tier = TOP + 1; tier < core.tiers; tier++) {
    if (bytes[tier] === 0) continue;
    const link = core.links[tier].estimate(nowUs, ownBytes[tier]);
    startUs += link.startUs;
    allBytes += bytes[tier];
    seconds += bytes[tier] / link.bandwidthBytesPerS;
    behindCompute = Math.max(behindCompute, link.behindCompute ?? 0);
  }
  return allBytes === 0 ? undefined : { startUs, bandwidthBytesPerS: allBytes / seconds, behindCompute };
}

/** HBM for a block that is being sealed there. */
function tierItComesFrom(core: Core, sequence: Sequence, i: number): number {
  const { replicas, jobs } = core;
  const held = sequence.replica[i];
  if (held !== -1) return replicas.tierOf(held);
  const row = core.incomingTo(sequence.content[i], TOP);
  if (row !== -1 && jobs.source[row] !== -1) return replicas.tierOf(jobs.source[row]);
  const below = fastestIncomingBelow(core, sequence.content[i], TOP);
  return below === -1 ? TOP : below;
}

// A tier's books: where its slots are in their lives, and how full it is.

/** How full a tier is, in bytes. */
export interface TierUsage {
  readonly tier: Tier;
  /** Bytes that it may hold at rest. */
  readonly capacityBytes: number;
  /** That and its landing room: all that its slots hold. */
  readonly sizeBytes: number;
  /** Bytes that count against the capacity: held, cached, or on their way in. */
  readonly residentBytes: number;
  /** Bytes of these that sequences hold. */
  readonly heldBytes: number;
  /** Bytes of these that can be evicted now. */
  readonly cachedBytes: number;
  /** Bytes of blocks that were evicted and keep their slots until they have arrived below. */
  readonly leavingBytes: number;
  /** Slots by state; free slots are counted as they could still be cut for size class 0. */
  readonly slots: {
    readonly free: number;
    readonly reserved: number;
    readonly filling: number;
    readonly ready: number;
    readonly open: number;
    readonly draining: number;
  };
}

export function tierUsage(core: Core, position: number): TierUsage {
  const { replicas } = core;
  const count = (state: ReplicaState): number => replicas.count(position, state);
  return {
    tier: core.config.tiers[position].tier,
    capacityBytes: core.capacityBytes[position],
    sizeBytes: core.pools[position].shape.capacityBytes,
    residentBytes: core.residentBytes[position],
    heldBytes: core.heldBytes[position],
    cachedBytes: core.cachedBytes[position],
    leavingBytes: core.leavingBytes[position],
    slots: {
      free: core.pools[position].freeSlots(0),
      reserved: count(ReplicaState.RESERVED),
      filling: count(ReplicaState.FILLING) + count(ReplicaState.VERIFYING),
      ready: count(ReplicaState.READY) + count(ReplicaState.PRIVATE),
      open: count(ReplicaState.OPEN) + count(ReplicaState.SEALED),
      draining: count(ReplicaState.DRAINING) + count(ReplicaState.QUARANTINED),
    },
  };
}

// Blocks of the tiers above that a lower tier lacks.

/** See `ManagerInspect.unsaved`. */
export function unsavedKeys(core: Core, tier: number): Uint32Array {
  const { replicas, contents, jobs } = core;
  const isListed = new Uint8Array(contents.rows);
  const listed: number[] = [];
  const list = (content: number): void => {
    const chain: number[] = [];
    for (let at = content; at >= 0 && isListed[at] === 0; at = contents.parentOf(at)) {
      isListed[at] = 1;
      if (isUnsaved(core, at, tier)) chain.push(at);
    }
    listed.push(...chain.reverse());
  };
  for (let above = TOP; above < tier; above++) {
    for (let replica = replicas.base[above]; replica < replicas.end(above); replica++) {
      const isHeld = replicas.state[replica] === ReplicaState.READY && replicas.evictable[replica] === 0;
      if (isHeld) list(replicas.content[replica]);
    }
    for (const replica of core.policy.dump(above).reverse()) list(replicas.content[replica]);
  }
  for (let row = 0; row < jobs.rows; row++) {
    const isMove = jobs.state[row] === JobState.WAITING || jobs.state[row] === JobState.ISSUED;
    if (isMove && jobs.kind[row] === JobKind.MOVE) list(jobs.content[row]);
  }
  const keys = new Uint32Array(4 * listed.length);
  for (const [i, content] of listed.entries()) keys.set(contents.key(content), 4 * i);
  return keys;
}

function isUnsaved(core: Core, content: number, tier: number): boolean {
  if (core.readyIn(content, tier) !== -1) return false;
  const ready = core.fastestReady(content, TOP);
  const arriving = fastestIncoming(core, content);
  return (ready !== -1 && core.replicas.tierOf(ready) < tier) || (arriving !== -1 && arriving <= tier);
}

// Where a replica lies.

export interface BlockPlace {
  /** Position of its tier: 0 is HBM. */
  readonly position: number;
  readonly slot: number;
  readonly generation: number;
  readonly sizeClass: number;
  /** Sequences that hold it there. */
  readonly holders: number;
  /** Whether its bytes are the sequence's own and differ from the bytes of its key elsewhere. */
  readonly diverged: boolean;
  /** Whether a quota or a hint keeps it in its tier. */
  readonly isKept: boolean;
}

export function placeOf(core: Core, replica: number): BlockPlace {
  const position = core.replicas.tierOf(replica);
  return {
    position,
    slot: core.replicas.slotOf(replica, position),
    generation: core.generationOf(replica),
    sizeClass: core.sizeClassOf(replica, position),
    holders: core.replicas.refs[replica],
    diverged: core.replicas.state[replica] === ReplicaState.PRIVATE,
    isKept: isKept(core, replica, position),
  };
}

// Turns a job row into what a driver needs to know of it: of one that moves bytes, and of one that moves
// none.

export function describeTransfer(core: Core, row: number): Transfer {
  const { jobs, contents } = core;
  const content = jobs.content[row];
  const sizeClass = jobs.sizeClass[row];
  const source = jobs.source[row];
  return {
    job: jobs.idOf(row),
    kind: jobs.kind[row] === JobKind.SEAL ? 'seal' : jobs.kind[row] === JobKind.COPY ? 'copy' : 'move',
    ...(jobs.kind[row] === JobKind.COPY
      ? { unsealed: core.replicas.state[source] !== ReplicaState.READY }
      : {}),
    source: source === -1 ? null : place(core, source, jobs.sourceGeneration[row]),
    target: place(core, jobs.target[row], jobs.targetGeneration[row]),
    sizeClass,
    bytes: core.unitBytes(sizeClass),
    ...(content === -1 ? unnamed : namesOf(contents, content)),
    priority: jobs.priority[row] as JobPriority,
    readBack: jobs.proves[row] === 1,
    deadlineUs: jobs.deadlineUs[row],
  };
}

export function describeRoute({ jobs, contents, replicas, config }: Core, row: number, into: JobRoute): void {
  const source = jobs.source[row];
  into.from = source === -1 ? null : config.tiers[replicas.tierOf(source)].tier;
  into.to = config.tiers[jobs.targetTier[row]].tier;
  into.bytes = config.unitBytes[jobs.sizeClass[row]];
  into.keys = contents.keys;
  into.keyAt = jobs.content[row] === -1 ? -1 : 4 * jobs.content[row];
  into.priority = jobs.priority[row] as JobPriority;
  into.leaves = jobs.leaving[row] === 1;
}

/** Names of a copied block, which is not sealed: it has no key and no digest. */
const unnamed = { key: new Uint32Array(4), digest: { lo: 0, hi: 0 } };

function namesOf(
  contents: ContentTable,
  content: number,
): Pick<Transfer, 'key' | 'parent' | 'tokens' | 'digest'> {
  return {
    key: contents.key(content),
    parent: contents.parentKey(content),
    tokens: contents.tokens[content],
    digest: contents.digest(content),
  };
}

function place(core: Core, replica: number, generation: number): Place {
  const position = core.replicas.tierOf(replica);
  return {
    tier: core.config.tiers[position].tier,
    slot: core.replicas.slotOf(replica, position),
    generation,
  };
}

// The blocks of a tier that may be moved to another one, with what is known of their use.

/** One cached block as the manager knows it: key, size and the history of its uses. */
export interface CachedBlock {
  /** Number of its content; used again once the content is gone. */
  readonly content: number;
  /** Four words. */
  readonly key: Uint32Array;
  readonly sizeBytes: number;
  readonly use: UseHistory;
  /** Whether a quota or a hint keeps it in its tier: it does not go down. */
  readonly isKept: boolean;
}

export interface CachedBlocks {
  readonly blocks: readonly CachedBlock[];
  /** Where to go on looking. */
  readonly nextSlot: number;
}

const unknownUse: UseHistory = { uses: 0, firstUseUs: 0, lastUseUs: 0, frequencyAt: () => 0 };

export function cachedBlocks(core: Core, tier: number, fromSlot: number, slots: number): CachedBlocks {
  const { replicas, contents, pools, use } = core;
  const limit = pools[tier].shape.slotLimit;
  const count = Math.min(slots, limit);
  const blocks: CachedBlock[] = [];
  let slot = fromSlot < limit ? fromSlot : 0;
  for (let looked = 0; looked < count; looked++) {
    const replica = replicas.base[tier] + slot;
    slot = slot + 1 === limit ? 0 : slot + 1;
    if (replicas.evictable[replica] === 0) continue;
    const content = replicas.content[replica];
    if (contents.replica[content] < replicas.base[tier]) continue;
    blocks.push({
      content,
      key: contents.key(content),
      sizeBytes: core.unitBytes(core.sizeClassOf(replica, tier)),
      use: use === null ? unknownUse : use.of(content),
      isKept: isKept(core, replica, tier),
    });
  }
  return { blocks, nextSlot: slot };
}
