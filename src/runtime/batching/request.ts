/**
 * A request as a server hands it to the scheduler, and what the scheduler keeps of it.
 *
 *     WAITING --room--> PREFILL --all known tokens computed--> DECODE --> ENDED
 *       |  ^               |                                     |
 *       v  | loads ended   +------------- preempted -------------+--> WAITING
 *     LOADING
 *
 * `known` counts the tokens that exist (prompt and generated), `computed` those whose KV is in the blocks. A
 * step computes some of the tokens between the two; when it computes the last of them it samples the next
 * token.
 */

import { invariant } from '../errors.ts';
import type { BlockKeys } from '../keys/keyChain.ts';
import type { Sequence } from '../manager/sequence.ts';

/** A request as a `Scheduler` must know it. */
export interface ServingRequest {
  /** Unique among the requests that have not ended. */
  readonly id: string;
  readonly promptTokens: number;
  /** Most tokens to generate. 0 and 1 both end with the prefill, which samples one token. */
  readonly maxOutputTokens: number;
  /**
   * Keys of the full blocks of tokens known so far. The caller appends keys as tokens come; a
   * block without a key stays private to its request and is never found by another one.
   */
  readonly keys: BlockKeys;
  /** Owner that its blocks count for, as the manager counts owners. Default 0. */
  readonly owner?: number;
  /** Lower is more urgent. Default 0. */
  readonly priority?: number;
  /** Microseconds. Default: the time at which it was added. */
  readonly arrivalUs?: number;
}

export const Phase = {
  /** In the waiting queue. */
  WAITING: 0,
  /** Outside the queue, holding its matched blocks while they are on their way to HBM. */
  LOADING: 1,
  /** In the batch, with more than its newest token to compute. */
  PREFILL: 2,
  /** In the batch, with one token to compute a step. */
  DECODE: 3,
  ENDED: 4,
} as const;
export type Phase = (typeof Phase)[keyof typeof Phase];

/** Why a request ended. */
export const FinishReason = {
  /** It generated `maxOutputTokens` tokens. */
  LENGTH: 0,
  /** The engine saw a stop condition. */
  STOP: 1,
  /** The model's length limit, or HBM, has no room for more of its tokens. */
  CAPACITY: 2,
  /** `abort` was called. */
  ABORTED: 3,
} as const;
export type FinishReason = (typeof FinishReason)[keyof typeof FinishReason];
export const finishReasonNames = ['length', 'stop', 'capacity', 'aborted'] as const;

export class RequestState<R extends ServingRequest = ServingRequest> {
  readonly request: R;
  /** Names the request in logs: 1 for the first that was added. */
  readonly number: number;
  readonly priority: number;
  readonly arrivalUs: number;
  /** Known tokens, prompt and output, at which the request ends. */
  readonly limitTokens: number;
  phase: Phase = Phase.WAITING;
  known: number;
  /** Exact while not decoding; a decoding request's count is kept by the batch. */
  computed = 0;
  /** Leading blocks that are published or being published, and need no seal. */
  sealed = 0;
  sequence: Sequence | null = null;
  /** Leading blocks that the sequence has: matched, or opened. */
  blocks = 0;
  /** Whether the prefill runs from both ends: found blocks load while the request computes. */
  isTwoEnded = false;
  /** Found blocks that the request computed itself. */
  recomputed = 0;
  /** Place in the batch, or -1. */
  seat = -1;
  /** Index in the waiting queue's heap; -1 while it does not wait, and less where it waits beside the heap. */
  heapIndex = -1;
  /** Order of joining the waiting queue; a request that was put in front has a negative one. */
  ticket = 0;
  preemptions = 0;
  /** Set by `rerank`: among waiting requests, the lowest joins first. */
  queueRank = 0;
  /** Set by `rerank`: among running requests, the highest is preempted first. */
  victimRank = 0;
  /** `sequence.disturbances` when its blocks were last found in place. */
  disturbances = 0;
  /** Keys that are in the log. */
  loggedKeys: number;

  constructor(request: R, number: number, limitTokens: number, nowUs: number) {
    invariant(limitTokens > request.promptTokens, 'a request generates at least one token');
    this.request = request;
    this.loggedKeys = request.keys.length;
    this.number = number;
    this.limitTokens = limitTokens;
    this.known = request.promptTokens;
    this.priority = request.priority ?? 0;
    this.arrivalUs = request.arrivalUs ?? nowUs;
  }

  get owner(): number {
    return this.request.owner ?? 0;
  }
}
