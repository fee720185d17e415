/** Filters of weighted policies: each leaves candidates out before one of the rest is picked, and never all of them. */

import type { Stateful, StateVisitor } from '../../../runtime/snapshot.ts';
import type { GoRandom } from '../../random/goRand.ts';
import { type ConcurrencyCaps, concurrencyKindOf, concurrencyKinds, kvUtilization } from '../admission.ts';
import {
  type FilteredOut,
  headroomUs,
  type InstanceSnapshot,
  type LatencyTargets,
  type PolicyWorld,
  PREFILL_TOKENS_PER_S,
  predictedTtftUs,
  visitStream,
} from '../policy.ts';
import type { NumberRule, ParameterRules, PolicyParameters } from '../registry.ts';
import type { RoutingContext } from './routingPolicy.ts';
import { affinityBlocks, PrefixAffinity } from './scorers.ts';

/** A place in the candidates, and the name of the rule that leaves it out. */
interface LeftOut {
  readonly at: number;
  readonly filter: string;
}

interface CandidateFilter {
  /** @param open places of the candidates that no filter before has left out, in order */
  leavesOut(context: RoutingContext, open: readonly number[]): readonly LeftOut[];
}

/** Those of `open` that are not kept. */
function allBut(open: readonly number[], kept: readonly number[], filter: string): readonly LeftOut[] {
  return open.filter((at) => !kept.includes(at)).map((at) => ({ at, filter }));
}

//  llm-d's concurrency detector as a filter: what each instance may have in flight, with room for bursts.

/**
 * Keeps instances with less in flight than trunc(cap x (1 + headroom)), so that with this request the
 * limit holds: requests, uncached prompt tokens without a first token, or both. (llm-d-router,
 * `saturationdetector/concurrency`.)
 */
class Concurrency implements CandidateFilter {
  readonly #caps: ConcurrencyCaps;
  readonly #headroom: number;

  constructor(caps: ConcurrencyCaps, headroom: number) {
    this.#caps = caps;
    this.#headroom = headroom;
  }

