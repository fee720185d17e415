/**
 * Autoscaling policies that know what a replica can hold: saturation and token capacity of llm-d's variant
 * autoscaler, and a model of the queue.
 */

import { StatelessPolicy } from '../../policy.ts';
import type { AutoScaleContext, AutoScalePolicy, ScaleDecision } from '../autoScalePolicy.ts';
import { towards } from './reactive.ts';

export interface SaturationRules {
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
export class Saturation extends StatelessPolicy implements AutoScalePolicy {
  readonly name: string = 'saturation';
  readonly #rules: SaturationRules;

  constructor(rules: SaturationRules) {
    super();
    this.#rules = rules;
  }

  evaluate(context: AutoScaleContext): ScaleDecision {
    const { kvThreshold, queueThreshold, spareKv, spareQueue } = this.#rules;
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
  }
}

export interface TokenRules {
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
export class TokenCapacity extends StatelessPolicy implements AutoScalePolicy {
  readonly name: string = 'token-capacity';
  readonly #rules: TokenRules;

  constructor(rules: TokenRules) {
    super();
    this.#rules = rules;
  }

  evaluate(context: AutoScaleContext): ScaleDecision {
    const { upThreshold, downBoundary, promptTokens } = this.#rules;
    const { replicas, metrics, currentReplicas, pendingReplicas } = context;
    if (replicas.length === 0) return towards(context, currentReplicas, 'nothing measured');
    const perRequest = promptTokens > 0 ? promptTokens : metrics.avgPromptTokens;
    const capacities = replicas.map((replica) =>
      this.#capacityOf(replica.kvCapacityTokens, replica.maxBatch, context),
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
  }

  #capacityOf(kvTokens: number, slots: number, { metrics }: AutoScaleContext): number {
    const memory = kvTokens * this.#rules.kvThreshold;
    const { avgPromptTokens, avgOutputTokens } = metrics;
    const whole = avgPromptTokens + avgOutputTokens;
    if (!this.#rules.boundsByBatch || whole === 0) return memory;
    return Math.min(memory, slots * (avgPromptTokens + avgOutputTokens / 2));
  }
}

export interface ModelRules {
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
export class ModelBased extends StatelessPolicy implements AutoScalePolicy {
  readonly name: string = 'model-based';
  readonly #rules: ModelRules;

  constructor(rules: ModelRules) {
    super();
    this.#rules = rules;
  }

  evaluate(context: AutoScaleContext): ScaleDecision {
    const { metrics, replicas, currentReplicas, minReplicas, maxReplicas } = context;
    if (metrics.requestRate === 0 || replicas.length === 0 || metrics.avgOutputTokens === 0) {
      return towards(context, currentReplicas, 'nothing measured');
    }
    const slots = replicas[0].maxBatch;
    for (let n = Math.max(1, minReplicas); n < maxReplicas; n++) {
      const { ttftUs, tpotUs } = this.predict(
        metrics.requestRate / n,
        metrics.avgPromptTokens,
        metrics.avgOutputTokens,
        slots,
      );
      if (ttftUs <= this.#rules.ttftUs && tpotUs <= this.#rules.tpotUs) {
        const times = `TTFT ${Math.round(ttftUs)} µs, ${Math.round(tpotUs)} µs a token`;
        const reason = `predicted with ${n}: ${times}`;
        return towards(context, n, reason);
      }
    }
    return towards(context, maxReplicas, 'no smaller count is predicted to meet the targets');
  }

  /** Mean times of one replica under `rate` requests a second; Infinity where it cannot keep up. */
  predict(rate: number, prompt: number, output: number, slots: number): { ttftUs: number; tpotUs: number } {
    const { alphaUs, betaUs, prefillUs } = this.#rules;
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
}
