/**
 * Replays the requests of a measured run through a model of time, with the continuous batching of vLLM: each step gives the
 * running requests their next token or the next piece of their prompt, then admits waiting ones in order while requests,
 * tokens of the step and KV memory allow. Where KV runs out the request that came last gives its blocks up and computes its
 * tokens again. What a request found in the prefix cache is taken as it was measured.
 */

import { requireInteger } from '../../../runtime/errors.ts';
import * as is from '../../../runtime/kinds.ts';
import { checkInputs } from '../../../runtime/options.ts';
import { BatchSums, type LatencyModel } from '../latencyModel.ts';
import type { MeasuredRequest } from './measuredRuns.ts';

export interface RequestTimes {
  readonly firstTokenUs: number;
  readonly lastTokenUs: number;
}

export interface BatchLimits {
  readonly requests: number;
  readonly tokensPerStep: number;
  /** Most tokens of one prompt in a step; as many as the step has unless set. */
  readonly tokensPerPrompt?: number;
  /** Tokens of KV memory, in whole blocks; no limit unless set. */
  readonly kvTokens?: number;
  /** Tokens of a KV block; 16 unless set. */
  readonly blockTokens?: number;
  /** Engines that the requests are dealt to in turn, each with these limits; 1 unless set. */
  readonly replicas?: number;
}

interface Running {
  readonly index: number;
  /** Tokens to compute before the next token: the prompt, and after a preemption the generated ones too. */
  promptTokens: number;
  readonly outputTokens: number;
  progressTokens: number;
  generated: number;
  firstTokenUs: number;
  blocks: number;
}

/** A step that began at a time, how long it took, and its batch. */
type StepSeen = (fromUs: number, us: number, batch: BatchSums) => void;

/**
 * When each request gets its first and last token, in the order of `requests`, which are sorted by arrival. A request that
 * has no room even alone gets infinite times.
 * @throws {TierKVError} TKV_CONFIG for limits below 1.
 * @param told of each request that has its last token
 * @param stepped told of each step, with the batch only as long as the call lasts
 */
export function replayRequests(
  requests: readonly MeasuredRequest[],
  model: LatencyModel,
  limits: BatchLimits,
  told: () => void = () => {},
  stepped: StepSeen = () => {},
): RequestTimes[] {
  checkInputs(
    { requests, model, limits },
    {
      requests: is.list(is.fields({ arrivalUs: is.number(), promptTokens: is.number() })),
      model: is.fields({ stepTimeUs: is.func() }),
      limits: is.fields({ requests: is.number(), tokensPerStep: is.number() }),
    },
  );
  requireInteger('requests', limits.requests, 1);
  requireInteger('tokensPerStep', limits.tokensPerStep, 1);
  if (limits.tokensPerPrompt !== undefined) requireInteger('tokensPerPrompt', limits.tokensPerPrompt, 1);
  const replicas = requireInteger('replicas', limits.replicas ?? 1, 1);
  const times: RequestTimes[] = new Array(requests.length);
  for (let replica = 0; replica < replicas; replica++)
    replayOne(requests, replica, replicas, model, limits, times, told, stepped);
  return times;
}

