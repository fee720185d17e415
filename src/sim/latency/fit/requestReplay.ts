/**
 * Replays the requests of a measured run through a model of time, with the continuous batching of vLLM: each
 * step gives the running requests their next token or the next piece of their prompt, then admits waiting
 * ones in order while requests and tokens of the step allow. KV memory is taken as enough, which holds for
 * the runs this is for.
 */

import { requireInteger } from '../../../runtime/errors.ts';
import { BatchSums, type ScheduledRequest } from '../batchSums.ts';
import type { LatencyModel } from '../latencyModel.ts';
import { readTable } from './measured/table.ts';

/** A request of a measured run; times in µs from the start of the run. */
export interface MeasuredRequest {
  readonly arrivalUs: number;
  readonly promptTokens: number;
  readonly outputTokens: number;
  readonly firstTokenUs: number;
  readonly lastTokenUs: number;
}

export interface RequestTimes {
  readonly firstTokenUs: number;
  readonly lastTokenUs: number;
}

export interface BatchLimits {
  readonly requests: number;
  readonly tokensPerStep: number;
}

/** Of all requests together: a fit replays the run some hundred times. */
const maxTokens = 10_000_000;

/** Reads arrival_us, prompt_tokens, output_tokens, first_token_us, last_token_us, sorted by arrival. */
export function parseMeasuredRequests(text: string, file: string): MeasuredRequest[] {
  const columns = ['arrival_us', 'prompt_tokens', 'output_tokens', 'first_token_us', 'last_token_us'];
  let tokens = 0;
  return Array.from(readTable(text, file, columns), (row) => {
    const request: MeasuredRequest = {
      arrivalUs: row.number('arrival_us'),
      promptTokens: row.integer('prompt_tokens', 0, maxTokens),
      outputTokens: row.integer('output_tokens', 1, maxTokens),
      firstTokenUs: row.number('first_token_us'),
      lastTokenUs: row.number('last_token_us'),
    };
    const { arrivalUs, firstTokenUs, lastTokenUs } = request;
    if (firstTokenUs < arrivalUs || lastTokenUs < firstTokenUs || lastTokenUs === arrivalUs) {
      const problem = 'arrival_us, first_token_us and last_token_us do not follow each other';
      throw row.error(problem, 'Mend or remove the line');
    }
    tokens += request.promptTokens + request.outputTokens;
    if (tokens > maxTokens) {
      throw row.error(`brings the run to more than ${maxTokens} tokens`, 'Give a part of the run');
    }
    return request;
  }).sort((a, b) => a.arrivalUs - b.arrivalUs);
}

interface Running {
  readonly index: number;
  readonly promptTokens: number;
  readonly outputTokens: number;
  progressTokens: number;
  firstTokenUs: number;
}

/**
 * When each request gets its first and last token, in the order of `requests`, which are sorted by arrival.
 * @throws {TierKVError} TKV_CONFIG for limits below 1.
 */
export function replayRequests(
  requests: readonly MeasuredRequest[],
  model: LatencyModel,
  limits: BatchLimits,
): RequestTimes[] {
  requireInteger('requests', limits.requests, 1);
  requireInteger('tokensPerStep', limits.tokensPerStep, 1);
  const times: RequestTimes[] = new Array(requests.length);
  const sums = new BatchSums();
  let running: Running[] = [];
  let next = 0;
  let nowUs = 0;
  while (running.length > 0 || next < requests.length) {
    if (running.length === 0) nowUs = Math.max(nowUs, requests[next].arrivalUs);
    let budget = limits.tokensPerStep;
    sums.clear();
    const scheduled: { request: Running; newTokens: number }[] = [];
    const schedule = (request: Running): void => {
      const left = request.promptTokens - request.progressTokens;
      const newTokens = Math.min(budget, Math.max(1, left));
      if (newTokens === 0) return;
      budget -= newTokens;
      const asScheduled: ScheduledRequest = {
        promptTokens: request.promptTokens,
        progressTokens: request.progressTokens,
        newTokens,
        outputTokens: request.outputTokens,
      };
      sums.add(asScheduled);
      scheduled.push({ request, newTokens });
    };
    for (const request of running) schedule(request);
    while (budget > 0 && running.length < limits.requests && next < requests.length) {
      const { arrivalUs, promptTokens, outputTokens } = requests[next];
      if (arrivalUs > nowUs) break;
      const request = { index: next, promptTokens, outputTokens, progressTokens: 0, firstTokenUs: 0 };
      running.push(request);
      schedule(request);
      next++;
    }
    nowUs += model.stepTimeUs(sums);
    for (const { request, newTokens } of scheduled) {
      request.progressTokens += newTokens;
      const generated = request.progressTokens - request.promptTokens + 1;
      if (generated === 1) request.firstTokenUs = nowUs;
      if (generated >= request.outputTokens) {
        times[request.index] = { firstTokenUs: request.firstTokenUs, lastTokenUs: nowUs };
      }
    }
    running = running.filter(({ index }) => times[index] === undefined);
  }
  return times;
}
