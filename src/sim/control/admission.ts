/** The first stage: its contract, its policies and their registry. A request comes in, is turned away, or asks again later. */

import type { StateVisitor } from '../../runtime/snapshot.ts';
import type { GoRandom } from '../random/goRand.ts';
import {
  ADMIT,
  type AdmissionDecision,
  type ClusterState,
  effectiveLoad,
  headroomUs,
  type InstanceSnapshot,
  type LatencyTargets,
  type NamedPolicy,
  noMemory,
  PREFILL_TOKENS_PER_S,
  type RequestPriority,
  type RequestView,
  visitStream,
} from './policy.ts';
import { type NumberRule, type ParameterRules, type PolicyEntry, Registry } from './registry.ts';
import type { RouterState } from './routerState.ts';

export interface AdmissionPolicy extends NamedPolicy {
  /** Changes none of its arguments. `priority` is the class's, as the priority stage will see it. */
  decide(
    request: RequestView,
    priority: RequestPriority,
    router: RouterState,
    cluster: ClusterState,
  ): AdmissionDecision;
  /** An admitted request has ended. */
  ended?(request: RequestView, nowUs: number): void;
}

//  Admission rules that shed a growing share of the sheddable requests as load grows.

/**
 * Sheds with probability min(factor x saturation^5, 1); with the factor of 300 that is 2.3% at a saturation
 * of 0.15 and everything from 0.32 on. Draws only for requests that may be shed.
 */
class ProbabilisticShed implements AdmissionPolicy {
  readonly name: string = 'probabilistic';
  readonly #factor: number;
  readonly #queueThreshold: number;
  readonly #kvThreshold: number;
  readonly #random: GoRandom;

  constructor(factor: number, queueThreshold: number, kvThreshold: number, random: GoRandom) {
    this.#factor = factor;
    this.#queueThreshold = queueThreshold;
    this.#kvThreshold = kvThreshold;
    this.#random = random;
  }