/** Replays what one engine gets: each `stride`-th request from `first` on. */
function replayOne(
  requests: readonly MeasuredRequest[],
  first: number,
  stride: number,
  model: LatencyModel,
  limits: BatchLimits,
  times: RequestTimes[],
  told: () => void,
  stepped: StepSeen,
): void {
  const blockTokens = limits.blockTokens ?? 16;
  const ofPrompt = limits.tokensPerPrompt ?? Number.POSITIVE_INFINITY;
  const capacity = Math.floor((limits.kvTokens ?? Number.POSITIVE_INFINITY) / blockTokens);
  const sums = new BatchSums(model.windowTokens);
  let free = capacity;
  let running: Running[] = [];
  const waiting: Running[] = []; // requests that gave way, the one that goes on first in front
  let next = first;
  let nowUs = 0;
  let budget = 0;
  // the step being formed: its requests, and the new tokens of each
  const scheduled: Running[] = [];
  const newTokensOf: number[] = [];
  const part = { promptTokens: 0, progressTokens: 0, newTokens: 0, outputTokens: 0 };

  const step = (): void => {
    const us = model.stepTimeUs(sums);
    stepped(nowUs, us, sums);
    nowUs += us;
  };
  const blocksFor = (tokens: number): number => Math.ceil(tokens / blockTokens);
  const giveUp = (request: Running): void => {
    free += request.blocks;
    request.blocks = 0;
    request.promptTokens = requests[request.index].promptTokens + request.generated;
    request.progressTokens = 0;
  };
  /** Takes room for new tokens, if there is any. */
  const grant = (request: Running, newTokens: number): boolean => {
    const needed = blocksFor(request.progressTokens + newTokens) - request.blocks;
    if (needed > free) return false;
    free -= needed;
    request.blocks += needed;
    budget -= newTokens;
    scheduled.push(request);
    newTokensOf.push(newTokens);
    return true;
  };
  const wanted = (request: Running): number =>
    Math.min(budget, ofPrompt, Math.max(1, request.promptTokens - request.progressTokens));
  const mayJoin = (): boolean =>
    running.length < limits.requests &&
    running.length < limits.tokensPerStep &&
    (waiting.length > 0 || (next < requests.length && requests[next].arrivalUs <= nowUs));
  /**
   * Steps in which every running request gets one token, until one ends or another may join: each costs a look at the
   * sums, however many requests run. None where a request prefills, or blocks may run out.
   */
  const decodeOn = (): void => {
    if (running.length === 0 || running.length > limits.tokensPerStep || mayJoin()) return;
    if (sums.windowTokens > 0) return; // decodes leave the window one by one
    let steps = Number.POSITIVE_INFINITY;
    let contextTokens = 0;
    for (const { promptTokens, progressTokens, generated, outputTokens } of running) {
      if (progressTokens < promptTokens) return;
      steps = Math.min(steps, outputTokens - generated - 1); // the last token ends the request
      contextTokens += progressTokens;
    }
    if (steps < 1) return;
    let needed = 0;
    for (const { progressTokens, blocks } of running) needed += blocksFor(progressTokens + steps) - blocks;
    if (needed > free) return;
    sums.clear();
    sums.addDecodes(running.length, contextTokens);
    let done = 0;
    while (done < steps && (done === 0 || !mayJoin())) {
      step();
      sums.advanceDecodes();
      done++;
    }
    for (const request of running) {
      request.progressTokens += done;
      request.generated += done;
      const blocks = blocksFor(request.progressTokens);
      free -= blocks - request.blocks;
      request.blocks = blocks;
    }
  };

  while (running.length > 0 || waiting.length > 0 || next < requests.length) {
    if (running.length === 0 && waiting.length === 0) nowUs = Math.max(nowUs, requests[next].arrivalUs);
    decodeOn();
    budget = limits.tokensPerStep;
    scheduled.length = 0;
    newTokensOf.length = 0;

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
        if (next >= requests.length || requests[next].arrivalUs > nowUs) break;
        const { promptTokens, outputTokens, cachedTokens } = requests[next];
        if (blocksFor(promptTokens + outputTokens - 1) > capacity) {
          times[next] = { firstTokenUs: Infinity, lastTokenUs: Infinity };
          next += stride;
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
      else next += stride;
    }
    if (scheduled.length === 0) continue;
    sums.clear();
    let decodes = 0;
    let contextTokens = 0;
    let windowTokens = 0;
    for (let i = 0; i < scheduled.length; i++) {
      const { promptTokens, progressTokens, outputTokens } = scheduled[i];
      if (progressTokens >= promptTokens) {
        decodes++;
        contextTokens += progressTokens;
        windowTokens += sums.inWindow(progressTokens);
        continue;
      }
      part.promptTokens = promptTokens;
      part.progressTokens = progressTokens;
      part.newTokens = newTokensOf[i];
      part.outputTokens = outputTokens;
      sums.add(part);
    }
    sums.addDecodes(decodes, contextTokens, windowTokens);
    step();
    let ended = false;
    for (let i = 0; i < scheduled.length; i++) {
      const request = scheduled[i];
      request.progressTokens += newTokensOf[i];
      if (request.progressTokens < request.promptTokens) continue;
      request.generated++;
      if (request.generated === 1) request.firstTokenUs = nowUs;
      if (request.generated < request.outputTokens) continue;
      times[request.index] = { firstTokenUs: request.firstTokenUs, lastTokenUs: nowUs };
      told();
      free += request.blocks;
      ended = true;
    }
    if (ended) running = running.filter(({ generated, outputTokens }) => generated < outputTokens);
  }
}
