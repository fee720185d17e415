/**
 * Dynamo's planner: by predicted traffic, by what engines are predicted to take, and by plain thresholds. An
 * engine is known by three figures: prefill of a prompt token, and a token's time with a batch of b,
 * alpha + beta x b.
 */

import { noMemory } from '../policy.ts';
import type { AutoScalePolicy, LoadSample } from './autoScalePolicy.ts';
import { towards } from './reactive.ts';

export const poolNames = ['shared', 'prefill', 'decode'] as const;
/** Work of a pool's replicas: prompts, output, or both. */
export type PoolKind = (typeof poolNames)[number];

export const forecastNames = ['constant', 'linear'] as const;
export type Forecast = (typeof forecastNames)[number];

export interface EngineModel {
  readonly prefillUs: number;
  readonly alphaUs: number;
  readonly betaUs: number;
  /** Targets. */
  readonly ttftUs: number;
  readonly tpotUs: number;
}

/** Time of a token with a batch of that size. */
function tokenUs({ alphaUs, betaUs }: EngineModel, batch: number): number {
  return alphaUs + betaUs * batch;
}

/** Arrivals a second one reading ahead: as in the last one, or on the least-squares line through all. */
function forecastRate(history: readonly LoadSample[], forecast: Forecast): number {
  const last = history[history.length - 1];
  const n = history.length;
  if (forecast === 'constant' || n < 2) return last.requestRate;
  const meanUs = history.reduce((sum, { timeUs }) => sum + timeUs, 0) / n;
  const meanRate = history.reduce((sum, { requestRate }) => sum + requestRate, 0) / n;
  let covariance = 0;
  let variance = 0;
  for (const { timeUs, requestRate } of history) {
    covariance += (timeUs - meanUs) * (requestRate - meanRate);
    variance += (timeUs - meanUs) * (timeUs - meanUs);
  }
  const nextUs = last.timeUs + (last.timeUs - history[0].timeUs) / (n - 1);
  const slope = variance === 0 ? 0 : covariance / variance;
  return Math.max(0, meanRate + slope * (nextUs - meanUs));
}

/**
 * Scales by throughput. With a rate of r requests of I prompt and O output tokens, P = I x (1 - hit rate) x prefill:
 * prefill takes ceil(max(r x P, P / TTFT target)) replicas. A decode replica serves b / (O x (alpha + beta b)) a
 * second, for the largest b that meets the target, fits the batch, and fits HBM at I + O / 2 tokens each; decode takes
 * ceil(r / that). Replicas that do both give a share of their time to each: ceil of the sum.
 */
export function dynamoThroughput(
  model: EngineModel,
  pool: PoolKind,
  forecast: Forecast,
  hitRate: number,
): AutoScalePolicy {
  function largestBatch(
    replica: { maxBatch: number; kvCapacityTokens: number },
    contextTokens: number,
  ): number {
    const { alphaUs, betaUs, tpotUs } = model;
    const byTime = betaUs > 0 ? (tpotUs - alphaUs) / betaUs : tpotUs >= alphaUs ? Infinity : 0;
    const byMemory = replica.kvCapacityTokens / contextTokens;
    return Math.max(0, Math.floor(Math.min(byTime, byMemory, replica.maxBatch)));
  }

  return {
    ...noMemory,
    name: 'dynamo-throughput',
    evaluate(context) {
      const { metrics, replicas, loadHistory, currentReplicas, maxReplicas } = context;
      const { avgPromptTokens, avgOutputTokens } = metrics;
      if (loadHistory.length === 0 || replicas.length === 0 || avgOutputTokens === 0) {
        return towards(context, currentReplicas, 'nothing measured');
      }
      const rate = forecastRate(loadHistory, forecast);
      const prefillUs = avgPromptTokens * (1 - hitRate) * model.prefillUs;
      const prefill = Math.max((rate * prefillUs) / 1e6, prefillUs / model.ttftUs);
      const batch = largestBatch(replicas[0], avgPromptTokens + avgOutputTokens / 2);
      const decode =
        batch === 0 ? Infinity : (rate * avgOutputTokens * tokenUs(model, batch)) / (batch * 1e6);
      const needed = { prefill, decode, shared: prefill + decode }[pool];
      const target = Math.min(maxReplicas, Math.max(1, Math.ceil(needed - 1e-9)));
      const parts = `prefill ${prefill.toFixed(2)}, decode ${decode.toFixed(2)}`;
      return towards(context, target, `${rate.toFixed(2)} requests a second: ${parts}`);
    },
  };
}

/**
 * Scales by load. A replica's time to the first token is predicted as (queue + 1) x I x prefill, its time of a token as
 * alpha + beta x batch. One more where all replicas miss the target; one fewer where, with N / (N - 1) of the load, the
 * time in the queue stays below (TTFT target - own prefill) x s, the time of a token below its target x s, and KV fits;
 * prefill and decode replicas go by their own target, others by both. Nothing while replicas are on their way.
 */
