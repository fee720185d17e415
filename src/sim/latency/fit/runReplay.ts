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
  /** Of the step that is being put together. */
  newTokens: number;
  generated: number;
  firstTokenUs: number;
  blocks: number;
}

/**
 * When each request gets its first and last token, in the order of `requests`, which are sorted by arrival. A request that
 * has no room even alone gets infinite times.
 * @param timed how many requests, from the first, get their times; the replay ends with the last of them.
 * @throws {TierKVError} TKV_CONFIG for limits below 1.
 */
export function replayRequests(
  requests: readonly MeasuredRequest[],
  model: LatencyModel,
  limits: BatchLimits,
  timed: number = requests.length,
): RequestTimes[] {
  requireInteger('requests', limits.requests, 1);
  requireInteger('tokensPerStep', limits.tokensPerStep, 1);
  const replicas = requireInteger('replicas', limits.replicas ?? 1, 1);
  const times: RequestTimes[] = new Array(requests.length);
  for (let replica = 0; replica < replicas; replica++) {
    const own = requests.flatMap((request, index) =>
      index % replicas === replica ? [{ request, index }] : [],
    );
    replayOne(own, model, limits, timed, times);
  }
  return times;
}

function replayOne(
  requests: readonly { readonly request: MeasuredRequest; readonly index: number }[],
  model: LatencyModel,
  limits: BatchLimits,
  timed: number,
  times: RequestTimes[],
): void {
  const blockTokens = limits.blockTokens ?? 16;
  const capacity = Math.floor((limits.kvTokens ?? Number.POSITIVE_INFINITY) / blockTokens);
  const sums = new BatchSums();
  let free = capacity;
  const running: Running[] = [];
  const waiting: Running[] = []; // requests that gave way, the one that goes on first in front
  let next = 0;
  let nowUs = 0;
  let untimed = requests.filter(({ index }) => index < timed).length;

  const blocksFor = (tokens: number): number => Math.ceil(tokens / blockTokens);
  const end = (own: number, requestTimes: RequestTimes): void => {
    const { index } = requests[own];
    times[index] = requestTimes;
    if (index < timed) untimed--;
  };
  const giveUp = (request: Running): void => {
    free += request.blocks;
    request.blocks = 0;
    request.promptTokens = requests[request.index].request.promptTokens + request.generated;
    request.progressTokens = 0;
  };

  const endFinished = (): void => {
    let left = 0;
    for (const request of running) {
      const { generated, outputTokens, index, firstTokenUs } = request;
      if (generated < outputTokens || generated === 0) {
        running[left++] = request;
        continue;
      }
      end(index, { firstTokenUs, lastTokenUs: nowUs });
      free += request.blocks;
    }
    running.length = left;
  };
  /**
   * Takes steps of decodes alone at once, until a request ends, comes in or might have to give way. Most steps are of this
   * kind, and one costs what its time costs, whatever the batch.
   */
  const decode = (): void => {
    const arrivalUs = requests[next]?.request.arrivalUs ?? Number.POSITIVE_INFINITY;
    const isFull = running.length >= Math.min(limits.requests, limits.tokensPerStep);
    if (running.length > limits.tokensPerStep || (!isFull && (waiting.length > 0 || arrivalUs <= nowUs)))
      return;
    let most = Number.POSITIVE_INFINITY;
    for (const { progressTokens, promptTokens, outputTokens, generated } of running) {
      if (progressTokens < promptTokens) return;
      most = Math.min(most, outputTokens - generated);
    }
    const grown = (steps: number): number =>
      running.reduce(
        (sum, { progressTokens, blocks }) => sum + blocksFor(progressTokens + steps) - blocks,
        0,
      );
    if (grown(most) > free) return;
    sums.clear();
    for (const { progressTokens } of running) sums.addDecodes(1, progressTokens);
    let steps = 0;
    while (steps < most && (isFull || arrivalUs > nowUs)) {
      nowUs += model.stepTimeUs(sums);
      sums.advanceDecodes();
      steps++;
    }
    free -= grown(steps);
    for (const request of running) {
      request.progressTokens += steps;
      request.generated += steps;
      request.blocks = blocksFor(request.progressTokens);
    }
    if (steps === most) endFinished();
  };

  while (untimed > 0) {
    if (running.length > 0) decode();
    if (untimed === 0) break;
    if (running.length === 0 && waiting.length === 0)
      nowUs = Math.max(nowUs, requests[next].request.arrivalUs);
    let budget = limits.tokensPerStep;
    /** Takes room for what the request wants of this step, if there is any. */
    const grant = (request: Running): boolean => {
      const newTokens = Math.min(budget, Math.max(1, request.promptTokens - request.progressTokens));
      const tokens = request.progressTokens + newTokens;
      if (tokens > request.blocks * blockTokens) {
        const needed = blocksFor(tokens) - request.blocks;
        if (needed > free) return false;
        free -= needed;
        request.blocks += needed;
      }
      budget -= newTokens;
      request.newTokens = newTokens;
      return true;
    };

    let gaveWay = false;
    for (let i = 0; i < running.length && budget > 0; i++) {
      const request = running[i];
      while (!grant(request)) {
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
          end(next, { firstTokenUs: Infinity, lastTokenUs: Infinity });
          next++;
          continue;
        }
        // at least the last token of a prompt is computed
        const progressTokens = Math.min(cachedTokens, Math.max(0, promptTokens - 1));
        const state = { progressTokens, newTokens: 0, generated: 0, firstTokenUs: 0, blocks: 0 };
        request = { index: next, promptTokens, outputTokens, ...state };
      }
      if (!grant(request)) break;
      running.push(request);
      if (waiting[0] === request) waiting.shift();
      else next++;
    }
    if (budget === limits.tokensPerStep) continue;
    sums.clear();
    for (const request of running) if (request.newTokens > 0) sums.add(request);
    nowUs += model.stepTimeUs(sums);
    for (const request of running) {
      if (request.newTokens === 0) continue;
      request.progressTokens += request.newTokens;
      request.newTokens = 0;
      if (request.progressTokens < request.promptTokens) continue;
      request.generated++;
      if (request.generated === 1) request.firstTokenUs = nowUs;
    }
    endFinished();
  }
}
