/** Rules of llm-d that are not weighted sums of scorers: its latency scorer as a router. */

import { kvUtilization } from '../admission.ts';
import { headroomUs, type InstanceSnapshot, type LatencyTargets, PREFILL_TOKENS_PER_S } from '../policy.ts';
import type { PolicyEntry } from '../registry.ts';
import type { Picker, RoutingContext, RoutingPolicy } from '../routing/routingPolicy.ts';
import { memoryRules, numberRule, pickerOf, positiveRule, RememberingRule, type Taken } from './rule.ts';

interface HeadroomRules extends LatencyTargets {
  readonly ttftWeight: number;
  /** `least` fills instances up, `most` spreads. */
  readonly strategy: 'least' | 'most';
}

/**
 * Five groups of instances, of which only the first that is not empty is looked at: with head room of both kinds; idle;
 * missing only the time between tokens; missing only the time to the first token; missing both. Within it
 * n = w x TTFT + (1 - w) x TPOT, each scaled to 0 to 1 over the group; the first group goes by the strategy,
 * the others by the most. Without a target of either kind the score is the mean of 1 - KV utilisation, the
 * queue scaled so that the shortest has 1, and the share of the prompt that went there before.
 */
class LatencyHeadroom extends RememberingRule {
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

/** Routing rules of llm-d. */
export const llmDRules: readonly PolicyEntry<RoutingPolicy>[] = [
  {
    name: 'llm-d-latency',
    about: 'llm-d: by head room between targets and predicted times',
    readsKeys: true,
    readsReports: true,
    parameters: {
      ttftUs: numberRule(0),
      tpotUs: numberRule(50_000),
      ttftWeight: numberRule(0.8, { min: 0, max: 1 }),
      strategy: { kind: 'choice', default: 'least', names: ['least', 'most'] },
      tokensPerS: positiveRule(PREFILL_TOKENS_PER_S),
      ...memoryRules,
    },
    make: (p, world) => {
      const rules = {
        ttftUs: p.number('ttftUs'),
        tpotUs: p.number('tpotUs'),
        ttftWeight: p.number('ttftWeight'),
        strategy: p.text('strategy') === 'most' ? 'most' : 'least',
        tokensPerS: p.number('tokensPerS'),
      } as const;
      return new LatencyHeadroom(rules, world.blockTokens, pickerOf(p, world), p.number('memoryBlocks'));
    },
  },
];
