/**
 * Which candidates a weighted policy looks at. Filters are asked one after the other: caps on load,
 * concurrency, head room, prefix affinity; each sees what those before it have left.
 */

import type { GoRandom, SourceState } from '../../../random/index.ts';
import { concurrencyKindOf, concurrencyKinds } from '../../admission/index.ts';
import type { FilteredOut } from '../../decisions.ts';
import type { PlainState, PolicyWorld, Stateful } from '../../policy.ts';
import { PREFILL_TOKENS_PER_S } from '../../prediction.ts';
import type { NumberRule, ParameterRules, Parameters } from '../../registry/index.ts';
import type { RoutingContext } from '../routingPolicy.ts';
import type { CandidateFilter } from './candidateFilter.ts';
import { Concurrency } from './concurrency.ts';
import { isAnyCap, LoadCaps, UNLIMITED } from './loadCaps.ts';
import { PrefixCacheAffinity } from './prefixCacheAffinity.ts';
import { PrefixMatches, prefixSources } from './prefixMatches.ts';
import { SloHeadroomTier } from './sloHeadroomTier.ts';

const cap: NumberRule = { kind: 'number', default: UNLIMITED, min: 0, integer: true };
const size = (byDefault: number): NumberRule => ({
  kind: 'number',
  default: byDefault,
  min: 1,
  integer: true,
});
const amount = (byDefault: number): NumberRule => ({ kind: 'number', default: byDefault, min: 0 });
const chance = (byDefault: number): NumberRule => ({ kind: 'number', default: byDefault, min: 0, max: 1 });
const concurrency = ['concurrencyKind'];
const tier = ['sloHeadroomTier'];
const affinity = ['prefixCacheAffinity'];

export const filterParameters: ParameterRules = {
  maxQueueDepth: { ...cap, about: 'leaves out instances with more queued' },
  maxInFlight: { ...cap, about: 'leaves out instances with more in flight' },
  maxKvUtilization: {
    kind: 'number',
    default: 1,
    above: 0,
    max: 1,
    about: 'leaves out instances of whose HBM requests hold more',
  },
  concurrencyKind: {
    kind: 'choice',
    default: 'none',
    names: ['none', ...concurrencyKinds],
    about: 'leaves out instances that have as much in flight as they may',
  },
  maxConcurrency: { ...size(100), with: concurrency, about: 'requests' },
  maxTokenConcurrency: { ...size(1_000_000), with: concurrency, about: 'uncached prompt tokens' },
  concurrencyHeadroom: { ...amount(0), max: 100, with: concurrency, about: 'share of it that comes on top' },
  sloHeadroomTier: {
    kind: 'flag',
    default: false,
    about: 'leaves out instances that are predicted to miss a target of the request',
  },
  tierExploration: { ...chance(0.01), with: tier, about: 'chance that the others are left out instead' },
  ttftUs: { ...amount(0), with: tier, about: 'target of a request without one, 0 for none' },
  tpotUs: { ...amount(50_000), with: tier, about: 'target, 0 for none' },
  prefixCacheAffinity: {
    kind: 'flag',
    default: false,
    about: 'leaves out instances without the prefix, where one that has it is not much slower',
  },
  minPrefixMatch: {
    kind: 'number',
    default: 0.8,
    above: 0,
    max: 1,
    with: affinity,
    about: 'share of the prompt',
  },
  maxTtftPenaltyUs: { ...amount(18_000_000), with: affinity, about: 'how much slower it may be, 0 for any' },
  affinityExploration: { ...chance(0), with: affinity, about: 'chance that all are kept' },
  prefixSource: {
    kind: 'choice',
    default: 'router',
    names: prefixSources,
    about: 'where the prefix is: where the router sent it before, or as caches told',
  },
  tokensPerS: {
    kind: 'number',
    default: PREFILL_TOKENS_PER_S,
    above: 0,
    with: [...tier, ...affinity],
    about: 'rate of prefill, for predictions',
  },
};

