/**
 * Replays the requests of a measured run through a model of time, with the continuous batching of vLLM: each step gives the
 * running requests their next token or the next piece of their prompt, then admits waiting ones in order while requests,
 * tokens of the step and KV memory allow. Where KV runs out the request that came last gives its blocks up and computes its
 * tokens again. What a request found in the prefix cache is taken as it was measured.
 */

import { requireInteger } from '../../../runtime/errors.ts';
import { BatchSums, type LatencyModel } from '../latencyModel.ts';
import type { MeasuredRequest } from './measuredRuns.ts';

export interface RequestTimes {
  readonly firstTokenUs: number;
  readonly lastTokenUs: number;
}

export interface BatchLimits {
  readonly requests: number;
  readonly tokensPerStep: number;
  /** Tokens of KV memory, in whole blocks; no limit unless set. */
  readonly kvTokens?: number;
  /** Tokens of a KV block; 16 unless set. */
  readonly blockTokens?: number;
  /** Engines that the requests are dealt to in turn, each with these limits; 1 unless set. */
  readonly replicas?: number;
}

interface Running {
  readonly index: number;
  /** What has to be computed before the next token: the prompt, and after giving way also what was generated. */
  promptTokens: number;
  readonly outputTokens: number;
  progressTokens: number;
  generated: number;
  firstTokenUs: number;
  blocks: number;
}

/**
 * When each request gets its first and last token, in the order of `requests`, which are sorted by arrival. A request that
 * has no room even alone gets infinite times.
 * @throws {TierKVError} TKV_CONFIG for limits below 1.
 * @param ended told of each request that has its last token
 */
export function replayRequests(
  requests: readonly MeasuredRequest[],
  model: LatencyModel,
  limits: BatchLimits,
  ended: () => void = () => {},
): RequestTimes[] {
  requireInteger('requests', limits.requests, 1);
  requireInteger('tokensPerStep', limits.tokensPerStep, 1);
  const replicas = requireInteger('replicas', limits.replicas ?? 1, 1);
  const times: RequestTimes[] = new Array(requests.length);
  for (let replica = 0; replica < replicas; replica++) {
    const own = requests.flatMap((request, index) =>
      index % replicas === replica ? [{ request, index }] : [],
    );
    replayOne(own, model, limits, times, ended);
  }
  return times;
}

function replayOne(
  requests: readonly { readonly request: MeasuredRequest; readonly index: number }[],
  model: LatencyModel,
  limits: BatchLimits,
  times: RequestTimes[],
  ended: () => void,
): void {
  const blockTokens = limits.blockTokens ?? 16;
  const capacity = Math.floor((limits.kvTokens ?? Number.POSITIVE_INFINITY) / blockTokens);
  const sums = new BatchSums();
  let free = capacity;
  let running: Running[] = [];
  const waiting: Running[] = []; // requests that gave way, the one that goes on first in front
  let next = 0;
  let nowUs = 0;

  const blocksFor = (tokens: number): number => Math.ceil(tokens / blockTokens);
  const giveUp = (request: Running): void => {
    free += request.blocks;
    request.blocks = 0;
    request.promptTokens = requests[request.index].request.promptTokens + request.generated;
    request.progressTokens = 0;
  };

  while (running.length > 0 || waiting.length > 0 || next < requests.length) {
    if (running.length === 0 && waiting.length === 0)
      nowUs = Math.max(nowUs, requests[next].request.arrivalUs);
    let budget = limits.tokensPerStep;
    const scheduled: { request: Running; newTokens: number }[] = [];
    /** Takes room for new tokens, if there is any. */
    const grant = (request: Running, newTokens: number): boolean => {
      const needed = blocksFor(request.progressTokens + newTokens) - request.blocks;
      if (needed > free) return false;
      free -= needed;
      request.blocks += needed;
      budget -= newTokens;
      scheduled.push({ request, newTokens });
      return true;
    };
    const wanted = (request: Running): number =>
      Math.min(budget, Math.max(1, request.promptTokens - request.progressTokens));

    let gaveWay = false;
    for (let i = 0; i < running.length && budget > 0; i++) {
      const request = running[i];
      while (!grant(request, wanted(request))) {
        const last = running.pop()!;
        giveUp(last);
        waiting.unshift(last);
        gaveWay = true;
        if (last === request) break;
      }
    }
    while (!gaveWay && budget > 0 && running.length < limits.requests) {
      let request = waiting[0];
      if (request === undefined) {
        if (next >= requests.length || requests[next].request.arrivalUs > nowUs) break;
        const { promptTokens, outputTokens, cachedTokens } = requests[next].request;
        if (blocksFor(promptTokens + outputTokens - 1) > capacity) {
          times[requests[next].index] = { firstTokenUs: Infinity, lastTokenUs: Infinity };
          next++;
          continue;
        }
        // at least the last token of a prompt is computed
        const progressTokens = Math.min(cachedTokens, Math.max(0, promptTokens - 1));
        const state = { progressTokens, generated: 0, firstTokenUs: 0, blocks: 0 };
        request = { index: next, promptTokens, outputTokens, ...state };
      }
      if (!grant(request, wanted(request))) break;
      running.push(request);
      if (waiting[0] === request) waiting.shift();
      else next++;
    }
    if (scheduled.length === 0) continue;
    sums.clear();
    for (const { request, newTokens } of scheduled) {
      const { promptTokens, progressTokens, outputTokens } = request;
      sums.add({ promptTokens, progressTokens, newTokens, outputTokens });
    }
    nowUs += model.stepTimeUs(sums);
    for (const { request, newTokens } of scheduled) {
      request.progressTokens += newTokens;
      if (request.progressTokens < request.promptTokens) continue;
      request.generated++;
      if (request.generated === 1) request.firstTokenUs = nowUs;
      if (request.generated < request.outputTokens) continue;
      times[requests[request.index].index] = { firstTokenUs: request.firstTokenUs, lastTokenUs: nowUs };
      ended();
      free += request.blocks;
    }
    running = running.filter(({ generated, outputTokens }) => generated < outputTokens);
  }
}
