/** What an engine hands in after a step, checked as a whole before anything is done, and what comes of it. */

import { finishReasonNames, type StepOutcome, type StepPlan, TierKVError } from '../../runtime/index.ts';
import { described, optionNames, requireFlag, requireOptions } from '../../runtime/options.ts';
import { requireTokenId } from '../prompts/tokenList.ts';
import type { ScheduledRequest } from './scheduledRequest.ts';

export interface SampledToken {
  readonly id: string;
  readonly token: number;
  /** The answer ends with this token, for instance because it completes a stop string. Default false. */
  readonly stop?: boolean | undefined;
}

export const sampledTokenNames: readonly string[] = optionNames<SampledToken>({
  id: true,
  token: true,
  stop: true,
});

export interface FinishedRequest {
  readonly id: string;
  /**
   * `stop`: a stop token, or the engine said so. `length`: it has `maxTokens`. `capacity`: the model's limit,
   * or HBM, holds no more. `aborted`: `abort` was called.
   */
  readonly reason: (typeof finishReasonNames)[number];
  /** The tokens that were generated, the one that ended the answer included. */
  readonly tokens: Uint32Array;
}

export interface KVStepOutcome {
  /**
   * The step brought nothing, because bytes were lost while it ran. All its requests are computed again, with
   * the tokens they had before.
   */
  readonly interrupted: boolean;
  /** Requests that ended, in batch order. */
  readonly finished: readonly FinishedRequest[];
}

/**
 * Gives each request of the plan that samples its token.
 * @param step number of the step
 * @returns ids of requests that stop with their token
 * @throws TKV_INPUT naming the entry for a token that is no id, a request that samples nothing in this step,
 * or one that is named twice or missing; nothing is done then
 */
export function takeTokens(
  plan: StepPlan<ScheduledRequest>,
  requests: ReadonlyMap<string, ScheduledRequest>,
  sampled: readonly SampledToken[],
  step: number,
): string[] {
  if (!Array.isArray(sampled)) throw wrong('sampled', 'is no list. Pass { id, token } of each request');
  const expected = new Set<ScheduledRequest>();
  for (let seat = plan.first(); seat !== -1; seat = plan.next(seat)) {
    if (plan.samples(seat)) expected.add(plan.request(seat));
  }
  sampled.forEach((each, i) => {
    const { id, token, stop } = requireOptions(each, sampledTokenNames, `sampled[${i}]`);
    requireFlag(stop, `sampled[${i}].stop`);
    requireTokenId(token, `sampled[${i}].token`);
    const request = requests.get(id);
    if (request === undefined || !expected.has(request)) {
      const why = request?.sampledIn === step ? 'has its token already' : 'samples nothing in this step';
      throw wrong(`sampled[${i}].id`, `is ${described(id)}, which ${why}`);
    }
    expected.delete(request);
    request.sampledIn = step;
  });
  for (const request of expected) {
    if (!request.isAborted) throw wrong('sampled', `has no token of ${JSON.stringify(request.id)}`);
  }
  const stopped: string[] = [];
  for (const { id, token, stop = false } of sampled) {
    const request = requests.get(id) as ScheduledRequest; // found above
    request.push(token);
    if (stop || request.stopTokens.has(token)) stopped.push(id);
  }
  return stopped;
}

export function finishedOf(outcome: StepOutcome<ScheduledRequest>): FinishedRequest[] {
  return outcome.finished.map(({ id, tokenList, promptTokens }, i) => ({
    id,
    reason: finishReasonNames[outcome.reasons[i]],
    tokens: tokenList.words.slice(promptTokens, tokenList.length),
  }));
}

function wrong(field: string, problem: string): TierKVError {
  return new TierKVError(
    'TKV_INPUT',
    `${field} ${problem}. Hand in one token of each request of the plan that samples.`,
    { field },
  );
}
