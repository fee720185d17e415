/** What a step computes, as an engine wants it: for each request its tokens, and where their KV lies. */

import type { Sequence, StepPlan } from '../../runtime/index.ts';
import type { DeviceBlockTable } from '../requests/blockTables.ts';
import type { RequestContext } from '../requests/context.ts';
import { Scrubbing } from '../requests/scrubbing.ts';
import type { ScheduledRequest } from './scheduledRequest.ts';

export interface PlannedRequest {
  readonly id: string;
  /**
   * The manager's block table of the request. Another one when the request gave way and came back, so keep no
   * state of yours by it.
   */
  readonly sequence: Sequence;
  /** Prompt and answer so far: the step computes those from `start` to `end`. Good until `stepEnded`. */
  readonly tokens: Uint32Array;
  /** The first token whose KV the step writes; that of all before it is in the blocks. */
  readonly start: number;
  /** The first token that the step leaves. */
  readonly end: number;
  /** Slab and offset of each block up to `end`. Write the tokens from `start` on, and no others. */
  readonly blockTable: DeviceBlockTable;
  /** Whether the step reaches the request's last token, so that a next one is to be sampled. */
  readonly samples: boolean;
}

export interface KVStepPlan {
  /** In the order of the batch. Empty: there is nothing to compute now; await `next`. */
  readonly requests: readonly PlannedRequest[];
  /** Tokens that the step computes, over all requests. */
  readonly tokens: number;
  /** Ids of requests that joined the batch with this step. */
  readonly admitted: readonly string[];
  /** Ids of requests that gave up their blocks. They come back by themselves, with the tokens they have. */
  readonly preempted: readonly string[];
}

export const nothingToCompute: KVStepPlan = { requests: [], tokens: 0, admitted: [], preempted: [] };

/** The scheduler's plan with tokens and places; foreign slots that it writes are cleared first. */
export function planForKernels(context: RequestContext, plan: StepPlan<ScheduledRequest>): KVStepPlan {
  const { blockTokens } = context;
  const requests: PlannedRequest[] = [];
  const scrubbing = new Scrubbing(context);
  for (let seat = plan.first(); seat !== -1; seat = plan.next(seat)) {
    const request = plan.request(seat);
    const sequence = plan.sequence(seat);
    const start = plan.from(seat);
    const end = start + plan.tokensOf(seat);
    const blocks = Math.ceil(end / blockTokens);
    scrubbing.clear(sequence, Math.ceil(start / blockTokens), blocks);
    const { words, length } = request.tokenList;
    requests.push({
      id: request.id,
      sequence,
      tokens: words.subarray(0, length),
      start,
      end,
      blockTable: request.blockTable(context, sequence, blocks),
      samples: plan.samples(seat),
    });
  }
  scrubbing.submit();
  return {
    requests,
    tokens: plan.tokens,
    admitted: plan.admitted.map(({ id }) => id),
    preempted: plan.preempted.map(({ id }) => id),
  };
}
