/**
 * Autoscaling policies that follow one measured figure: Kubernetes' horizontal pod autoscaler and Knative's pod
 * autoscaler with its panic mode.
 */

import type { StateVisitor } from '../../../runtime/snapshot.ts';
import { noMemory } from '../policy.ts';
import type { AutoScaleContext, AutoScalePolicy, LoadSample, ScaleDecision } from './autoScalePolicy.ts';

/** Figures of load that a reactive policy can follow. */
export const metricNames = ['concurrency', 'queueDepth', 'utilization', 'requestRate'] as const;
export type MetricName = (typeof metricNames)[number];

/** The figure a ready replica, at one reading. */
export function perReplica(sample: LoadSample, metric: MetricName, ready: number): number {
  switch (metric) {
    case 'concurrency':
      return sample.concurrency / Math.max(1, ready);
    case 'requestRate':
      return sample.requestRate / Math.max(1, ready);
    case 'queueDepth':
      return sample.avgQueueDepth;
    case 'utilization':
      return sample.avgUtilization;
  }
}

/** The decision that leads from the replicas of a context to `target`. */
export function towards(context: AutoScaleContext, target: number, reason: string): ScaleDecision {
  const { currentReplicas } = context;
  const action = target > currentReplicas ? 'up' : target < currentReplicas ? 'down' : 'none';
  return { action, targetReplicas: target, reason };
}

export function last(history: readonly LoadSample[]): LoadSample | undefined {
  return history[history.length - 1];
}

/**
 * ceil(ready x metric / target), nothing where metric / target is within the tolerance of 1. Growth in one
 * evaluation is limited to `maxUpShare` of the replicas or `maxUpReplicas`, whichever is more. Replicas that
 * are not ready count as if they carried nothing when it scales up, and are left as they are otherwise.
 */
export function hpa(
  metric: MetricName,
  target: number,
  tolerance: number,
  maxUpShare: number,
  maxUpReplicas: number,
): AutoScalePolicy {
  return {
    ...noMemory,
    name: 'hpa',
    evaluate(context) {
      const sample = last(context.loadHistory);
      const { readyReplicas, currentReplicas, pendingReplicas } = context;
      if (sample === undefined || readyReplicas === 0)
        return towards(context, currentReplicas, 'nothing measured');
      const value = perReplica(sample, metric, readyReplicas);
      let ratio = value / target;
      const reason = `${metric} ${value.toFixed(3)} a replica, target ${target}`;
      if (Math.abs(ratio - 1) <= tolerance) return towards(context, currentReplicas, reason);
      let replicas = readyReplicas;
      if (ratio > 1 && pendingReplicas > 0) {
        // pending ones will carry their share: what is needed is counted over all
        replicas = readyReplicas + pendingReplicas;
        ratio = (value * readyReplicas) / (replicas * target);
        if (ratio <= 1 + tolerance) return towards(context, currentReplicas, reason);
      }
      const wanted = Math.ceil(replicas * ratio - 1e-9);
      const most = currentReplicas + Math.max(Math.floor(currentReplicas * maxUpShare), maxUpReplicas);
      return towards(context, Math.min(wanted, most), reason);
    },
  };
}

/**
 * stable = ceil(mean over the stable window / target), panic = ceil(mean over the panic window / target),
 * both clamped to [floor(n / maxScaleDownRate), ceil(maxScaleUpRate x n)]. Panic begins when panic / n
 * reaches the threshold; in panic the count only grows; it ends after a stable window below the threshold.
 */
export class Kpa implements AutoScalePolicy {
  readonly name: string = 'kpa';
  readonly #target: number;
  readonly #stableUs: number;
  readonly #panicUs: number;
  readonly #panicThreshold: number;
  readonly #maxUpRate: number;
  readonly #maxDownRate: number;
  /** When panic was called for last, or -1 outside panic. */
  #panickedUs = -1;
  #panicReplicas = 0;

  constructor(
    target: number,
    stableUs: number,
    panicUs: number,
    panicThreshold: number,
    maxUpRate: number,
    maxDownRate: number,
  ) {
    this.#target = target;
    this.#stableUs = stableUs;
    this.#panicUs = panicUs;
    this.#panicThreshold = panicThreshold;
    this.#maxUpRate = maxUpRate;
    this.#maxDownRate = maxDownRate;
  }

