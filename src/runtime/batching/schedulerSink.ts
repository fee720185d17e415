/**
 * The scheduler's part of the decision log: every input and every decision, as plain numbers in one defined order. A
 * request is named by its number, 1 for the first that was added. One token for a decoding request is the rule and is
 * not written; a step that leaves it out is. The scheduler's calls of the manager lie between an input and its
 * `done`, and follow from it.
 */

import { type CodeName, codeNames } from '../codes.ts';

export const SchedulerInput = {
  /**
   * number, prompt tokens, most output tokens, priority, arrival; the id and the keys of the prompt follow
   */
  ADD: 0,
  /** number */
  ABORT: 1,
  STEP: 2,
  /** number: the engine saw a stop condition in the step that ends next */
  STOP: 3,
  STEP_ENDED: 4,
  /** number */
  REQUEUE: 5,
  STEP_FAILED: 6,
  /** number; further keys of its tokens follow: blocks that decoding has filled */
  KEYS: 7,
  /** pairs of a number and a rank follow */
  RERANK: 8,
  /** a step in which at most this number of waiting requests may take blocks, since others wait for room too */
  SHARED_STEP: 9,
} as const;
export type SchedulerInput = (typeof SchedulerInput)[keyof typeof SchedulerInput];
export const schedulerInputNames: readonly CodeName<typeof SchedulerInput>[] = codeNames(SchedulerInput);

export const SchedulerDecision = {
  /** number, tokens found cached, tokens of this step */
  ADMIT: 0,
  /** number, first token, tokens of this step: a part of a prefill */
  CHUNK: 1,
  /** number: its matched blocks are on their way; it waits beside the queue */
  DEFER: 2,
  /** number: it gives up the blocks that it held while waiting */
  YIELD: 3,
  /** number, computed tokens: it gives up its blocks and its place in the batch */
  PREEMPT: 4,
  /** number: the step leaves this decoding request out */
  SKIP: 5,
  /** requests, tokens, decodes: the step as a whole */
  PLAN: 6,
  /** number, reason, output tokens */
  FINISH: 7,
  /** number, blocks to compute from the front, blocks to load from the back */
  MEET: 8,
} as const;
export type SchedulerDecision = (typeof SchedulerDecision)[keyof typeof SchedulerDecision];
export const schedulerDecisionNames: readonly CodeName<typeof SchedulerDecision>[] =
  codeNames(SchedulerDecision);

/** The properties of an added request beside those numbers. The keys must be copied to be kept. */
export interface AddedRequest {
  readonly id: string;
  readonly owner: number;
  /** Four words a block. */
  readonly keys: Uint32Array;
}

export interface SchedulerSink {
  input(
    op: SchedulerInput,
    nowUs: number,
    a: number,
    b: number,
    c: number,
    d: number,
    e: number,
    added?: AddedRequest,
    ranks?: readonly number[],
  ): void;
  decision(op: SchedulerDecision, a: number, b: number, c: number): void;
  /** Everything that the last input caused has been done. */
  done?(): void;
}
