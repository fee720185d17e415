/**
 * Who leaves a tier first. One policy serves all tiers of a manager. It orders the replicas that may be
 * evicted: READY, and held by no sequence. It never sees bytes, keeps no clock and draws no random numbers;
 * the manager tells it the time.
 *
 *     held --(last sequence lets go)--> enter --(a sequence holds it again)--> leave
 *                                         |
 *                                         +--(evicted, or lost)--> leave, then forgotten once no copy is left
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
  /** Bytes that each tier holds now, held blocks and those on their way in included. */
  readonly residentBytes: ArrayLike<number>;
  /** Rows that contents have: content numbers are below this. */
  readonly contents: number;
  /** Whether tables are to have room for all replicas and contents from the start, so that no call waits. */
  readonly whole: boolean;
  /** The manager's time, in integer microseconds. */
  nowUs(): number;
  /** How often the replica's slot was taken: another number means another use of the slot. */
  generationOf(replica: number): number;
  /** Content of the block before it in its chain; negative for none, or for one that is not known. */
  parentOf(content: number): number;
  /** The four words of the content's key, read from `keys[content * 4]` on. Replaced when the table grows. */
  readonly keys: Uint32Array;
  /** Tokens of each content. Replaced when the table grows, as is `owner`. */
  readonly tokens: ArrayLike<number>;
  /** Owner of each content. */
  readonly owner: ArrayLike<number>;
}

/** One sequence's use of a chain: told block by block, the first one first. */
export interface Visit {
  /** Which use of how many so far; counts from 1. */
  readonly number: number;
  /** Blocks that the sequence asked for. */
  readonly blocks: number;
  /** Of these, blocks that were found. */
  readonly matched: number;
}

/** A hint about contents that nobody holds. It never keeps anything for ever. */
export interface Retention {
  /** From -100 to 100: higher is kept longer than what is otherwise alike. 0 says nothing. */
  readonly priority: number;
  /** In microseconds of the manager's time: until then it should stay if it can. 0 says nothing. */
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
  /** How a caller would like the content to be kept. `RetentionPolicy` heeds it for all policies. */
  retain?(content: number, retention: Retention): void;
  /**
   * The replica of the tier that should go next, or -1 when none has entered. Asked again, with nothing else
   * in between, the answer is the same.
   */
  victim(tier: number): number;
  /** The same among replicas of one size class. */
  victimOfClass(tier: number, sizeClass: number): number;
  /**
   * Replicas of the tier that would go next, the first one first, at most so many. A policy that cannot look
   * ahead cheaply leaves it out: then it is the next one alone.
   */
  upcoming?(tier: number, count: number): number[];
  /**
   * No copy of the content is left, and its row will be used for another one. Its key can be read for the
   * last time.
   */
  forgotten(content: number): void;
  /** Entered replicas of a tier: size class by size class, each in the order in which they would go. */
  dump(tier: number): number[];
  /** @throws when the policy's own books disagree */
  checkIntegrity(): void;
}

/** What a configuration or a log header names: the policy and its parameters, as plain data. */
export interface EvictionChoice {
  readonly policy: string;
  readonly [parameter: string]: string | number | boolean;
}
