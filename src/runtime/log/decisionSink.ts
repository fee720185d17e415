/**
 * The decision log. The manager writes every input that it is given and every decision that it takes to a
 * sink, as plain numbers in one defined order. The same inputs give the same decisions, so the log of a run
 * on a real GPU can be replayed on another driver and compared byte for byte.
 */

import type { ResolvedSchedulerConfig } from '../batching/config.ts';
import type { SchedulerSink } from '../batching/schedulerSink.ts';

export const InputOp = {
  OPEN: 0,
  LOAD: 1,
  ALLOCATE: 2,
  SEAL: 3,
  RELEASE: 4,
  PREEMPT: 5,
  PREFETCH: 6,
  EVICT: 7,
  COMPLETE: 8,
  CANCEL: 9,
  TICK: 10,
  DEADLINE: 11,
  LOSE: 12,
  ADOPT: 13,
  COPY: 14,
  TRUNCATE: 15,
  MOVE: 16,
  RETAIN: 17,
  DEMOTE: 18,
  QUOTA: 19,
  KEEP: 20,
  LOAD_BACK: 21,
  RECOMPUTE: 22,
} as const;
export type InputOp = (typeof InputOp)[keyof typeof InputOp];
export const inputOpNames = [
  'open',
  'load',
  'allocate',
  'seal',
  'release',
  'preempt',
  'prefetch',
  'evict',
  'complete',
  'cancel',
  'tick',
  'deadline',
  'lose',
  'adopt',
  'copy',
  'truncate',
  'move',
  'retain',
  'demote',
  'quota',
  'keep',
  'loadBack',
  'recompute',
] as const;

/**
 * In comments: the meaning of the numbers that follow. A tier is its position in the configuration, 0 = HBM.
 */
export const DecisionOp = {
  /** sequence, blocks, matched, matched in HBM, matched in the next tier */
  MATCH: 0,
  /** tier, slot, generation */
  RESERVE: 1,
  /** job, source tier, source slot, target tier, target slot */
  ISSUE: 2,
  /** tier, slot, generation: an evictable replica was chosen to leave */
  EVICT: 3,
  /** tier, slot, generation: it goes without moving down */
  DROP: 4,
  /** tier, slot, generation */
  PUBLISH: 5,
  /** tier, slot, generation */
  FREE: 6,
  /** sequence, block, outcome */
  FAIL: 7,
  /** sequence, from, to: no room and nothing to evict */
  REFUSE: 8,
  /** tier, slot, generation: wrong bytes, never to be read */
  QUARANTINE: 9,
} as const;
export type DecisionOp = (typeof DecisionOp)[keyof typeof DecisionOp];
export const decisionOpNames = [
  'match',
  'reserve',
  'issue',
  'evict',
  'drop',
  'publish',
  'free',
  'fail',
  'refuse',
  'quarantine',
] as const;

export interface DecisionSink {
  /**
   * A call with its arguments, and the words that belong to it where it has some: four a block where they are
   * keys. The words must be copied to be kept.
   */
  input(op: InputOp, nowUs: number, args: readonly number[], words?: Uint32Array): void;
  decision(op: DecisionOp, a: number, b: number, c: number, d: number, e: number): void;
  /** A scheduler begins on the manager: what it is given and decides goes to the sink that this returns. */
  scheduler?(head: SchedulerHead, nowUs: number): SchedulerSink;
}

/** What a scheduler on the manager is made from. */
export interface SchedulerHead extends ResolvedSchedulerConfig {
  readonly blockTokens: number;
  readonly sizeClass: number;
}
