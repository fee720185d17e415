/** Scorers: one opinion each on where a request should go, as a number for each candidate. A weighted policy adds them up. */

import { wordsPerKey } from '../../../runtime/keys/keyChain.ts';
import type { Stateful, StateVisitor } from '../../../runtime/snapshot.ts';
import { kvUtilization } from '../admission.ts';
import { KeyDirectory, LeadingBlocks } from '../keyDirectories.ts';
import { KeyLru } from '../keyTables.ts';
import {
  effectiveLoad,
  type InstanceSnapshot,
  noMemory,
  type PolicyWorld,
  type RequestView,
} from '../policy.ts';
import { Registry } from '../registry.ts';
import type { RoutingContext } from './routingPolicy.ts';

/**
 * Spreads prompts that no instance has cached. Where any instance has a leading block, all get 0.5. Else instances
 * that were never used for such a prompt come first, in order of their numbers, then the others, the one used
 * longest ago first: 1 - rank / (n - 1); a single one gets 1. Only such decisions change the order.
 */
class NoHitLru implements Scorer {
  readonly name: string = 'no-hit-lru';
  readonly readsCaches: boolean = true;
  /** The one used longest ago first. */
  #used: number[] = [];
  #cold = false;

  score({ request, candidates, router }: RoutingContext, out: Float64Array): void {
    this.#cold = !candidates.some(({ instance }) => router.observedKv.topBlocks(request, instance) > 0);
    const count = candidates.length;
    if (!this.#cold) {
      out.fill(0.5, 0, count);
      return;
    }
    const place = (instance: number): number => this.#used.indexOf(instance);
    const ranked = candidates.map(({ instance }, i) => ({ i, place: place(instance) }));
    ranked.sort((a, b) => a.place - b.place || a.i - b.i);
    ranked.forEach(({ i }, rank) => {
      out[i] = count === 1 ? 1 : 1 - rank / (count - 1);
    });
  }

