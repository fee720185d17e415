/** Rules of vLLM's production stack. */

import type { GoRandom } from '../../random/goRand.ts';
import type { PolicyEntry } from '../registry.ts';
import { HashRing, RecentAmounts, textHash } from '../routing/memory.ts';
import type { RoutingPolicy } from '../routing/routingPolicy.ts';
import { Picker, type RoutingContext } from '../routing/routingPolicy.ts';
import {
  memoryRules,
  pickerOf,
  positiveRule,
  RememberingRule,
  ScoredRule,
  type Taken,
  tiesRule,
  wholeRule,
} from './rule.ts';

/**
 * The longest match in any tier, as the caches told it, where it lacks no more than `threshold` tokens of the
 * prompt. Else the owner of the session on a ring of instances; without a session, the one to which the
 * fewest requests went in the window.
 */
class KvAware extends ScoredRule {
  override readonly name: string = 'prodstack-kvaware';
  override readonly readsCaches: boolean = true;
  readonly #threshold: number;
  readonly #blockTokens: number;
  readonly #ring: HashRing = new HashRing();
  readonly #sent: RecentAmounts;

  constructor(threshold: number, windowUs: number, blockTokens: number, picker: Picker) {
    const sent = new RecentAmounts(windowUs);
    super(picker, [sent]);
    this.#threshold = threshold;
    this.#blockTokens = blockTokens;
    this.#sent = sent;
  }

  protected override take({ request, candidates, router }: RoutingContext, scores: Float64Array): Taken {
    const matches = candidates.map(({ instance }) => router.observedKv.place(request, instance).blocks);
    const longest = Math.max(...matches);
    if (longest > 0 && longest * this.#blockTokens >= request.promptTokens - this.#threshold) {
      return { index: this.least(candidates, scores, (_, i) => -matches[i]), reason: 'longest match' };
    }
    const sent = ({ instance }: { instance: number }): number => this.#sent.sum(instance, router.nowUs);
    if (request.sessionId === '')
      return { index: this.least(candidates, scores, sent), reason: 'least rate' };
    const owner = this.#ring.owner(
      textHash(request.sessionId),
      candidates.map(({ instance }) => instance),
    );
    const index = this.least(candidates, scores, sent, ({ instance }) => instance === owner);
    return { index, reason: 'owner of the session' };
  }

  routed({ router }: RoutingContext, instance: number): void {
    this.#sent.add(instance, 1, router.nowUs);
  }
}

/**
 * The instances to which the longest part of the prompt went before, one of them drawn; of all where none
 * matches. The draws come from the router's stream under the key of the simulation.
 */
class PrefixAware extends RememberingRule {
  override readonly name: string = 'prodstack-prefixaware';

  constructor(random: GoRandom, memoryBlocks: number) {
    super(new Picker(random), memoryBlocks);
  }

  protected override take(context: RoutingContext, scores: Float64Array): Taken {
    const matches = this.matches(context);
    const index = this.least(context.candidates, scores, (_, i) => -matches[i]);
    return { index, reason: Math.max(...matches) > 0 ? 'longest match' : 'no match' };
  }
}

/** Routing rules of vLLM's production stack. */
export const productionStackRules: readonly PolicyEntry<RoutingPolicy>[] = [
  {
    name: 'prodstack-kvaware',
    about: "vLLM's production stack: the longest match, the session's owner, or the least rate",
    readsKeys: true,
    readsReports: false,
    parameters: { threshold: wholeRule(2000), windowUs: positiveRule(60_000_000), ties: tiesRule },
    make: (p, world) =>
      new KvAware(p.number('threshold'), p.number('windowUs'), world.blockTokens, pickerOf(p, world)),
  },
  {
    name: 'prodstack-prefixaware',
    about: "vLLM's production stack: one of those to which most of the prompt went before, drawn",
    readsKeys: true,
    readsReports: false,
    parameters: { memoryBlocks: memoryRules.memoryBlocks },
    make: (p, world) => new PrefixAware(world.stream('router'), p.number('memoryBlocks')),
  },
];
