/**
 * A step that touches no request: each running one computes the token it sampled last, and nobody waits,
 * lacks a block, fills one or ends. Between two tokens that fill a block every step of a batch is like that,
 * so it costs a few counters, whatever the size of the batch.
 */

import type { SchedulerCore } from '../core.ts';
import type { ServingRequest } from '../state/request.ts';

/** Whether the step that is planned now touches no request. */
export function isCalm<R extends ServingRequest>(core: SchedulerCore<R>): boolean {
  const { batch } = core;
  return (
    core.requests.size === batch.size &&
    batch.isCalm &&
    batch.size <= core.config.maxBatchedTokens &&
    core.port.disturbances === core.disturbances
  );
}

/** What `planRunning` and `admitWaiting` come to where nothing is touched. */
export function planCalm<R extends ServingRequest>(core: SchedulerCore<R>): void {
  const { plan, batch } = core;
  core.left = core.config.maxBatchedTokens - batch.decodes;
  plan.decodes = batch.decodes;
  plan.decodeContextTokens = batch.decodeContextTokens;
  plan.requests = batch.decodes;
  plan.tokens = batch.decodes;
}
