/** Rules that draw: all draws come from the router's stream under the key of the simulation. */

import type { GoRandom } from '../../random/goRand.ts';
import type { SourceState } from '../../random/laggedFibonacci.ts';
import { kvUtilization } from '../admission.ts';
import { headroomUs, type InstanceSnapshot, type LatencyTargets, type PlainState } from '../policy.ts';
import type { Picker, RoutingChoice, RoutingContext, RoutingPolicy } from '../routing/routingPolicy.ts';
import { RememberingRule, type Taken } from './rule.ts';

abstract class Drawing implements RoutingPolicy {
  abstract readonly name: string;
  readonly readsCaches: boolean = false;
  readonly readsReports: boolean = false;
  protected readonly random: GoRandom;

  constructor(random: GoRandom) {
    this.random = random;
  }

  choose(context: RoutingContext): RoutingChoice {
    const index = this.draw(context);
    return { index, reason: this.name, scores: null, parts: [], filteredOut: [] };
  }

  protected abstract draw(context: RoutingContext): number;

  snapshot(): PlainState {
    return this.random.snapshot();
  }

  restore(state: PlainState): void {
    // the state is what `snapshot` made
    this.random.restore(state as SourceState);
  }
}

/** Any of them, all alike. */
export class RandomInstance extends Drawing {
  readonly name: string = 'random';

  protected override draw({ candidates }: RoutingContext): number {
    return this.random.intn(candidates.length);
  }
}

/** Two different ones are drawn, and the one with fewer in flight is taken; of two alike the first drawn. */
export class PowerOfTwo extends Drawing {
  readonly name: string = 'power-of-two';

  protected override draw({ candidates }: RoutingContext): number {
    const count = candidates.length;
    if (count === 1) return 0;
    const first = this.random.intn(count);
    const other = this.random.intn(count - 1);
    const second = other < first ? other : other + 1;
    return candidates[second].inFlight < candidates[first].inFlight ? second : first;
  }
}

// llm-d's latency scorer as a router: head room is the target less the prediction, for the time to the first
// token and the time between tokens.

export interface HeadroomRules extends LatencyTargets {
  readonly ttftWeight: number;
  /** `least` fills instances up, `most` spreads. */
  readonly strategy: 'least' | 'most';
}

/**
 * Groups, of which the first that is not empty is looked at: those with head room of both kinds; those that
 * are idle; those that miss the time between tokens alone; the time to the first token alone; both. Within it
 * n = w x TTFT + (1 - w) x TPOT, each scaled to 0 to 1 over the group; the first group goes by the strategy,
 * the others by the most. Without a target of either kind the score is the mean of 1 - KV utilisation, the
 * queue scaled so that the shortest has 1, and the share of the prompt that went there before.
 */
export class LatencyHeadroom extends RememberingRule {
  override readonly readsReports: boolean = true;
  override readonly name: string = 'llm-d-latency';
  readonly #rules: HeadroomRules;
  readonly #blockTokens: number;

  constructor(rules: HeadroomRules, blockTokens: number, picker: Picker, memoryBlocks: number) {
    super(picker, memoryBlocks);
    this.#rules = rules;
    this.#blockTokens = blockTokens;
  }

  protected override take(context: RoutingContext, scores: Float64Array): Taken {
    const { request, candidates } = context;
    const { ttftUs, tpotUs, ttftWeight, strategy } = this.#rules;
    const matches = this.matches(context);
    if (request.sloTargetUs <= 0 && ttftUs === 0 && tpotUs === 0)
      return this.#composite(context, matches, scores);
    const rooms = candidates.map((instance, i) =>
      headroomUs(request, instance, request.promptTokens - matches[i] * this.#blockTokens, this.#rules),
    );
    const groups = candidates.map((instance, i) => groupOf(instance, rooms[i]));
    const group = Math.min(...groups);
    const kept = rooms.filter((_, i) => groups[i] === group);
    const ttft = scale(kept.map((room) => room.ttft));
    const tpot = scale(kept.map((room) => room.tpot));
    const sign = group === 0 && strategy === 'least' ? 1 : -1;
    const cost = (_: unknown, i: number): number =>
      sign * (ttftWeight * ttft(rooms[i].ttft) + (1 - ttftWeight) * tpot(rooms[i].tpot));
    const index = this.least(candidates, scores, cost, (_, i) => groups[i] === group);
    return { index, reason: groupNames[group] };
  }

  #composite(
    { request, candidates }: RoutingContext,
    matches: readonly number[],
    scores: Float64Array,
  ): Taken {
    const queue = scale(candidates.map(({ queueDepth }) => -queueDepth));
    const cost = (instance: InstanceSnapshot, i: number): number => {
      const prefix = matches[i] / Math.max(1, request.promptBlocks);
      return -(1 - kvUtilization(instance) + queue(-instance.queueDepth) + prefix) / 3;
    };
    return { index: this.least(candidates, scores, cost), reason: 'no target' };
  }
}

const groupNames = ['head room', 'idle', 'misses TPOT', 'misses TTFT', 'misses both'];

function groupOf({ inFlight }: InstanceSnapshot, { ttft, tpot }: ReturnType<typeof headroomUs>): number {
  if (ttft >= 0 && tpot >= 0) return 0;
  if (inFlight === 0) return 1;
  if (ttft >= 0) return 2;
  return tpot >= 0 ? 3 : 4;
}

/** To 0 to 1 between the least and the most; all alike 1. */
function scale(values: readonly number[]): (value: number) => number {
  const low = Math.min(...values);
  const high = Math.max(...values);
  return (value) => (high === low ? 1 : (value - low) / (high - low));
}