  evaluate(context: AutoScaleContext): ScaleDecision {
    const { nowUs, loadHistory } = context;
    const ready = Math.max(1, context.readyReplicas);
    if (loadHistory.length === 0) return towards(context, context.currentReplicas, 'nothing measured');
    const clamp = (wanted: number): number =>
      Math.min(Math.max(wanted, Math.floor(ready / this.#maxDownRate)), Math.ceil(this.#maxUpRate * ready));
    const over = (windowUs: number): number => meanConcurrency(loadHistory, nowUs - windowUs) / this.#target;
    const stable = clamp(Math.ceil(over(this.#stableUs)));
    const panic = clamp(Math.ceil(over(this.#panicUs)));
    if (panic / ready >= this.#panicThreshold) {
      if (this.#panickedUs === -1) this.#panicReplicas = 0;
      this.#panickedUs = nowUs;
    } else if (this.#panickedUs !== -1 && nowUs - this.#panickedUs >= this.#stableUs) {
      this.#panickedUs = -1;
    }
    if (this.#panickedUs === -1) return towards(context, stable, `stable ${stable}`);
    this.#panicReplicas = Math.max(this.#panicReplicas, panic, context.currentReplicas);
    return towards(context, this.#panicReplicas, `panic ${panic}`);
  }

  visitState(visitor: StateVisitor): void {
    this.#panickedUs = visitor.number(this.#panickedUs);
    this.#panicReplicas = visitor.number(this.#panicReplicas);
  }
}

/** Mean concurrency of the readings after `fromUs`; of the last reading if no reading is later. */
export function meanConcurrency(history: readonly LoadSample[], fromUs: number): number {
  let sum = 0;
  let count = 0;
  for (let i = history.length - 1; i >= 0 && (count === 0 || history[i].timeUs > fromUs); i--) {
    sum += history[i].concurrency;
    count++;
  }
  return sum / count;
}

// Autoscaling policies that know what a replica can hold: saturation and token capacity of llm-d's variant
// autoscaler, and a model of the queue.

interface SaturationRules {
  readonly kvThreshold: number;
  readonly queueThreshold: number;
  readonly spareKv: number;
  readonly spareQueue: number;
}

/**
 * A replica is saturated from a KV utilisation of `kvThreshold` or a queue of `queueThreshold` on. One more
 * where the mean spare of the others, threshold less value, is below `spareKv` or `spareQueue`, or where all
 * are saturated; one fewer where the load spread over N - 1 replicas would leave both spares. Nothing while
 * replicas are pending.
 */
export function saturation(rules: SaturationRules): AutoScalePolicy {
  return {
    ...noMemory,
    name: 'saturation',
    evaluate(context) {
      const { kvThreshold, queueThreshold, spareKv, spareQueue } = rules;
      const { replicas, currentReplicas } = context;
      if (context.pendingReplicas > 0) return towards(context, currentReplicas, 'replicas are on their way');
      if (replicas.length === 0) return towards(context, currentReplicas, 'nothing measured');
      const open = replicas.filter(
        ({ kvUtilization, queueDepth }) => kvUtilization < kvThreshold && queueDepth < queueThreshold,
      );
      if (open.length === 0) return towards(context, currentReplicas + 1, 'every replica is saturated');
      const kv = open.reduce((sum, { kvUtilization }) => sum + kvThreshold - kvUtilization, 0) / open.length;
      const queue = open.reduce((sum, { queueDepth }) => sum + queueThreshold - queueDepth, 0) / open.length;
      const reason = `spare KV ${kv.toFixed(3)}, spare queue ${queue.toFixed(2)}`;
      if (kv < spareKv || queue < spareQueue) return towards(context, currentReplicas + 1, reason);
      if (open.length === replicas.length && replicas.length > 1) {
        const fewer = replicas.length - 1;
        const kvThen = replicas.reduce((sum, { kvUtilization }) => sum + kvUtilization, 0) / fewer;
        const queueThen = replicas.reduce((sum, { queueDepth }) => sum + queueDepth, 0) / fewer;
        if (kvThreshold - kvThen >= spareKv && queueThreshold - queueThen >= spareQueue) {
          return towards(context, currentReplicas - 1, reason);
        }
      }
      return towards(context, currentReplicas, reason);
    },
  };
}

interface TokenRules {
  readonly kvThreshold: number;
  readonly upThreshold: number;
  readonly downBoundary: number;
  /** Prompt tokens of a waiting request; 0 for the measured mean. */
  readonly promptTokens: number;
  /** Whether a replica's capacity is also bounded by how many requests it can run. */
  readonly boundsByBatch: boolean;
}

/**
 * Capacity of a replica in tokens: k1 = KV tokens x threshold; with `boundsByBatch` at most
 * k2 = S (I + O / 2), for S slots of the batch and mean requests of I prompt and O output tokens, which are
 * half done on average. Demand D is the tokens in use plus the queued requests' prompts.
 * Grows by ceil((D / up - capacity of ready and pending) / capacity of one); shrinks by the whole replicas in
 * supply - D / down, at least one, while the rest still carries D / down.
 */
export function tokenCapacity(rules: TokenRules): AutoScalePolicy {
  function capacityOf(kvTokens: number, slots: number, { metrics }: AutoScaleContext): number {
    const memory = kvTokens * rules.kvThreshold;
    const { avgPromptTokens, avgOutputTokens } = metrics;
    const whole = avgPromptTokens + avgOutputTokens;
    if (!rules.boundsByBatch || whole === 0) return memory;
    return Math.min(memory, slots * (avgPromptTokens + avgOutputTokens / 2));
  }

  return {
    ...noMemory,
    name: 'token-capacity',
    evaluate(context) {
      const { upThreshold, downBoundary, promptTokens } = rules;
      const { replicas, metrics, currentReplicas, pendingReplicas } = context;
      if (replicas.length === 0) return towards(context, currentReplicas, 'nothing measured');
      const perRequest = promptTokens > 0 ? promptTokens : metrics.avgPromptTokens;
      const capacities = replicas.map((replica) =>
        capacityOf(replica.kvCapacityTokens, replica.maxBatch, context),
      );
      const supply = capacities.reduce((sum, capacity) => sum + capacity, 0);
      const largest = Math.max(...capacities);
      const queued = replicas.reduce((sum, { queueDepth }) => sum + queueDepth, 0) + context.pendingRequests;
      const demand = replicas.reduce((sum, { kvUsedTokens }) => sum + kvUsedTokens, 0) + queued * perRequest;
      const reason = `demand ${Math.round(demand)} of ${Math.round(supply)} tokens`;
      const missing = demand / upThreshold - (supply + pendingReplicas * largest);
      if (missing > 0) {
        return towards(context, currentReplicas + Math.max(1, Math.ceil(missing / largest)), reason);
      }
      const spare = supply - demand / downBoundary;
      if (replicas.length > 1 && spare > 0 && supply - largest > demand / downBoundary) {
        const fewer = Math.min(Math.max(Math.floor(spare / largest), 1), replicas.length);
        return towards(context, currentReplicas - fewer, reason);
      }
      return towards(context, currentReplicas, reason);
    },
  };
}

interface ModelRules {
  /** A token's time with a batch of b is alphaUs + betaUs x b. */
  readonly alphaUs: number;
  readonly betaUs: number;
  /** Prefill of a prompt token. */
  readonly prefillUs: number;
  readonly ttftUs: number;
  readonly tpotUs: number;
}

/**
 * The fewest replicas that a queueing model meets both targets with. Each is an M/M/1 queue whose rate
 * depends on its state: with b requests in it, it serves b / (prefill + O x (alpha + beta b)) a second up to
 * its batch size, and no faster beyond. From its stationary distribution follow the mean batch, the token
 * time, and by Little's law the wait before the batch, which with the prefill is the time to the first token.
 */
export function modelBased(rules: ModelRules): AutoScalePolicy {
  /** Mean times of one replica under `rate` requests a second; Infinity where it cannot keep up. */
  function predict(
    rate: number,
    prompt: number,
    output: number,
    slots: number,
  ): { ttftUs: number; tpotUs: number } {
    const { alphaUs, betaUs, prefillUs } = rules;
    const prefill = prompt * prefillUs;
    const served = (b: number): number => (b * 1e6) / (prefill + output * (alphaUs + betaUs * b));
    const load = rate / served(slots);
    if (!(load < 1)) return { ttftUs: Infinity, tpotUs: Infinity };
    // p(b) relative to p(0): products of rate / served(b); beyond the batch a geometric tail
    let weight = 1;
    let total = 1;
    let inBatch = 0;
    for (let b = 1; b <= slots; b++) {
      weight *= rate / served(b);
      total += weight;
      inBatch += b * weight;
      if (weight > 1e100) {
        // only ratios matter
        total /= weight;
        inBatch /= weight;
        weight = 1;
      }
    }
    const tail = (weight * load) / (1 - load);
    const waiting = (weight * load) / ((1 - load) * (1 - load));
    const batch = (inBatch + tail * slots) / (total + tail);
    const waitUs = ((waiting / (total + tail)) * 1e6) / rate;
    return { ttftUs: waitUs + prefill + alphaUs + betaUs * batch, tpotUs: alphaUs + betaUs * batch };
  }

  return {
    ...noMemory,
    name: 'model-based',
    evaluate(context) {
      const { metrics, replicas, currentReplicas, minReplicas, maxReplicas } = context;
      if (metrics.requestRate === 0 || replicas.length === 0 || metrics.avgOutputTokens === 0) {
        return towards(context, currentReplicas, 'nothing measured');
      }
      const slots = replicas[0].maxBatch;
      for (let n = Math.max(1, minReplicas); n < maxReplicas; n++) {
        const { ttftUs, tpotUs } = predict(
          metrics.requestRate / n,
          metrics.avgPromptTokens,
          metrics.avgOutputTokens,
          slots,
        );
        if (ttftUs <= rules.ttftUs && tpotUs <= rules.tpotUs) {
          const times = `TTFT ${Math.round(ttftUs)} µs, ${Math.round(tpotUs)} µs a token`;
          const reason = `predicted with ${n}: ${times}`;
          return towards(context, n, reason);
        }
      }
      return towards(context, maxReplicas, 'no smaller count is predicted to meet the targets');
    },
  };
}