export function dynamoLoad(model: EngineModel, pool: PoolKind, sensitivity: number): AutoScalePolicy {
  return {
    ...noMemory,
    name: 'dynamo-load',
    evaluate(context) {
      const { replicas, currentReplicas, pendingReplicas, metrics } = context;
      if (pendingReplicas > 0) return towards(context, currentReplicas, 'replicas are on their way');
      if (replicas.length === 0) return towards(context, currentReplicas, 'nothing measured');
      const { ttftUs, tpotUs, prefillUs } = model;
      const looksAt = { ttft: pool !== 'decode', tpot: pool !== 'prefill' };
      const ownUs = metrics.avgPromptTokens * prefillUs;
      const missesTtft = replicas.every(({ queueDepth }) => (queueDepth + 1) * ownUs > ttftUs);
      const missesTpot = replicas.every(({ batchSize }) => tokenUs(model, batchSize) > tpotUs);
      if ((looksAt.ttft && missesTtft) || (looksAt.tpot && missesTpot)) {
        return towards(context, currentReplicas + 1, missesTtft ? 'all miss the TTFT' : 'all miss the TPOT');
      }
      if (replicas.length === 1) return towards(context, currentReplicas, 'within targets');
      const then = replicas.length / (replicas.length - 1);
      const keepsTtft = replicas.every(
        ({ queueDepth }) => queueDepth * then * ownUs < (ttftUs - ownUs) * sensitivity,
      );
      const keepsTpot = replicas.every(
        ({ batchSize, kvUtilization }) =>
          tokenUs(model, batchSize * then) < tpotUs * sensitivity && kvUtilization * then < 1,
      );
      if ((!looksAt.ttft || keepsTtft) && (!looksAt.tpot || keepsTpot)) {
        return towards(context, currentReplicas - 1, 'one fewer keeps the targets');
      }
      return towards(context, currentReplicas, 'within targets');
    },
  };
}

interface LoadThresholds {
  readonly prefillUp: number;
  readonly prefillDown: number;
  readonly kvUp: number;
  readonly kvDown: number;
  /** Tokens that the queue is measured in. */
  readonly contextTokens: number;
}

/** Thresholds of the planner's two targets: `throughput` fills replicas, `latency` grows early. */
export const thresholdsOf: Readonly<Record<'throughput' | 'latency', Omit<LoadThresholds, 'contextTokens'>>> =
  {
    throughput: { prefillUp: 1, prefillDown: 0.1, kvUp: 1, kvDown: 0.6 },
    latency: { prefillUp: 0.1, prefillDown: 0, kvUp: 0.4, kvDown: 0.1 },
  };

/**
 * Scales by thresholds. Queue: the mean prompt tokens that wait on a replica, in contexts. KV: the mean of tokens in
 * use and of prompts that wait, over what a replica holds. One more where the queue reaches its upper threshold or KV
 * exceeds its own; one fewer where both are below the lower ones (a lower one of 0 for the queue: none waits). Prefill
 * replicas go by the queue, decode replicas by KV. Nothing while replicas are on their way.
 */
export function dynamoThresholds(rules: LoadThresholds, pool: PoolKind): AutoScalePolicy {
  return {
    ...noMemory,
    name: 'dynamo-thresholds',
    evaluate(context) {
      const { replicas, currentReplicas, pendingReplicas, metrics } = context;
      if (pendingReplicas > 0) return towards(context, currentReplicas, 'replicas are on their way');
      if (replicas.length === 0) return towards(context, currentReplicas, 'nothing measured');
      const { prefillUp, prefillDown, kvUp, kvDown, contextTokens } = rules;
      const n = replicas.length;
      let queue = 0;
      let kv = 0;
      for (const { queueDepth, kvUsedTokens, kvCapacityTokens } of replicas) {
        const waiting = queueDepth * metrics.avgPromptTokens;
        queue += waiting / contextTokens / n;
        kv += (kvUsedTokens + waiting) / Math.max(1, kvCapacityTokens) / n;
      }
      const looksAt = { queue: pool !== 'decode', kv: pool !== 'prefill' };
      const reason = `queue ${queue.toFixed(3)} contexts, KV ${kv.toFixed(3)}`;
      if ((looksAt.queue && queue >= prefillUp) || (looksAt.kv && kv > kvUp)) {
        return towards(context, currentReplicas + 1, reason);
      }
      const queueIsLow = prefillDown === 0 ? queue === 0 : queue < prefillDown;
      if ((!looksAt.queue || queueIsLow) && (!looksAt.kv || kv < kvDown)) {
        return towards(context, currentReplicas - 1, reason);
      }
      return towards(context, currentReplicas, reason);
    },
  };
}