  leavesOut({ candidates }: RoutingContext, open: readonly number[]): readonly LeftOut[] {
    const { kind, requests, tokens } = this.#caps;
    const kept = open.filter((at) => {
      const { inFlight, inFlightTokens } = candidates[at];
      const fewRequests = inFlight < Math.trunc(requests * (1 + this.#headroom));
      const fewTokens = inFlightTokens < Math.trunc(tokens * (1 + this.#headroom));
      return (kind === 'tokens' || fewRequests) && (kind === 'requests' || fewTokens);
    });
    return allBut(open, kept, 'concurrency');
  }
}

//  Caps on load that an instance has to keep.

/** No limit, as a number that can be written as JSON. */
const UNLIMITED: number = Number.MAX_SAFE_INTEGER;

/** `UNLIMITED`, and 1 for the utilisation, for none. */
interface Caps {
  readonly maxQueueDepth: number;
  readonly maxInFlight: number;
  readonly maxKvUtilization: number;
}

function isAnyCap({ maxQueueDepth, maxInFlight, maxKvUtilization }: Caps): boolean {
  return maxQueueDepth < UNLIMITED || maxInFlight < UNLIMITED || maxKvUtilization < 1;
}

class LoadCaps implements CandidateFilter {
  readonly #caps: Caps;

  constructor(caps: Caps) {
    this.#caps = caps;
  }

  leavesOut({ candidates }: RoutingContext, open: readonly number[]): readonly LeftOut[] {
    return open.flatMap((at) => {
      const filter = this.#broken(candidates[at]);
      return filter === '' ? [] : [{ at, filter }];
    });
  }

  /** The cap that the instance breaks, or '' where it keeps all of them. */
  #broken(instance: InstanceSnapshot): string {
    if (instance.queueDepth > this.#caps.maxQueueDepth) return 'maxQueueDepth';
    if (instance.inFlight > this.#caps.maxInFlight) return 'maxInFlight';
    return kvUtilization(instance) > this.#caps.maxKvUtilization ? 'maxKvUtilization' : '';
  }
}

//  llm-d's filter that keeps a prompt where its prefix is, while that is not too slow.

interface AffinityRules {
  /** Matched share of the prompt from which on an instance is sticky. */
  readonly minMatch: number;
  /** 0 for any. */
  readonly maxTtftPenaltyUs: number;
  /** Chance that a request is let go anywhere. */
  readonly exploration: number;
  readonly tokensPerS: number;
}

/**
 * Keeps the sticky instances, if there are any, unless the least time to a first token among them is more
 * than the penalty above the least among the others. That time is the uncached tokens in flight over the rate
 * of prefill; the request's own are not counted. Draws where the chance is above 0. (llm-d-router,
 * `prefix-cache-affinity-filter`, with its source `prefillThroughput`.)
 */
class PrefixCacheAffinity implements CandidateFilter {
  readonly #rules: AffinityRules;
  readonly #matches: PrefixMatches;
  readonly #draws: GoRandom;

  constructor(rules: AffinityRules, matches: PrefixMatches, draws: GoRandom) {
    this.#rules = rules;
    this.#matches = matches;
    this.#draws = draws;
  }

  leavesOut(context: RoutingContext, open: readonly number[]): readonly LeftOut[] {
    const { minMatch, maxTtftPenaltyUs, exploration } = this.#rules;
    if (open.length < 2) return [];
    if (exploration > 0 && this.#draws.float64() < exploration) return [];
    const { candidates } = context;
    const isSticky = (at: number): boolean =>
      this.#matches.share(context, candidates[at].instance) >= minMatch;
    const sticky = open.filter(isSticky);
    const others = open.filter((at) => !sticky.includes(at));
    if (sticky.length === 0 || others.length === 0) return [];
    const penaltyUs = this.#leastUs(context, sticky) - this.#leastUs(context, others);
    if (maxTtftPenaltyUs > 0 && penaltyUs > maxTtftPenaltyUs) return [];
    return allBut(open, sticky, 'prefix-cache-affinity');
  }

  #leastUs({ candidates }: RoutingContext, places: readonly number[]): number {
    return Math.min(...places.map((at) => predictedTtftUs(candidates[at], 0, this.#rules.tokensPerS)));
  }
}

//  How much of a prompt an instance is believed to have, for filters that go by it.

/** `router`: where it sent the prefix before (llm-d's approximate producer); `caches`: as they told it. */
const prefixSources = ['router', 'caches'] as const;
type PrefixSource = (typeof prefixSources)[number];

class PrefixMatches implements Stateful {
  readonly source: PrefixSource;
  readonly #memory: PrefixAffinity = new PrefixAffinity(affinityBlocks);

  constructor(source: PrefixSource) {
    this.source = source;
  }

  /** Leading blocks of the prompt. */
  blocks({ request, router }: RoutingContext, instance: number): number {
    return this.source === 'caches'
      ? router.observedKv.topBlocks(request, instance)
      : this.#memory.matchedBlocks(request, instance);
  }

  /** Matched share of all blocks of the prompt; 0 for a prompt without a full block. */
  share(context: RoutingContext, instance: number): number {
    const { promptBlocks } = context.request;
    return promptBlocks === 0 ? 0 : this.blocks(context, instance) / promptBlocks;
  }

  routed(context: RoutingContext, instance: number): void {
    if (this.source === 'router') this.#memory.routed(context, instance);
  }

  removed(instance: number): void {
    this.#memory.removed(instance);
  }

  visitState(visitor: StateVisitor): void {
    this.#memory.visitState(visitor);
  }
}

//  llm-d's filter that keeps the instances that are predicted to meet the request's targets.

/**
 * Keeps the tier with head room of both kinds, or with the chance of exploration the other one, so that it
 * gets work again; where one of them is empty, all. Draws where neither is. (llm-d-router,
 * `slo-headroom-tier-filter`.)
 */
class SloHeadroomTier implements CandidateFilter {
  readonly #targets: LatencyTargets;
  readonly #exploration: number;
  readonly #blockTokens: number;
  readonly #matches: PrefixMatches;
  readonly #draws: GoRandom;

  constructor(
    targets: LatencyTargets,
    exploration: number,
    blockTokens: number,
    matches: PrefixMatches,
    draws: GoRandom,
  ) {
    this.#targets = targets;
    this.#exploration = exploration;
    this.#blockTokens = blockTokens;
    this.#matches = matches;
    this.#draws = draws;
  }

  leavesOut(context: RoutingContext, open: readonly number[]): readonly LeftOut[] {
    const { request, candidates } = context;
    const meets = open.filter((at) => {
      const cached = this.#matches.blocks(context, candidates[at].instance) * this.#blockTokens;
      const uncached = request.promptTokens - cached;
      const { ttft, tpot } = headroomUs(request, candidates[at], uncached, this.#targets);
      return ttft >= 0 && tpot >= 0;
    });
    if (meets.length === 0 || meets.length === open.length) return [];
    const explores = this.#draws.float64() < this.#exploration;
    const kept = explores ? open.filter((at) => !meets.includes(at)) : meets;
    return allBut(open, kept, 'slo-headroom-tier');
  }
}

// Which candidates a weighted policy looks at. Filters are asked one after the other: caps on load,
// concurrency, head room, prefix affinity; each sees what those before it have left.

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

/** Whether the filters look for prefixes. @param p checked against `filterParameters` */
export function filtersReadKeys(p: PolicyParameters): boolean {
  return p.flag('sloHeadroomTier') || p.flag('prefixCacheAffinity');
}

/** Whether a filter goes by what instances report; concurrency goes by what the router counts. */
export function filtersReadReports(p: PolicyParameters): boolean {
  return filtersReadKeys(p) || isAnyCap(capsOf(p));
}

function capsOf(p: PolicyParameters): Caps {
  return {
    maxQueueDepth: p.number('maxQueueDepth'),
    maxInFlight: p.number('maxInFlight'),
    maxKvUtilization: p.number('maxKvUtilization'),
  };
}

export class Filters implements Stateful {
  readonly #filters: readonly CandidateFilter[];
  /** Null where no filter asks for prefixes, or draws. */
  readonly #matches: PrefixMatches | null = null;
  readonly #draws: GoRandom | null = null;

  /** @param p checked against `filterParameters` */
  constructor(p: PolicyParameters, world: PolicyWorld) {
    this.readsReports = filtersReadReports(p);
    const filters: CandidateFilter[] = [];
    const caps = capsOf(p);
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

  /** Whether any goes by what instances report. */
  readonly readsReports: boolean;

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

  visitState(visitor: StateVisitor): void {
    this.#matches?.visitState(visitor);
    if (this.#draws !== null) visitStream(visitor, this.#draws);
  }
}
