/**
 * Looks inside a manager: what it holds and where that lies, how full the tiers are, and what is under way. Reads change
 * nothing, count nothing, and are no inputs of the log.
 */

import type { Digest } from '../digest.ts';
import type { LoadEstimate } from '../planning/loadOrRecompute.ts';
import { ReplicaState } from '../tables/replicaTable.ts';
import type { SlotPool } from '../tables/slotPool.ts';
import { type Tier, TOP } from '../tier/tier.ts';
import { speculativeBytes } from './blocks.ts';
import type { Core } from './core.ts';
import type { Counters } from './counters.ts';
import { dump, type ManagerDump } from './dump.ts';
import { fastestIncoming } from './jobs.ts';
import {
  type BlockPlace,
  type CachedBlocks,
  cachedBlocks,
  loadEstimate,
  placeOf,
  type TierUsage,
  tierUsage,
  unsavedKeys,
} from './lookup.ts';
import { requireOwn, type Sequence, type SequenceId } from './sequence.ts';

/** The part of a tier's slots and pages that can be read. */
type PoolView = Pick<
  SlotPool,
  'shape' | 'takenSlots' | 'uncutPages' | 'pageOf' | 'takenOn' | 'freeOnCutPages' | 'pageToTake'
>;

/** Looks inside a `KVManager`: `manager.inspect`. */
export class ManagerInspect {
  readonly #core: Core;

  constructor(core: Core) {
    this.#core = core;
  }

  /** The key of a content that is ready or on its way, by its number. */
  contentKey(content: number): Uint32Array {
    return this.#core.contents.key(content);
  }

  /** Whose room the content takes: the owner who sealed it first. */
  contentOwner(content: number): number {
    return this.#core.contents.owner[content];
  }

  /** Tokens of the content. */
  contentTokens(content: number): number {
    return this.#core.contents.tokens[content];
  }

  /** Tokens of the block that the job in this row brings; 0 for a job without a content. */
  jobTokens(row: number): number {
    const content = this.#core.jobs.content[row];
    return content === -1 ? 0 : this.#core.contents.tokens[content];
  }

  /** Contents and replicas that there can be at once: their numbers are below. */
  get tableSizes(): { readonly contents: number; readonly replicas: number; readonly jobs: number } {
    const { contents, replicas, config } = this.#core;
    return { contents: contents.capacity, replicas: replicas.size, jobs: config.maxJobs };
  }

  /** The content of the slot in the tier at `position`, -1 where lookups find none there. */
  contentIn(position: number, slot: number): number {
    const { replicas } = this.#core;
    const replica = replicas.base[position] + slot;
    return replicas.state[replica] === ReplicaState.READY ? replicas.content[replica] : -1;
  }

