/**
 * The replay of a measured run passes over steps in which all requests only decode. A plain loop that forms each step anew,
 * and adds up each request, has the same times to the microsecond.
 */

import fc from 'fast-check';
import { expect, it } from 'vitest';
import type { MeasuredRequest } from '../../../src/sim/latency/fit/measuredRuns.ts';
import {
  type BatchLimits,
  type RequestTimes,
  replayRequests,
} from '../../../src/sim/latency/fit/runReplay.ts';
import { type BatchSums, type LatencyModel, sumBatch } from '../../../src/sim/latency/latencyModel.ts';

/** Every sum counts, so that a step that is wrong in any of them shows. */
const modelOf = (windowTokens: number): LatencyModel => ({
  backend: 'plain',
  windowTokens,
  stepTimeUs: (batch: BatchSums) =>
    Math.trunc(
      900 +
        7 * batch.tokens +
        batch.prefillCausalPairs2 / 50 +
        batch.decodeContextTokens / 9 +
        batch.decodeWindowTokens +
        batch.sampledTokens,
    ),
  explain: () => [],
  queueingTimeUs: () => 0,
  outputTokenProcessingUs: 0,
  postDecodeOverheadUs: 0,
});

interface One {
  readonly i: number;
  prompt: number;
  done: number;
  made: number;
  blocks: number;
  firstUs: number;
}

/** Step by step: who runs gets tokens in order, the last gives way where blocks run out, then who waits joins. */
function plainly(all: readonly MeasuredRequest[], model: LatencyModel, limits: BatchLimits): RequestTimes[] {
  const size = limits.blockTokens ?? 16;
  const capacity = Math.floor((limits.kvTokens ?? Infinity) / size);
  const times: RequestTimes[] = all.map(() => ({ firstTokenUs: Infinity, lastTokenUs: Infinity }));
  const fits = all.map(
    ({ promptTokens, outputTokens }) => Math.ceil((promptTokens + outputTokens - 1) / size) <= capacity,
  );
  const coming = all.map((_, i) => i).filter((i) => fits[i]);
  const queue: One[] = [];
  let running: One[] = [];
  let nowUs = 0;
  const used = (): number => running.reduce((sum, { blocks }) => sum + blocks, 0);
  while (running.length + queue.length + coming.length > 0) {
    if (running.length + queue.length === 0) nowUs = Math.max(nowUs, all[coming[0]].arrivalUs);
    let budget = limits.tokensPerStep;
    const step = new Map<One, number>();
    const take = (one: One): boolean => {
      const tokens = Math.min(budget, Math.max(1, one.prompt - one.done));
      const blocks = Math.ceil((one.done + tokens) / size);
      if (used() - (running.includes(one) ? one.blocks : 0) + blocks > capacity) return false;
      one.blocks = blocks;
      budget -= tokens;
      step.set(one, tokens);
      return true;
    };
    let gaveWay = false;
    for (let at = 0; at < running.length && budget > 0; at++) {
      const one = running[at];
      while (!take(one)) {
        const last = running.pop() as One;
        Object.assign(last, { blocks: 0, done: 0, prompt: all[last.i].promptTokens + last.made });
        queue.unshift(last);
        gaveWay = true;
        if (last === one) break;
      }
    }
    while (!gaveWay && budget > 0 && running.length < limits.requests) {
      const isNew = queue.length === 0;
      if (isNew && (coming.length === 0 || all[coming[0]].arrivalUs > nowUs)) break;
      const { promptTokens, cachedTokens } = all[coming[0]] ?? { promptTokens: 1, cachedTokens: 0 };
      const found = Math.min(cachedTokens, promptTokens - 1);
      const one = isNew
        ? { i: coming[0], prompt: promptTokens, done: found, made: 0, blocks: 0, firstUs: 0 }
        : queue[0];
      if (!take(one)) break;
      running.push(one);
      (isNew ? coming : queue).shift();
    }
    if (step.size === 0) continue;
    const batch = [...step].map(([one, newTokens]) => {
      return {
        promptTokens: one.prompt,
        progressTokens: one.done,
        newTokens,
        outputTokens: all[one.i].outputTokens,
      };
    });
    nowUs += model.stepTimeUs(sumBatch(batch, model.windowTokens));
    for (const [one, tokens] of step) {
      one.done += tokens;
      if (one.done < one.prompt) continue;
      if (++one.made === 1) one.firstUs = nowUs;
      if (one.made === all[one.i].outputTokens)
        times[one.i] = { firstTokenUs: one.firstUs, lastTokenUs: nowUs };
    }
    running = running.filter(({ i, made }) => made < all[i].outputTokens);
  }
  return times;
}

it('on runs of any load, memory and window', () => {
  const request = fc.record({
    gapUs: fc.nat(60_000),
    promptTokens: fc.integer({ min: 1, max: 200 }),
    outputTokens: fc.integer({ min: 1, max: 60 }),
    cachedTokens: fc.nat(100),
  });
  const limits = fc.record({
    requests: fc.integer({ min: 1, max: 12 }),
    tokensPerStep: fc.integer({ min: 1, max: 200 }),
    kvTokens: fc.oneof(fc.constant(Infinity), fc.integer({ min: 200, max: 900 })),
    blockTokens: fc.constantFrom(4, 16),
  });
  fc.assert(
    fc.property(
      fc.array(request, { minLength: 1, maxLength: 25 }),
      limits,
      fc.constantFrom(0, 20),
      (rows, limit, window) => {
        let arrivalUs = 0;
        const requests = rows.map(({ gapUs, ...lengths }): MeasuredRequest => {
          arrivalUs += gapUs;
          return { ...lengths, arrivalUs, firstTokenUs: 0, lastTokenUs: 0 };
        });
        const model = modelOf(window);
        expect(replayRequests(requests, model, limit)).toEqual(plainly(requests, model, limit));
      },
    ),
    { numRuns: 150 },
  );
});