  routed(_context: RoutingContext, instance: number): void {
    if (this.#cold) this.#used = [...this.#used.filter((used) => used !== instance), instance];
  }

  removed(instance: number): void {
    this.#used = this.#used.filter((used) => used !== instance);
  }

  visitState(visitor: StateVisitor): void {
    visitor.list(this.#used);
    this.#cold = visitor.flag(this.#cold);
  }
}

/** Sessions that are remembered: some 100 MB, and more than a run or a gateway has open at once. */
const SESSIONS_MOST = 2 ** 20;

/** 1 for the instance that the session's last request went to, else 0. Of too many sessions the oldest is forgotten. */
class SessionAffinity implements Scorer {
  readonly name: string = 'session-affinity';
  readonly readsCaches: boolean = false;
  readonly #last = new Map<string, number>();

  score({ request, candidates }: RoutingContext, out: Float64Array): void {
    const last = request.sessionId === '' ? undefined : this.#last.get(request.sessionId);
    for (let i = 0; i < candidates.length; i++) out[i] = candidates[i].instance === last ? 1 : 0;
  }

  routed({ request }: RoutingContext, instance: number): void {
    if (request.sessionId === '') return;
    this.#last.set(request.sessionId, instance);
    if (this.#last.size <= SESSIONS_MOST) return;
    const [oldest] = this.#last.keys();
    this.#last.delete(oldest);
  }

  removed(instance: number): void {
    for (const [session, last] of this.#last) if (last === instance) this.#last.delete(session);
  }

  visitState(visitor: StateVisitor): void {
    visitor.value(
      () => [...this.#last],
      (saved) => {
        this.#last.clear();
        for (const [session, instance] of saved) this.#last.set(session, instance);
      },
    );
  }
}

//  Scorers that go by how loaded an instance is. None of them remembers anything.

type Values = (context: RoutingContext, out: Float64Array) => void;

function stateless(name: string, score: Values): Scorer {
  return { name, readsCaches: false, score, ...noMemory };
}

function readingReports(name: string, score: Values): Scorer {
  return { ...stateless(name, score), readsReportsAlone: true };
}

function each(value: (instance: InstanceSnapshot) => number): Values {
  return ({ candidates }, out) => {
    for (let i = 0; i < candidates.length; i++) out[i] = value(candidates[i]);
  };
}

/** The least gets 1 and the most 0, all equal 1. */
function leastIsBest(value: (instance: InstanceSnapshot) => number): Values {
  const values = each(value);
  return (context, out) => {
    values(context, out);
    minMax(out, context.candidates.length, true);
  };
}

/** (max - q) / (max - min) over queue depths. */
const queueDepth = (): Scorer =>
  readingReports(
    'queue-depth',
    leastIsBest(({ queueDepth }) => queueDepth),
  );
/** The same over batch sizes. */
const runningRequests = (): Scorer =>
  readingReports(
    'running-requests',
    leastIsBest(({ batchSize }) => batchSize),
  );
/** The same over 4 x queued + running, the cost of vLLM's data-parallel balancer. */
const vllmDp = (): Scorer =>
  readingReports(
    'vllm-dp',
    leastIsBest(({ queueDepth, batchSize }) => 4 * queueDepth + batchSize),
  );
/** 1 - KV utilisation. */
const kvUtilizationScorer = (): Scorer =>
  readingReports(
    'kv-utilization',
    each((instance) => 1 - kvUtilization(instance)),
  );
/** 1 / (1 + load), with the load of queued, running and in flight. */
const loadBalance = (): Scorer =>
  stateless(
    'load-balance',
    each((instance) => 1 / (1 + effectiveLoad(instance))),
  );

/** None in flight 1, else (max - f) / max: all equally busy get 0. */
const activeRequests = (): Scorer =>
  stateless('active-requests', ({ candidates }, out) => {
    let most = 0;
    for (const { inFlight } of candidates) most = Math.max(most, inFlight);
    for (let i = 0; i < candidates.length; i++) {
      const { inFlight } = candidates[i];
      out[i] = inFlight === 0 ? 1 : (most - inFlight) / most;
    }
  });

const QUEUE_LIMIT = 128;
/** An empty queue 0.5, else 0.5 x (1 - min(q, 128) / 128). */
const loadAware = (): Scorer =>
  readingReports(
    'load-aware',
    each(({ queueDepth }) =>
      queueDepth === 0 ? 0.5 : 0.5 * (1 - Math.min(queueDepth, QUEUE_LIMIT) / QUEUE_LIMIT),
    ),
  );

const TOKEN_LIMIT = 4_194_304;
/** 1 - min(1, tokens / 4194304), with the uncached prompt tokens that had no first token yet. */
const tokenLoad = (): Scorer =>
  stateless(
    'token-load',
    each(({ inFlightTokens }) => 1 - Math.min(1, inFlightTokens / TOKEN_LIMIT)),
  );

/** Resident 1, else 0, scaled; 1 for all where the request has no adapter or all are alike. */
const loraAffinity = (): Scorer =>
  stateless('lora-affinity', ({ request, candidates }, out) => {
    for (let i = 0; i < candidates.length; i++) {
      out[i] = request.adapter !== '' && candidates[i].adapters.includes(request.adapter) ? 1 : 0;
    }
    minMax(out, candidates.length, false);
  });

//  Scorers that go by where the prompt's blocks are believed to be.

/**
 * Matched leading blocks over all blocks of the prompt, by the router's own memory: of each instance the
 * `blocks` keys that it used last for prompts it sent there. 0 for a prompt without a full block.
 */
export class PrefixAffinity implements Scorer {
  readonly name: string = 'prefix-affinity';
  readonly readsCaches: boolean = false;
  readonly #limitBlocks: number;
  readonly #byInstance = new Map<number, KeyLru>();
  readonly #directory: KeyDirectory = new KeyDirectory();
  readonly #leading: LeadingBlocks = new LeadingBlocks([{ directory: this.#directory, tier: 0 }]);

  constructor(limitBlocks: number) {
    this.#limitBlocks = limitBlocks;
  }

  score({ request, candidates }: RoutingContext, out: Float64Array): void {
    for (let i = 0; i < candidates.length; i++) {
      out[i] =
        request.promptBlocks === 0
          ? 0
          : this.matchedBlocks(request, candidates[i].instance) / request.promptBlocks;
    }
  }

  routed({ request }: RoutingContext, instance: number): void {
    let lru = this.#byInstance.get(instance);
    if (lru === undefined) this.#byInstance.set(instance, (lru = new KeyLru()));
    const words = request.keys.words;
    for (let block = 0; block < request.promptBlocks; block++) {
      lru.touch(words, block * wordsPerKey);
      this.#directory.add(instance, words, block * wordsPerKey);
      if (lru.size <= this.#limitBlocks) continue;
      this.#directory.remove(instance, lru.words, lru.oldest() * wordsPerKey);
      lru.removeSlot(lru.oldest());
    }
  }

  removed(instance: number): void {
    this.#byInstance.delete(instance);
    this.#directory.removeInstance(instance);
  }

  /** Keys that it remembers of the instance. */
  blocksOf(instance: number): number {
    return this.#byInstance.get(instance)?.size ?? 0;
  }

  /** Leading blocks of the prompt that it remembers of the instance. */
  matchedBlocks(request: RequestView, instance: number): number {
    return this.#leading.blocks(request, instance);
  }

  visitState(visitor: StateVisitor): void {
    visitor.value(
      () => [...this.#byInstance].map(([instance, lru]) => ({ instance, keys: lru.inOrder() })),
      (saved) => {
        this.#byInstance.clear();
        this.#directory.clear();
        for (const { instance, keys } of saved) {
          const lru = new KeyLru();
          lru.fill(keys);
          for (let at = 0; at < keys.length; at += wordsPerKey) this.#directory.add(instance, keys, at);
          this.#byInstance.set(instance, lru);
        }
      },
    );
  }
}

const LONG_TOKENS = 8192;

/**
 * min(1, matched tokens / 8192) squared, by the same memory: the length term of llm-d's prefix scorer, which
 * with its weight w is w x this + (1 - w) x `prefix-affinity`.
 */
class PrefixLength extends PrefixAffinity {
  override readonly name: string = 'prefix-length';
  readonly #blockTokens: number;

  constructor(limitBlocks: number, blockTokens: number) {
    super(limitBlocks);
    this.#blockTokens = blockTokens;
  }

  override score({ request, candidates }: RoutingContext, out: Float64Array): void {
    for (let i = 0; i < candidates.length; i++) {
      const tokens = this.matchedBlocks(request, candidates[i].instance) * this.#blockTokens;
      const share = Math.min(1, tokens / LONG_TOKENS);
      out[i] = share * share;
    }
  }
}

/** Leading blocks in HBM as the instances told it, scaled to [0, 1]; all equal, 1. */
const precisePrefix = (): Scorer => ({
  name: 'precise-prefix-cache',
  readsCaches: true,
  score: ({ request, candidates, router }, out) => {
    for (let i = 0; i < candidates.length; i++) {
      out[i] = router.observedKv.topBlocks(request, candidates[i].instance);
    }
    minMax(out, candidates.length, false);
  },
  ...noMemory,
});

/** Weight of a block by its tier, HBM first; tiers behind the last weight as much as it. */
const TIER_WEIGHTS = [1, 0.8, 0.5, 0.25];

/**
 * Leading blocks in any tier as the instances told it, weighted by tier, over the blocks of the prompt; 0 for
 * a prompt without a full block.
 */
const tieredPrefix = (): Scorer => ({
  name: 'tiered-prefix',
  readsCaches: true,
  score: ({ request, candidates, router }, out) => {
    for (let i = 0; i < candidates.length; i++) {
      let weighted = 0;
      const { byTier } = router.observedKv.place(request, candidates[i].instance);
      byTier.forEach((blocks, tier) => {
        weighted += blocks * TIER_WEIGHTS[Math.min(tier, TIER_WEIGHTS.length - 1)];
      });
      out[i] = request.promptBlocks === 0 ? 0 : weighted / request.promptBlocks;
    }
  },
  ...noMemory,
});

/** Leading blocks by the router's shadow over the blocks of the prompt; 0 without a shadow. */
const shadowPrefix = (): Scorer => ({
  name: 'shadow-prefix',
  readsCaches: false,
  score: ({ request, candidates, router }, out) => {
    for (let i = 0; i < candidates.length; i++) {
      const blocks = router.shadowKv?.place(request, candidates[i].instance).blocks ?? 0;
      out[i] = request.promptBlocks === 0 ? 0 : blocks / request.promptBlocks;
    }
  },
  ...noMemory,
});

//  The contract.

export interface Scorer extends Stateful {
  readonly name: string;
  /** Whether it asks the router's observed view of caches. */
  readonly readsCaches: boolean;
  /** Whether its scores depend on nothing but what instances report: they hold until the next report. */
  readonly readsReportsAlone?: boolean;
  /** Fills `out[i]` for candidate i; scores lie in [0, 1] or are clamped to it. */
  score(context: RoutingContext, out: Float64Array): void;
  routed?(context: RoutingContext, instance: number): void;
  removed?(instance: number): void;
}

/**
 * Scales values to [0, 1] in place; with `inverted` the smallest gets 1. All equal gives 1 everywhere.
 */
function minMax(values: Float64Array, count: number, inverted: boolean): void {
  let min = Infinity;
  let max = -Infinity;
  for (let i = 0; i < count; i++) {
    min = Math.min(min, values[i]);
    max = Math.max(max, values[i]);
  }
  for (let i = 0; i < count; i++) {
    values[i] = max === min ? 1 : (inverted ? max - values[i] : values[i] - min) / (max - min);
  }
}

//  The registry.

/** Keys that `prefix-affinity` remembers of each instance; upstream's number. */
export const affinityBlocks = 10_000;

/** The part of the policies' world that a scorer needs. */
type ScorerWorld = Pick<PolicyWorld, 'blockTokens'>;

export const scorers: Registry<Scorer, ScorerWorld> = new Registry<Scorer, ScorerWorld>('scorers', [
  {
    name: 'prefix-affinity',
    about: 'share of the prompt that the router sent there before',
    parameters: {},
    readsKeys: true,
    readsReports: false,
    make: () => new PrefixAffinity(affinityBlocks),
  },
  {
    name: 'prefix-length',
    about: 'the same by length, up to 8,192 tokens',
    parameters: {},
    readsKeys: true,
    readsReports: false,
    make: (_, { blockTokens }) => new PrefixLength(affinityBlocks, blockTokens),
  },
  {
    name: 'precise-prefix-cache',
    about: 'leading blocks in HBM, as the instances told',
    parameters: {},
    readsKeys: true,
    readsReports: false,
    make: precisePrefix,
  },
  {
    name: 'tiered-prefix',
    about: 'leading blocks in any tier, weighted by tier',
    parameters: {},
    readsKeys: true,
    readsReports: false,
    make: tieredPrefix,
  },
  {
    name: 'shadow-prefix',
    about: "leading blocks by the router's shadow",
    parameters: {},
    readsKeys: true,
    readsReports: false,
    make: shadowPrefix,
  },
  {
    name: 'no-hit-lru',
    about: 'the instance used longest ago for a prompt that no instance has cached',
    parameters: {},
    readsKeys: true,
    readsReports: false,
    make: () => new NoHitLru(),
  },
  {
    name: 'session-affinity',
    about: "the instance of the session's last request",
    parameters: {},
    readsKeys: false,
    readsReports: false,
    make: () => new SessionAffinity(),
  },
  {
    name: 'queue-depth',
    about: 'fewest queued',
    parameters: {},
    readsKeys: false,
    readsReports: true,
    make: queueDepth,
  },
  {
    name: 'kv-utilization',
    about: 'least of HBM held by requests',
    parameters: {},
    readsKeys: false,
    readsReports: true,
    make: kvUtilizationScorer,
  },
  {
    name: 'load-balance',
    about: 'least load',
    parameters: {},
    readsKeys: false,
    readsReports: true,
    make: loadBalance,
  },
  {
    name: 'active-requests',
    about: 'fewest in flight',
    parameters: {},
    readsKeys: false,
    readsReports: false,
    make: activeRequests,
  },
  {
    name: 'running-requests',
    about: 'smallest batch',
    parameters: {},
    readsKeys: false,
    readsReports: true,
    make: runningRequests,
  },
  {
    name: 'load-aware',
    about: 'shortest queue, up to 128',
    parameters: {},
    readsKeys: false,
    readsReports: true,
    make: loadAware,
  },
  {
    name: 'token-load',
    about: 'fewest uncached prompt tokens in flight',
    parameters: {},
    readsKeys: false,
    readsReports: false,
    make: tokenLoad,
  },
  {
    name: 'vllm-dp',
    about: "least 4 x queued + running, as vLLM's data-parallel balancer",
    parameters: {},
    readsKeys: false,
    readsReports: true,
    make: vllmDp,
  },
  {
    name: 'lora-affinity',
    about: 'the adapter is resident',
    parameters: {},
    readsKeys: false,
    readsReports: true,
    make: loraAffinity,
  },
]);
