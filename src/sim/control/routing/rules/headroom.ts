/**
 * llm-d's latency scorer as a router: head room is the target less the prediction, for the time to the first
 * token and the time between tokens.
 */

import { kvUtilization } from '../../admission/index.ts';
import type { InstanceSnapshot } from '../../instances.ts';
import { headroomUs, type LatencyTargets } from '../../prediction.ts';
import type { Picker } from '../picking.ts';
import type { RoutingContext } from '../routingPolicy.ts';
import { RememberingRule } from './rememberingRule.ts';
import type { Taken } from './scoredRule.ts';

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