  decide(
    _request: RequestView,
    priority: RequestPriority,
    _router: RouterState,
    cluster: ClusterState,
  ): AdmissionDecision {
    if (!priority.hints.sheddable) return ADMIT;
    const saturation = utilizationSaturation(cluster, this.#queueThreshold, this.#kvThreshold);
    const square = saturation * saturation;
    const chance = Math.min(this.#factor * square * square * saturation, 1);
    return this.#random.float64() < chance ? { verdict: 'reject', reason: 'shed at random' } : ADMIT;
  }

  visitState(visitor: StateVisitor): void {
    visitStream(visitor, this.#random);
  }
}

/**
 * Each class has a ceiling: the most urgent 1, the one at place i of N 1 - i x saturation / (N - 1), so that
 * the ceilings sink as load grows. A class whose ceiling the saturation has reached is held: it opens once
 * in round(saturation / (1 - saturation)) of its requests, which keeps it alive. Held requests come again
 * after `retryUs`, or are rejected where that is 0. The soft-reflective ceilings of the gateway API's flow
 * control, as admission.
 */
class SoftReflective implements AdmissionPolicy {
  readonly name: string = 'soft-reflective';
  readonly #queueThreshold: number;
  readonly #kvThreshold: number;
  readonly #retryUs: number;
  /** Priorities seen, the most urgent first, and requests held since each last opened. */
  readonly #bands: { readonly score: number; held: number }[] = [];

  constructor(queueThreshold: number, kvThreshold: number, retryUs: number) {
    this.#queueThreshold = queueThreshold;
    this.#kvThreshold = kvThreshold;
    this.#retryUs = retryUs;
  }

  decide(
    _request: RequestView,
    priority: RequestPriority,
    _router: RouterState,
    cluster: ClusterState,
  ): AdmissionDecision {
    const place = this.#placeOf(priority.score);
    const saturation = utilizationSaturation(cluster, this.#queueThreshold, this.#kvThreshold);
    if (saturation < softCeiling(place, this.#bands.length, saturation)) return ADMIT;
    const band = this.#bands[place];
    band.held++;
    if (saturation < 1 && band.held >= Math.max(1, Math.round(saturation / (1 - saturation)))) {
      band.held = 0;
      return ADMIT;
    }
    const reason = `saturation ${saturation.toFixed(3)} at its ceiling`;
    if (this.#retryUs === 0) return { verdict: 'reject', reason };
    return { verdict: 'delay', durationUs: this.#retryUs, reason };
  }

  #placeOf(score: number): number {
    let place = 0;
    while (place < this.#bands.length && this.#bands[place].score > score) place++;
    if (this.#bands[place]?.score !== score) this.#bands.splice(place, 0, { score, held: 0 });
    return place;
  }

  visitState(visitor: StateVisitor): void {
    visitor.value(
      () => this.#bands.map((band) => ({ ...band })),
      (saved) => {
        this.#bands.splice(0, this.#bands.length, ...saved.map((band) => ({ ...band })));
      },
    );
  }
}

/** Ceiling of the band at `place` of `bands`; a single band has 1. */
function softCeiling(place: number, bands: number, saturation: number): number {
  return bands <= 1 ? 1 : 1 - (place * saturation) / (bands - 1);
}

//  How full the instances are, as one number: 0 is idle, 1 full. What admission and the gateway go by.

/** KV utilisation of HBM. */
export function kvUtilization(instance: InstanceSnapshot): number {
  return instance.kv.tiers[0]?.utilization ?? 0;
}

/**
 * Mean over instances of the larger of queue depth over `queueThreshold` and KV utilisation over
 * `kvThreshold`; 1 without instances. Upstream's `utilization` detector.
 */
export function utilizationSaturation(
  { instances }: ClusterState,
  queueThreshold: number,
  kvThreshold: number,
): number {
  if (instances.length === 0) return 1;
  let sum = 0;
  for (const instance of instances) {
    sum += Math.max(instance.queueDepth / queueThreshold, kvUtilization(instance) / kvThreshold);
  }
  return sum / instances.length;
}

export const concurrencyKinds = ['requests', 'tokens', 'hybrid'] as const;
type ConcurrencyKind = (typeof concurrencyKinds)[number];

/** Undefined for another name. */
export function concurrencyKindOf(name: string): ConcurrencyKind | undefined {
  return concurrencyKinds.find((kind) => kind === name);
}

/** Limits of an instance's load in flight, and the kind that counts; with `hybrid` both do. */
export interface ConcurrencyCaps {
  readonly kind: ConcurrencyKind;
  readonly requests: number;
  /** Uncached prompt tokens of requests without a first token. */
  readonly tokens: number;
}

/**
 * Load in flight over the limit of all instances together, with `hybrid` the larger of both shares; 1 without
 * instances. llm-d's concurrency detector.
 */
export function concurrencySaturation({ instances }: ClusterState, caps: ConcurrencyCaps): number {
  if (instances.length === 0) return 1;
  let requests = 0;
  let tokens = 0;
  for (const { inFlight, inFlightTokens } of instances) {
    requests += inFlight;
    tokens += inFlightTokens;
  }
  const byRequests = requests / (instances.length * caps.requests);
  const byTokens = tokens / (instances.length * caps.tokens);
  if (caps.kind === 'hybrid') return Math.max(byRequests, byTokens);
  return caps.kind === 'tokens' ? byTokens : byRequests;
}

//  Admission rules that turn sheddable requests away while the instances are loaded.

/** Rejects classes below `minPriority` while the most loaded instance has more than `threshold`. */
function tierShed(threshold: number, minPriority: number): AdmissionPolicy {
  return {
    ...noMemory,
    name: 'tier-shed',
    decide(_request, priority, _router, cluster) {
      let most = 0;
      for (const instance of cluster.instances) most = Math.max(most, effectiveLoad(instance));
      if (most <= threshold || priority.score >= minPriority) return ADMIT;
      return { verdict: 'reject', reason: `load ${most} above ${threshold}` };
    },
  };
}

/** Rejects sheddable classes while the instances are saturated. Of what says how much they are, 1 is full. */
function saturationShed(name: string, saturation: (cluster: ClusterState) => number): AdmissionPolicy {
  return {
    ...noMemory,
    name,
    decide(_request, priority, _router, cluster) {
      if (!priority.hints.sheddable || saturation(cluster) < 1) return ADMIT;
      return { verdict: 'reject', reason: 'saturated' };
    },
  };
}

interface LatencyRules extends LatencyTargets {
  /** KV utilisation below which an instance takes anything. */
  readonly nearlyEmpty: number;
}

/**
 * llm-d's latency admission: a sheddable request comes in where some instance is predicted to meet both
 * targets, has nothing in flight, or has less than `nearlyEmpty` of its HBM held. Its whole prompt counts as
 * uncached.
 */
function latencySlo(rules: LatencyRules): AdmissionPolicy {
  return {
    ...noMemory,
    name: 'latency-slo',
    decide(request, priority, _router, { instances }) {
      if (!priority.hints.sheddable) return ADMIT;
      const takesIt = instances.some((instance) => {
        if (instance.inFlight === 0 || kvUtilization(instance) < rules.nearlyEmpty) return true;
        const { ttft, tpot } = headroomUs(request, instance, request.promptTokens, rules);
        return ttft >= 0 && tpot >= 0;
      });
      return takesIt ? ADMIT : { verdict: 'reject', reason: 'no instance has head room' };
    },
  };
}

//  Admission rules that look at no instance: all, none, and a bucket of tokens.

/** One decision for every request. */
function always(name: string, decision: AdmissionDecision): AdmissionPolicy {
  return { ...noMemory, name, decide: () => decision };
}

/**
 * A bucket of tokens that starts full: a request takes as many as its prompt has. With `onEmpty: delay` a
 * request that finds too few comes again when enough have flowed in, if it can ever have them.
 */
class TokenBucket implements AdmissionPolicy {
  readonly name: string = 'token-bucket';
  readonly #capacity: number;
  readonly #perSecond: number;
  readonly #delays: boolean;
  #tokens: number;
  #filledUs = 0;

  constructor(capacity: number, perSecond: number, delays: boolean) {
    this.#capacity = capacity;
    this.#perSecond = perSecond;
    this.#delays = delays;
    this.#tokens = capacity;
  }

  decide(request: RequestView, _priority: RequestPriority, router: RouterState): AdmissionDecision {
    const elapsedUs = router.nowUs - this.#filledUs;
    if (elapsedUs > 0) {
      this.#tokens = Math.min(this.#capacity, this.#tokens + (elapsedUs * this.#perSecond) / 1e6);
      this.#filledUs = router.nowUs;
    }
    if (this.#tokens >= request.promptTokens) {
      this.#tokens -= request.promptTokens;
      return ADMIT;
    }
    const reason = 'too few tokens in the bucket';
    if (!this.#delays || request.promptTokens > this.#capacity) return { verdict: 'reject', reason };
    const missing = request.promptTokens - this.#tokens;
    return { verdict: 'delay', durationUs: Math.ceil((missing * 1e6) / this.#perSecond), reason };
  }

  visitState(visitor: StateVisitor): void {
    this.#tokens = visitor.number(this.#tokens);
    this.#filledUs = visitor.number(this.#filledUs);
  }
}

//  Admission rules that tell tenants apart.

/**
 * Around another rule: a tenant with a budget has at most that share of all batch slots in flight; beyond it
 * its sheddable requests are rejected, and the rest is the inner rule's matter. Tenants without a budget, and
 * requests without a tenant, are not limited.
 */
class TenantBudgets implements AdmissionPolicy {
  readonly name: string;
  readonly #inner: AdmissionPolicy;
  readonly #shares: Readonly<Record<string, number>>;
  readonly #maxSequences: number;

  constructor(inner: AdmissionPolicy, shares: Readonly<Record<string, number>>, maxSequences: number) {
    this.name = inner.name;
    this.#inner = inner;
    this.#shares = shares;
    this.#maxSequences = maxSequences;
  }

  decide(
    request: RequestView,
    priority: RequestPriority,
    router: RouterState,
    cluster: ClusterState,
  ): AdmissionDecision {
    const { tenantId } = request;
    if (priority.hints.sheddable && tenantId !== '' && Object.hasOwn(this.#shares, tenantId)) {
      const most = this.#shares[tenantId] * cluster.instances.length * this.#maxSequences;
      if (router.tenant(tenantId).activeRequests > most) {
        return { verdict: 'reject', reason: `tenant ${tenantId} is over its budget` };
      }
    }
    return this.#inner.decide(request, priority, router, cluster);
  }

  ended(request: RequestView, nowUs: number): void {
    this.#inner.ended?.(request, nowUs);
  }

  visitState(visitor: StateVisitor): void {
    this.#inner.visitState(visitor);
  }
}

const FAIR_AFTER_REQUESTS = 5;

/**
 * The published evolved rule for two classes under overload: critical and standard always come in; batch is
 * shed above 12 requests in flight an instance, or 20 where less than 0.4 of its tenant's requests were
 * admitted so far; sheddable above 25 or 35. Every other class comes in.
 */
class EvolvedAdmission implements AdmissionPolicy {
  readonly name: string = 'evolved';
  readonly #requests = new Map<string, number>();
  readonly #admitted = new Map<string, number>();

  decide(
    request: RequestView,
    _priority: RequestPriority,
    _router: RouterState,
    cluster: ClusterState,
  ): AdmissionDecision {
    const { tenantId, sloClass } = request;
    const requests = (this.#requests.get(tenantId) ?? 0) + 1;
    this.#requests.set(tenantId, requests);
    if (sloClass === 'batch' || sloClass === 'sheddable') {
      const admitted = this.#admitted.get(tenantId) ?? 0;
      const underserved = requests > FAIR_AFTER_REQUESTS && admitted / requests < 0.4;
      const [usual, lenient] = sloClass === 'batch' ? [12, 20] : [25, 35];
      let inFlight = 0;
      for (const instance of cluster.instances) inFlight += instance.inFlight;
      const load = cluster.instances.length === 0 ? 0 : inFlight / cluster.instances.length;
      if (load > (underserved ? lenient : usual)) return { verdict: 'reject', reason: `${sloClass} is shed` };
    } else if (sloClass !== 'critical' && sloClass !== 'standard') {
      return ADMIT;
    }
    this.#admitted.set(tenantId, (this.#admitted.get(tenantId) ?? 0) + 1);
    return ADMIT;
  }

  visitState(visitor: StateVisitor): void {
    for (const counts of [this.#requests, this.#admitted]) {
      visitor.value(
        () => [...counts],
        (saved) => {
          counts.clear();
          for (const [tenant, count] of saved) counts.set(tenant, count);
        },
      );
    }
  }
}

//  Admission policies by name. Each of them may have tenant budgets around it.

const shareRule: NumberRule = { kind: 'number', default: 1, min: 0, max: 1 };
const queueThreshold: NumberRule = { kind: 'number', default: 5, above: 0 };
const kvThreshold: NumberRule = { kind: 'number', default: 0.8, above: 0, max: 1 };

/** The entry with the parameter `tenantBudgets`: a share of all batch slots for each tenant that has one. */
function budgeted(entry: PolicyEntry<AdmissionPolicy>): PolicyEntry<AdmissionPolicy> {
  const parameters: ParameterRules = {
    ...entry.parameters,
    tenantBudgets: { kind: 'numbers', default: {}, each: shareRule },
  };
  return {
    ...entry,
    parameters,
    make: (p, world) => {
      const inner = entry.make(p, world);
      const shares = p.numbers('tenantBudgets');
      if (Object.keys(shares).length === 0) return inner;
      return new TenantBudgets(inner, shares, world.maxSequences);
    },
  };
}

export const admissionPolicies: Registry<AdmissionPolicy> = new Registry<AdmissionPolicy>('admission', [
  budgeted({
    name: 'always-admit',
    isUsual: true,
    readsKeys: false,
    readsReports: false,
    about: 'all requests',
    parameters: {},
    make: () => always('always-admit', ADMIT),
  }),
  budgeted({
    name: 'token-bucket',
    readsKeys: false,
    readsReports: false,
    about: 'as many prompt tokens as a bucket holds and flow into it',
    parameters: {
      capacity: { kind: 'number', default: 10000, above: 0 },
      refillRate: { kind: 'number', default: 1000, above: 0 },
      onEmpty: { kind: 'choice', default: 'reject', names: ['reject', 'delay'] },
    },
    make: (p) => new TokenBucket(p.number('capacity'), p.number('refillRate'), p.text('onEmpty') === 'delay'),
  }),
  budgeted({
    name: 'reject-all',
    readsKeys: false,
    readsReports: false,
    about: 'none',
    parameters: {},
    make: () => always('reject-all', { verdict: 'reject', reason: 'reject-all' }),
  }),
  budgeted({
    name: 'tier-shed',
    readsKeys: false,
    readsReports: true,
    about: 'only urgent classes while an instance is loaded',
    parameters: {
      threshold: { kind: 'number', default: 0, min: 0, integer: true },
      minPriority: { kind: 'number', default: 0, min: -100, max: 100, integer: true },
    },
    make: (p) => tierShed(p.number('threshold'), p.number('minPriority')),
  }),
  budgeted({
    name: 'gaie-legacy',
    readsKeys: false,
    readsReports: true,
    about: 'no sheddable classes while instances are saturated',
    parameters: { queueThreshold, kvThreshold },
    make: (p) => {
      const [queue, kv] = [p.number('queueThreshold'), p.number('kvThreshold')];
      return saturationShed('gaie-legacy', (cluster) => utilizationSaturation(cluster, queue, kv));
    },
  }),
  budgeted({
    name: 'probabilistic',
    readsKeys: false,
    readsReports: true,
    about: 'sheds sheddable classes with a chance that grows with the fifth power of saturation',
    parameters: { factor: { kind: 'number', default: 300, above: 0 }, queueThreshold, kvThreshold },
    make: (p, world) =>
      new ProbabilisticShed(
        p.number('factor'),
        p.number('queueThreshold'),
        p.number('kvThreshold'),
        world.stream('admission'),
      ),
  }),
  budgeted({
    name: 'soft-reflective',
    readsKeys: false,
    readsReports: true,
    about: 'ceilings for less urgent classes that sink as load grows, with a trickle above them',
    parameters: {
      queueThreshold,
      kvThreshold,
      retryUs: { kind: 'number', default: 0, min: 0, max: 1e12, integer: true },
    },
    make: (p) => new SoftReflective(p.number('queueThreshold'), p.number('kvThreshold'), p.number('retryUs')),
  }),
  budgeted({
    name: 'latency-slo',
    readsKeys: false,
    readsReports: true,
    about: 'no sheddable classes where no instance has head room, is idle or is nearly empty',
    parameters: {
      ttftUs: { kind: 'number', default: 0, min: 0 },
      tpotUs: { kind: 'number', default: 50_000, min: 0 },
      nearlyEmpty: { kind: 'number', default: 0.02, min: 0, max: 1 },
      tokensPerS: { kind: 'number', default: PREFILL_TOKENS_PER_S, above: 0 },
    },
    make: (p) =>
      latencySlo({
        ttftUs: p.number('ttftUs'),
        tpotUs: p.number('tpotUs'),
        nearlyEmpty: p.number('nearlyEmpty'),
        tokensPerS: p.number('tokensPerS'),
      }),
  }),
  budgeted({
    name: 'concurrency',
    readsKeys: false,
    readsReports: false,
    about: 'no sheddable classes while as much is in flight as all instances should have',
    parameters: {
      kind: { kind: 'choice', default: 'requests', names: concurrencyKinds },
      perInstance: { kind: 'number', default: 100, above: 0 },
      tokensPerInstance: { kind: 'number', default: 1_000_000, above: 0, with: ['kind'] },
    },
    make: (p) => {
      const caps = {
        kind: concurrencyKindOf(p.text('kind')) ?? 'requests',
        requests: p.number('perInstance'),
        tokens: p.number('tokensPerInstance'),
      };
      return saturationShed('concurrency', (cluster) => concurrencySaturation(cluster, caps));
    },
  }),
  budgeted({
    name: 'evolved',
    readsKeys: false,
    readsReports: false,
    about: 'the published evolved rule for an overloaded cluster',
    parameters: {},
    make: () => new EvolvedAdmission(),
  }),
]);
