/**
 * Events of a manager that can be watched: each place where a block or a job changes, as plain numbers. An observer
 * decides nothing and enters no log, so a manager decides alike with one and without. Its calls come in the middle of
 * the manager's own: it may read, and makes no call that is an input. A tier is its position, 0 the fastest.
 */

import type { InputOp } from '../log/decisionSink.ts';
import type { Outcome } from '../tier/tier.ts';
import type { SequenceId } from './sequence.ts';

export interface ManagerObserver {
  /** An input begins: until the next one, what follows is its doing. @param sequence whose call it is, or -1 */
  asked?(op: InputOp, sequence: number): void;
  /**
   * A sequence of an owner asked for `blocks` blocks, and its first `matched` ones are found: `found` follows for each.
   * `keys` has four words a block; copy what is to be kept.
   */
  opened?(sequence: SequenceId, owner: number, keys: Uint32Array, blocks: number, matched: number): void;
  /** A sequence that just opened found the content, ready in the tier or on its way there. */
  found?(content: number, tier: number): void;
  /** A sequence has written the content and seals it. */
  sealed?(content: number): void;
  /** Blocks of the sequence that a lower tier has, or was to bring, are computed instead: from block `from` on. */
  recomputed?(sequence: SequenceId, blocks: number, from: number): void;
  /**
   * A block of the sequence could not be brought: it is to be computed.
   * @param block its number in the sequence
   * @param content what it was to hold; -1 where that is not known any more
   */
  failed?(sequence: SequenceId, block: number, content: number, outcome: Outcome): void;
  /** The tier's store has no right bytes of the content: `unpublished` follows. */
  damaged?(content: number, tier: number, outcome: Outcome): void;
  closed?(sequence: SequenceId): void;
  /** Lookups find the content in this replica from now on. */
  published?(replica: number, content: number, tier: number): void;
  /** Lookups do not find it there any more. */
  unpublished?(replica: number, content: number, tier: number): void;
  /** The eviction policy chose the replica; `demoted` or `dropped` follows where the tier had its last copy. */
  evicted?(replica: number, content: number, tier: number): void;
  /** An evicted block is on its way to a lower tier. */
  demoted?(content: number, tier: number, lower: number): void;
  /** An evicted block is gone from the cache. */
  dropped?(content: number, tier: number): void;
  /** No tier has the content and no job brings it: its number may name another one from now on. */
  forgotten?(content: number): void;
  /** The driver gets a job. @param from the tier of its source; -1 for a seal, whose block lies where it is */
  issued?(row: number, from: number, to: number, bytes: number): void;
  /**
   * A job's end has come.
   * @param givenUp its waiters went on without it before: it was late or called off
   */
  ended?(row: number, from: number, to: number, bytes: number, outcome: Outcome, givenUp: boolean): void;
  /** A job is past its deadline and given up. */
  overdue?(row: number, from: number, to: number, bytes: number): void;
}

const hooks = {
  asked: true,
  opened: true,
  found: true,
  sealed: true,
  recomputed: true,
  failed: true,
  damaged: true,
  closed: true,
  published: true,
  unpublished: true,
  evicted: true,
  demoted: true,
  dropped: true,
  forgotten: true,
  issued: true,
  ended: true,
  overdue: true,
} as const satisfies Readonly<Record<keyof ManagerObserver, true>>;

export const managerObserverNames: readonly (keyof ManagerObserver)[] = Object.keys(
  hooks,
) as (keyof ManagerObserver)[];

/** One observer that calls each of several, in order; null for none. */
export function observersAsOne(observers: readonly ManagerObserver[]): ManagerObserver | null {
  if (observers.length < 2) return observers[0] ?? null;
  const one: Record<string, unknown> = {};
  for (const hook of Object.keys(hooks) as (keyof ManagerObserver)[]) {
    const watching = observers.filter((observer) => observer[hook] !== undefined);
    if (watching.length === 0) continue;
    one[hook] = (...numbers: unknown[]): void => {
      for (const observer of watching) {
        (observer[hook] as (...all: unknown[]) => void).apply(observer, numbers);
      }
    };
  }
  return one;
}
