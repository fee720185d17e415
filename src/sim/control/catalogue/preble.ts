/**
 * Preble's E2: exploit where a prompt is cached, or explore where it costs least.
 *
 * Work of a request on an instance: prefill time of each prompt block that it does not have there, over the
 * instances that have the block then; the rest of the prompt is prefilled there alone. Cost of an instance:
 * the work that was sent there in the window, and what is in flight there times the mean output and the time
 * of a token. What would be evicted for the request is not counted: no instance reports it.
 */

import type { InstanceSnapshot, RequestOutcome } from '../policy.ts';
import type { PolicyEntry } from '../registry.ts';
import { OutcomeMeans, RecentAmounts } from '../routing/memory.ts';
import type { Picker, RoutingContext, RoutingPolicy } from '../routing/routingPolicy.ts';
import {
  inFlightOf,
  memoryRules,
  numberRule,
  pickerOf,
  positiveRule,
  RememberingRule,
  type Taken,
} from './rule.ts';

interface PrebleRules {
  readonly name: string;
  /** Whose rule: Preble's own, or what AIBrix made of it. */
  readonly kind: 'preble' | 'aibrix';
  readonly windowUs: number;
  /** Time of a prompt token. */
  readonly prefillUs: number;
  /** Time of an output token. */
  readonly tpotUs: number;
  /** Output tokens of a request before any has ended. */
  readonly outputTokens: number;
}

/**
 * The longest match is exploited where it is more than half of the prompt: among the instances that have it,
 * Preble takes the least cost and AIBrix the fewest in flight. Else Preble takes the least cost with the work
 * of the request, and AIBrix the least cost without it.
 */
class Preble extends RememberingRule {
  override readonly name: string;
  readonly #rules: PrebleRules;
  readonly #blockTokens: number;
  readonly #sent: RecentAmounts;
  readonly #means: OutcomeMeans;

  constructor(rules: PrebleRules, blockTokens: number, picker: Picker, memoryBlocks: number) {
    const sent = new RecentAmounts(rules.windowUs);
    const means = new OutcomeMeans();
    super(picker, memoryBlocks, [sent, means]);
    this.name = rules.name;
    this.#rules = rules;
    this.#blockTokens = blockTokens;
    this.#sent = sent;
    this.#means = means;
  }

  protected override take(context: RoutingContext, scores: Float64Array): Taken {
    const { request, candidates } = context;
    const isPreble = this.#rules.kind === 'preble';
    const matches = this.matches(context);
    const longest = Math.max(...matches);
    const cost = (instance: InstanceSnapshot): number => this.#cost(context, instance);
    if (2 * longest * this.#blockTokens > request.promptTokens) {
      const by = isPreble ? cost : inFlightOf;
      const index = this.least(candidates, scores, by, (_, i) => matches[i] === longest);
      return { index, reason: 'exploit' };
    }
    const withOwn = (instance: InstanceSnapshot, i: number): number =>
      cost(instance) + this.#work(context, matches, i);
    return { index: this.least(candidates, scores, isPreble ? withOwn : cost), reason: 'explore' };
  }

  #cost({ router }: RoutingContext, { instance, inFlight }: InstanceSnapshot): number {
    const { requests, outputTokens } = this.#means.overall;
    const output = requests === 0 ? this.#rules.outputTokens : outputTokens;
    return this.#sent.sum(instance, router.nowUs) + inFlight * output * this.#rules.tpotUs;
  }

  #work({ request }: RoutingContext, matches: readonly number[], candidate: number): number {
    const { prefillUs } = this.#rules;
    let work = (request.promptTokens - request.promptBlocks * this.#blockTokens) * prefillUs;
    for (let block = matches[candidate]; block < request.promptBlocks; block++) {
      let holders = 1;
      for (const blocks of matches) if (blocks > block) holders++;
      work += (this.#blockTokens * prefillUs) / holders;
    }
    return work;
  }

  override routed(context: RoutingContext, instance: number): void {
    const candidate = context.candidates.findIndex((each) => each.instance === instance);
    this.#sent.add(instance, this.#work(context, this.matches(context), candidate), context.router.nowUs);
    super.routed(context, instance);
  }

  completed(outcome: RequestOutcome): void {
    this.#means.completed(outcome);
  }
}

export function prebleEntry(
  name: string,
  kind: 'preble' | 'aibrix',
  about: string,
): PolicyEntry<RoutingPolicy> {
  return {
    name,
    about,
    readsKeys: true,
    readsReports: false,
    parameters: {
      windowUs: positiveRule(180_000_000),
      prefillUs: positiveRule(20),
      tpotUs: numberRule(7000),
      outputTokens: numberRule(128),
      ...memoryRules,
    },
    make: (p, world) => {
      const rules = {
        name,
        kind,
        windowUs: p.number('windowUs'),
        prefillUs: p.number('prefillUs'),
        tpotUs: p.number('tpotUs'),
        outputTokens: p.number('outputTokens'),
      };
      return new Preble(rules, world.blockTokens, pickerOf(p, world), p.number('memoryBlocks'));
    },
  };
}

/** Routing rules of Preble. */
export const prebleRules: readonly PolicyEntry<RoutingPolicy>[] = [
  prebleEntry(
    'preble-e2',
    'preble',
    'Preble: exploit where most of the prompt is cached, else explore by cost',
  ),
];