export class Filters implements Stateful {
  readonly #filters: readonly CandidateFilter[];
  /** Null where no filter asks for prefixes, or draws. */
  readonly #matches: PrefixMatches | null = null;
  readonly #draws: GoRandom | null = null;

  /** @param p checked against `filterParameters` */
  constructor(p: Parameters, world: PolicyWorld) {
    const filters: CandidateFilter[] = [];
    const caps = {
      maxQueueDepth: p.number('maxQueueDepth'),
      maxInFlight: p.number('maxInFlight'),
      maxKvUtilization: p.number('maxKvUtilization'),
    };
    if (isAnyCap(caps)) filters.push(new LoadCaps(caps));
    const kind = concurrencyKindOf(p.text('concurrencyKind'));
    if (kind !== undefined) {
      const [requests, tokens] = [p.number('maxConcurrency'), p.number('maxTokenConcurrency')];
      filters.push(new Concurrency({ kind, requests, tokens }, p.number('concurrencyHeadroom')));
    }
    const [byTier, byAffinity] = [p.flag('sloHeadroomTier'), p.flag('prefixCacheAffinity')];
    if (byTier || byAffinity) {
      const matches = new PrefixMatches(p.text('prefixSource') === 'caches' ? 'caches' : 'router');
      const draws = world.stream('router-filters');
      const tokensPerS = p.number('tokensPerS');
      if (byTier) {
        const targets = { ttftUs: p.number('ttftUs'), tpotUs: p.number('tpotUs'), tokensPerS };
        const exploration = p.number('tierExploration');
        filters.push(new SloHeadroomTier(targets, exploration, world.blockTokens, matches, draws));
      }
      if (byAffinity) {
        const rules = {
          minMatch: p.number('minPrefixMatch'),
          maxTtftPenaltyUs: p.number('maxTtftPenaltyUs'),
          exploration: p.number('affinityExploration'),
          tokensPerS,
        };
        filters.push(new PrefixCacheAffinity(rules, matches, draws));
      }
      this.#matches = matches;
      this.#draws = draws;
    }
    this.#filters = filters;
  }

  /** Whether they ask the router's observed view of caches. */
  get readsCaches(): boolean {
    return this.#matches?.source === 'caches';
  }

  /** Whether any goes by what instances report; concurrency goes by what the router counts. */
  get readsReports(): boolean {
    return this.#filters.some((filter) => !(filter instanceof Concurrency));
  }

  /**
   * Sets the scores of candidates that are left out to -Infinity and says which they are. A filter that would
   * leave out all that are open leaves out none: a request has to go somewhere.
   */
  apply(context: RoutingContext, scores: Float64Array): readonly FilteredOut[] {
    if (this.#filters.length === 0) return [];
    const { candidates } = context;
    const all: FilteredOut[] = [];
    let open: readonly number[] = candidates.map((_, at) => at);
    for (const filter of this.#filters) {
      const out = filter.leavesOut(context, open);
      if (out.length === 0 || out.length === open.length) continue;
      for (const { at, filter: name } of out) {
        scores[at] = -Infinity;
        all.push({ instance: candidates[at].instance, id: candidates[at].id, filter: name });
      }
      open = open.filter((at) => !out.some((left) => left.at === at));
    }
    return all;
  }

  routed(context: RoutingContext, instance: number): void {
    this.#matches?.routed(context, instance);
  }

  removed(instance: number): void {
    this.#matches?.removed(instance);
  }

  snapshot(): PlainState {
    return { matches: this.#matches?.snapshot() ?? null, draws: this.#draws?.snapshot() ?? null };
  }

  restore(state: PlainState): void {
    // the state is what `snapshot` made
    const saved = state as { matches: PlainState; draws: SourceState };
    this.#matches?.restore(saved.matches);
    this.#draws?.restore(saved.draws);
  }
}