  /** Where the block with this key lies ready, in the fastest tier that has it. Nothing holds it there. */
  locate(key: Uint32Array): BlockPlace | undefined {
    const content = this.#core.contents.index.find(key, 0);
    const replica = content === -1 ? -1 : this.#core.fastestReady(content, TOP);
    return replica === -1 ? undefined : placeOf(this.#core, replica);
  }

  /** The digest that the block with this key must have; undefined for one that is not known or not sealed. */
  digestOf(key: Uint32Array): Digest | undefined {
    const { contents } = this.#core;
    const content = contents.index.find(key, 0);
    return content === -1 || contents.sealed[content] === 0 ? undefined : contents.digest(content);
  }

  /**
   * Blocks of the tier at `position` that no sequence holds and no faster tier has: they may be moved away.
   * Looks at `slots` slots from `fromSlot` on, and goes on at slot 0 after the last one.
   */
  cachedBlocks(position: number, fromSlot = 0, slots: number = Number.MAX_SAFE_INTEGER): CachedBlocks {
    return cachedBlocks(this.#core, position, fromSlot, slots);
  }

  /**
   * Keys, four words each, of what tiers above `position` hold, or await, and that tier has not: held blocks first, then
   * those used last, each behind the block before it in its chain.
   */
  unsaved(position: number): Uint32Array {
    return unsavedKeys(this.#core, position);
  }

  /** The fastest tier that a job is bringing the block with this key into; -1 for none. */
  arrivingIn(key: Uint32Array): number {
    const content = this.#core.contents.index.find(key, 0);
    return content === -1 ? -1 : fastestIncoming(this.#core, content);
  }

  /**
   * Whether a block with this number of tokens was ever sealed or adopted: if not, a key for one finds nothing.
   */
  hasHadBlocksOf(tokens: number): boolean {
    return this.#core.tokenCounts.includes(tokens);
  }

  /** Whether no cached block lacks its prefix, so that lookups need not walk. */
  get prefixesAreWhole(): boolean {
    return this.#core.contents.holes === 0;
  }

  /** Bytes of speculative loads into HBM, whose room the owner's sequences may take. */
  speculativeBytes(owner = 0): number {
    return speculativeBytes(this.#core, owner);
  }

  /** The tiers of the configuration, fastest first. */
  get tiers(): readonly Tier[] {
    return this.#core.config.tiers.map((tier) => tier.tier);
  }

  /** Counts of all that has happened so far. */
  get counters(): Readonly<Counters> {
    return this.#core.counters;
  }

  /** The time of the last call, in microseconds. */
  get nowUs(): number {
    return this.#core.nowUs;
  }

  /** How full the tier at `position` is. */
  usage(position: number): TierUsage {
    return tierUsage(this.#core, position);
  }

  /** The slots and pages of the tier at `position`. */
  pool(position: number): PoolView {
    return this.#core.pools[position];
  }

  /** Bytes that an owner's blocks take of the tier at `position`, those on their way in included. */
  ownedBytes(owner: number, position: number): number {
    return this.#core.ownedBytes[owner * this.#core.tiers + position];
  }

  /** The owner's quota of the tier at `position`, null where it has none. */
  quotaBytes(owner: number, position: number): number | null {
    return this.#core.quotas?.quotaBytes(owner, position) ?? null;
  }

  /** Cached bytes of the tier at `position` that may not be evicted for this owner: quotas of others. */
  protectedBytes(owner: number, position: number): number {
    return this.#core.quotas?.protectedFrom(owner, position) ?? 0;
  }

  /** Whether cached blocks of `other` in the tier at `position` may be evicted for `owner`. */
  mayTakeFrom(other: number, owner: number, position: number): boolean {
    return this.#core.quotas?.mayTakeFrom(other, owner, position) ?? true;
  }

  /**
   * How long loads of the sequence's blocks [from, to) would take now, by those of the last while; undefined
   * when none is below HBM or on its way.
   */
  loadEstimate(sequence: Sequence, from: number, to: number, nowUs: number): LoadEstimate | undefined {
    requireOwn(sequence, this.#core);
    return loadEstimate(this.#core, sequence, from, to, nowUs);
  }

  /** How long loads from the tier at `position`, below HBM, would take now. */
  linkEstimate(position: number, nowUs: number): LoadEstimate {
    return this.#core.links[position].estimate(nowUs);
  }

  /**
   * Where the bytes of the sequence's block are held, whatever state it is in; undefined while it has no
   * slot.
   */
  place(sequence: Sequence, i: number): BlockPlace | undefined {
    requireOwn(sequence, this.#core);
    const replica = i < sequence.length ? sequence.replica[i] : -1;
    return replica === -1 ? undefined : placeOf(this.#core, replica);
  }

  /** Jobs that the driver has or will be given: 0 when everything has come to rest. */
  get jobsInFlight(): number {
    return this.#core.jobs.count;
  }

  /** Jobs among these past their deadline: they may never end, and keep their slots until they do. */
  get jobsOverdue(): number {
    return this.#core.jobs.overdueCount;
  }

  /**
   * When the next job in flight is past its deadline, in microseconds; Infinity when none has one. `tick` it
   * then.
   */
  get nextDeadlineUs(): number {
    return this.#core.deadlines.nextUs;
  }

  /** Sequences that are open. */
  get openSequences(): number {
    return this.#core.sequences.size;
  }

  /** The open sequence with the id: for the caller of `visitState`, which restores sequences. */
  sequence(id: SequenceId): Sequence | undefined {
    return this.#core.sequences.get(id);
  }

  /**
   * How often blocks of sequences have lost their bytes so far: a load or a seal that failed, a tier that was
   * lost. While it stays as it was, so does `disturbances` of every sequence.
   */
  get disturbances(): number {
    return this.#core.disturbances;
  }

  /** The whole state as plain data, for debuggers and model checkers. Walks everything. */
  dump(): ManagerDump {
    return dump(this.#core);
  }
}
