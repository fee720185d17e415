/**
 * The contract of an eviction policy: which replica leaves its tier first. One policy serves all tiers of a manager.
 * It orders the replicas that may be evicted: READY, and held by no sequence. It never sees bytes, keeps no clock and
 * draws no random numbers; the manager tells it the time.
 *
 *     held --(last sequence releases it)--> enter --(a sequence holds it again)--> leave
 *                                             |
 *                                             +--(evicted, or lost)--> leave, then forgotten once no copy is left
 *
 * A replica is a number: the base of its tier plus its slot. It is entered at most once before it leaves.
 */

import type { Stateful } from '../snapshot.ts';

export interface EvictionWorld {
  /** Tiers, fastest first. */
  readonly tiers: number;
  /** First replica of each tier, and behind the last tier the number of all replicas. */
  readonly base: ArrayLike<number>;
  /** Bytes of a unit, by size class. */
  readonly unitBytes: readonly number[];
  /** Bytes that each tier may hold. */
  readonly capacityBytes: ArrayLike<number>;
  /** Bytes that each tier holds now, including held blocks and blocks on their way in. */
  readonly residentBytes: ArrayLike<number>;
  /** Rows of the content table: content numbers are below this. */
  readonly contents: number;
  /** Whether tables are allocated for all replicas and contents at the start, so that no later call grows them. */
  readonly whole: boolean;
  /** The manager's time, in integer microseconds. */
  nowUs(): number;
  /** How often the replica's slot was taken; it tells one use of the slot from the next. */
  generationOf(replica: number): number;
  /** Content of the block before it in its chain; negative if it is the first or its parent is unknown. */
  parentOf(content: number): number;
  /** The four words of the content's key, read from `keys[content * 4]` on. Replaced when the table grows. */
  readonly keys: Uint32Array;
  /** Tokens of each content. Replaced when the table grows, as is `owner`. */
  readonly tokens: ArrayLike<number>;
  /** Owner of each content. */
  readonly owner: ArrayLike<number>;
}

/** One sequence's use of a chain. Touches follow block by block, from the first. */
export interface Visit {
  /** Number of the visit, counted from 1. */
  readonly number: number;
  /** Blocks that the sequence asked for. */
  readonly blocks: number;
  /** Blocks of these that were found. */
  readonly matched: number;
}

/** A hint about contents that no sequence holds. It never keeps a content for ever. */
export interface Retention {
  /** From -100 to 100: higher is kept longer, other things being equal. 0: no hint. */
  readonly priority: number;
  /** In microseconds of the manager's time: the content should stay until then if it can. 0: no hint. */
  readonly keepUntilUs: number;
}

export interface EvictionPolicy extends Stateful {
  /** The replica may be evicted from now on. */
  enter(replica: number, tier: number, sizeClass: number, content: number): void;
  /** The replica may not be evicted any more. */
  leave(replica: number, tier: number, sizeClass: number): void;
  /** A sequence was opened. What it found is touched next, before anything is evicted for it. */
  begin?(visit: Visit): void;
  /** A sequence uses the content: it found it, or has just sealed it. */
  touch(content: number, visit: Visit): void;
  /** A caller's hint about the content. `RetentionPolicy` applies it on top of any policy. */
  retain?(content: number, retention: Retention): void;
  /**
   * The replica of the tier that should go next, or -1 if none has entered. Repeated calls with nothing in between
   * give the same answer.
   */
  victim(tier: number): number;
  /** Like `victim`, among the replicas of one size class. */
  victimOfClass(tier: number, sizeClass: number): number;
  /**
   * At most `count` replicas of the tier in the order in which they would go. A policy that cannot look ahead cheaply
   * omits the method; callers then see only its next victim.
   */
  upcoming?(tier: number, count: number): number[];
  /** No copy of the content is left and its row will be reused. Its key can be read for the last time. */
  forgotten(content: number): void;
  /** Entered replicas of a tier: size class by size class, each in the order in which they would go. */
  dump(tier: number): number[];
  /** @throws if the policy's own books disagree */
  checkIntegrity(): void;
}

/** The policy and its parameters as plain data, for configurations and log headers. */
export interface EvictionChoice {
  readonly policy: string;
  readonly [parameter: string]: string | number | boolean;
}
