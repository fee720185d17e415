/** What a step that was computed has changed: one object that each `stepEnded` fills anew. */

import type { FinishReason, RequestState, ServingRequest } from './request.ts';

export class StepOutcome<R extends ServingRequest = ServingRequest> {
  /**
   * Requests that sampled a token at the end of a prefill: their first one, or the first after a preemption.
   */
  readonly started: R[] = [];
  /** Requests that ended, in batch order. */
  readonly finished: R[] = [];
  /** By index in `finished`: why. */
  readonly reasons: FinishReason[] = [];
  /** By index in `finished`: tokens that the request generated. */
  readonly outputTokens: number[] = [];

  /** For the scheduler: forgets the last step. */
  clear(): void {
    if (this.started.length > 0) this.started.length = 0;
    if (this.finished.length === 0) return;
    this.finished.length = 0;
    this.reasons.length = 0;
    this.outputTokens.length = 0;
  }

  /** For the scheduler. */
  noteFinished(state: RequestState<R>, reason: FinishReason): void {
    this.finished.push(state.request);
    this.reasons.push(reason);
    this.outputTokens.push(state.known - state.request.promptTokens);
  }
}
