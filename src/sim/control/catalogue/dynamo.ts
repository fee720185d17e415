/**
 * Dynamo's KV router. The cost of an instance, in blocks, is
 *
 *     S x max(0, prefill - credit) + decode + wa x active
 *     credit = c x d x HBM hits + wh x hits in the next tier + wd x hits below it
 *     d = 1 / (1 + k x (prefill tokens under way there - the least of all) / block / prompt blocks)
 *
 * prefill: prompt tokens that had no first token yet, with the request, in blocks. decode: prompt blocks
 * under way there with the request, a shared one once. active: requests in flight. A decode instance that is
 * handed its prompts costs max(0, decode - credit) + wa x active. The least cost is taken; at a temperature T
 * above 0 one is drawn with weights exp(-c / T), for costs scaled to 0 to 1, from the router's stream under
 * the key of the simulation: the same key, the same choices.
 */

import * as elementary from '../../random/elementary.ts';
import type { GoRandom } from '../../random/goRand.ts';
import type { InstanceSnapshot, RequestOutcome } from '../policy.ts';
import type { PolicyEntry } from '../registry.ts';
import { ActiveBlocks } from '../routing/memory.ts';
import type { RoutingPolicy } from '../routing/routingPolicy.ts';
import { drawnBy, Picker, type RoutingContext } from '../routing/routingPolicy.ts';
import { numberRule, ScoredRule, type Taken } from './rule.ts';

interface DynamoWeights {
  /** c: what a block in HBM is worth. */
  readonly overlapWeight: number;
  /** S. */
  readonly prefillScale: number;
  /** k: how much prefill under way takes from what hits in HBM are worth. */
  readonly creditDecay: number;
  readonly hostWeight: number;
  readonly diskWeight: number;
  readonly activeWeight: number;
  readonly temperature: number;
}

class DynamoKv extends ScoredRule {
  override readonly name: string = 'dynamo-kv';
  override readonly readsCaches: boolean = true;
  readonly #weights: DynamoWeights;
  readonly #blockTokens: number;
  readonly #random: GoRandom;
  readonly #active: ActiveBlocks;

  /** @param random of the draws at a temperature; nothing else is drawn */
  constructor(weights: DynamoWeights, blockTokens: number, random: GoRandom) {
    const active = new ActiveBlocks();
    super(new Picker(random), [active]);
    this.#weights = weights;
    this.#blockTokens = blockTokens;
    this.#random = random;
    this.#active = active;
  }

  protected override take(context: RoutingContext, scores: Float64Array): Taken {
    const { candidates } = context;
    let least = Infinity;
    for (const { inFlightTokens } of candidates) least = Math.min(least, inFlightTokens);
    let best = 0;
    for (let i = 0; i < candidates.length; i++) {
      scores[i] = -this.#cost(context, candidates[i], least);
      if (scores[i] > scores[best]) best = i;
    }
    if (this.#weights.temperature === 0) return { index: best, reason: 'least cost' };
    return { index: this.#drawn(scores, candidates.length), reason: 'drawn by cost' };
  }

  #cost({ request, router }: RoutingContext, instance: InstanceSnapshot, leastTokens: number): number {
    const { overlapWeight, prefillScale, creditDecay, hostWeight, diskWeight, activeWeight } = this.#weights;
    const [top = 0, host = 0, ...below] = router.observedKv.place(request, instance.instance).byTier;
    const disk = below.reduce((sum, blocks) => sum + blocks, 0);
    const ahead =
      (instance.inFlightTokens - leastTokens) / this.#blockTokens / Math.max(1, request.promptBlocks);
    const credit = (overlapWeight * top) / (1 + creditDecay * ahead) + hostWeight * host + diskWeight * disk;
    const decode = this.#active.withRequest(request, instance.instance);
    const active = activeWeight * instance.inFlight;
    if (instance.role === 'decode') return Math.max(0, decode - credit) + active;
    const prefill = (instance.inFlightTokens + request.promptTokens) / this.#blockTokens;
    return prefillScale * Math.max(0, prefill - credit) + decode + active;
  }

  #drawn(scores: Float64Array, count: number): number {
    let low = Infinity;
    let high = -Infinity;
    for (let i = 0; i < count; i++) {
      low = Math.min(low, scores[i]);
      high = Math.max(high, scores[i]);
    }
    const weights = Array.from({ length: count }, (_, i) => {
      const cost = high === low ? 0 : (high - scores[i]) / (high - low);
      return elementary.exp(-cost / this.#weights.temperature);
    });
    return drawnBy(weights, this.#random.float64());
  }

  routed({ request }: RoutingContext, instance: number): void {
    this.#active.sent(request, instance);
  }

  completed({ request }: RequestOutcome): void {
    this.#active.ended(request);
  }

  removed(instance: number): void {
    this.#active.removed(instance);
  }
}

/** Routing rules of Dynamo. */
export const dynamoRules: readonly PolicyEntry<RoutingPolicy>[] = [
  {
    name: 'dynamo-kv',
    about: 'Dynamo: the least blocks to prefill and under way, less what is cached; softmax at a temperature',
    readsKeys: true,
    readsReports: false,
    parameters: {
      overlapWeight: numberRule(1),
      prefillScale: numberRule(1),
      creditDecay: numberRule(0),
      hostWeight: numberRule(0.75),
      diskWeight: numberRule(0.25),
      activeWeight: numberRule(0),
      temperature: numberRule(0),
    },
    make: (p, world) => {
      const weights = {
        overlapWeight: p.number('overlapWeight'),
        prefillScale: p.number('prefillScale'),
        creditDecay: p.number('creditDecay'),
        hostWeight: p.number('hostWeight'),
        diskWeight: p.number('diskWeight'),
        activeWeight: p.number('activeWeight'),
        temperature: p.number('temperature'),
      };
      return new DynamoKv(weights, world.blockTokens, world.stream('router'));
    },
  },
];
