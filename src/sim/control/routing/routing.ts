/**
 * The routing policies that every control plane has, and the registry of all. Rules of other servers bring their own entries
 * from `catalogue`, a file for each server.
 */

import { configError } from '../../../runtime/errors.ts';
import type { StateVisitor } from '../../../runtime/snapshot.ts';
import { kvUtilization } from '../admission.ts';
import { aibrixRules } from '../catalogue/aibrix.ts';
import { chanceRules } from '../catalogue/chance.ts';
import { dynamoRules } from '../catalogue/dynamo.ts';
import { llmDRules } from '../catalogue/llmD.ts';
import { prebleRules } from '../catalogue/preble.ts';
import { productionStackRules } from '../catalogue/productionStack.ts';
import { sglangRules } from '../catalogue/sglang.ts';
import { effectiveLoad, type InstanceSnapshot, type PolicyWorld, type RequestView } from '../policy.ts';
import {
  type NumberRule,
  type ParameterRules,
  type PolicyEntry,
  type PolicyParameters,
  Registry,
} from '../registry.ts';
import { Filters, filterParameters, filtersReadKeys, filtersReadReports } from './filters.ts';
import {
  DrawingPicker,
  type DrawName,
  Picker,
  type RoutingChoice,
  type RoutingContext,
  type RoutingPolicy,
  type ScorePart,
  tieNames,
} from './routingPolicy.ts';
import { type Scorer, scorers } from './scorers.ts';

// Weighted scorers: the sum of clamped scores times weights that add up to 1; the highest sum wins. Added up
// in the order of the scorers, as upstream does.

/** A scorer with its share of the whole and what it said last. */
interface WeightedPart extends ScorePart {
  readonly scorer: Scorer;
  readonly weight: number;
  values: Float64Array;
  /** Inputs of the values, where they depend on reports alone. */
  reports: number | undefined;
  candidates: readonly InstanceSnapshot[];
}

/** @throws TKV_CONFIG without any weight above 0 */
function partsOf(weights: Readonly<Record<string, number>>, blockTokens: number): WeightedPart[] {
  const entries = Object.entries(weights).filter(([, weight]) => weight > 0);
  const sum = entries.reduce((total, [, weight]) => total + weight, 0);
  if (entries.length === 0) throw configError('routing.scorers', 'has no weight above 0', 'Name one scorer.');
  return entries.map(([name, weight]) => ({
    name,
    weight: weight / sum,
    scorer: scorers.make({ policy: name }, { blockTokens }),
    values: new Float64Array(8),
    reports: undefined,
    candidates: [],
  }));
}

/** Asks every scorer; scores are clamped to [0, 1]. */
function askScorers(parts: readonly WeightedPart[], context: RoutingContext): void {
  const { candidates, reports } = context;
  const count = candidates.length;
  for (const part of parts) {
    if (part.scorer.readsReportsAlone === true) {
      const holds = reports !== undefined && part.reports === reports && part.candidates === candidates;
      if (holds) continue;
      part.reports = reports;
      part.candidates = candidates;
    }
    if (part.values.length < count) part.values = new Float64Array(count * 2);
    part.scorer.score(context, part.values);
    for (let i = 0; i < count; i++) part.values[i] = Math.min(1, Math.max(0, part.values[i]));
  }
}

class Weighted implements RoutingPolicy {
  readonly name: string = 'weighted';
  readonly readsCaches: boolean;
  readonly readsReports: boolean;
  protected readonly parts: readonly WeightedPart[];
  readonly #picker: Picker;
  readonly #filters: Filters;
  #scores: Float64Array = new Float64Array(8);

  constructor(parts: readonly WeightedPart[], filters: Filters, picker: Picker) {
    this.parts = parts;
    this.readsCaches = filters.readsCaches || parts.some(({ scorer }) => scorer.readsCaches);
    this.readsReports =
      filters.readsReports || parts.some(({ name }) => scorers.readsReports({ policy: name }));
    this.#filters = filters;
    this.#picker = picker;
  }

  choose(context: RoutingContext): RoutingChoice {
    const count = context.candidates.length;
    if (this.#scores.length < count) this.#scores = new Float64Array(count * 2);
    const scores = this.#scores;
    askScorers(this.parts, context);
    this.sum(context, scores);
    const filteredOut = this.#filters.apply(context, scores);
    const index = this.#picker.highest(scores, count);
    return { index, reason: this.name, scores, parts: this.parts, filteredOut };
  }

  /** Adds the parts up; a subclass may weigh them anew for each request. */
  protected sum({ candidates }: RoutingContext, scores: Float64Array): void {
    for (let i = 0; i < candidates.length; i++) {
      let sum = 0;
      for (const { values, weight } of this.parts) sum += values[i] * weight;
      scores[i] = sum;
    }
  }

  routed(context: RoutingContext, instance: number): void {
    for (const { scorer } of this.parts) scorer.routed?.(context, instance);
    this.#filters.routed(context, instance);
  }

  removed(instance: number): void {
    for (const { scorer } of this.parts) scorer.removed?.(instance);
    this.#filters.removed(instance);
  }

  visitState(visitor: StateVisitor): void {
    for (const { scorer } of this.parts) scorer.visitState(visitor);
    this.#picker.visitState(visitor);
    this.#filters.visitState(visitor);
  }
}

// The published evolved rule over weighted scorers (SkyDiscover, `blis_router`). Let p be the first candidate
// with the highest score of the first scorer, if that is above 0.1, and d its requests in flight above the
// least of all. With d > 0 the first weight becomes w0 / (1 + 0.6 d) and the second 1 less that; the others
// stay. From the weighted sum goes 0.5 x (u - 0.9) / 0.1 where the KV utilisation u is above 0.9; to it comes
// 0.01 / (1 + in flight). Prefix affinity does not hold on to an instance that is crowded now.

const PREFIX_SCORE_MIN = 0.1;
const DECAY = 0.6;

class Evolved extends Weighted {
  override readonly name: string = 'evolved';
  /** KV utilisation, whatever the scorers are. */
  override readonly readsReports: boolean = true;

  protected override sum({ candidates }: RoutingContext, scores: Float64Array): void {
    const { parts } = this;
    const weights = parts.map(({ weight }) => weight);
    const prefix = parts[0].values;
    let least = Infinity;
    let best = 0;
    for (let i = 0; i < candidates.length; i++) {
      least = Math.min(least, candidates[i].inFlight);
      if (prefix[i] > prefix[best]) best = i;
    }
    const crowded = candidates[best].inFlight - least;
    if (prefix[best] > PREFIX_SCORE_MIN && parts.length >= 2 && crowded > 0) {
      weights[0] = parts[0].weight * (1 / (1 + DECAY * crowded));
      weights[1] = 1 - weights[0];
    }
    for (let i = 0; i < candidates.length; i++) {
      let sum = 0;
      for (let part = 0; part < parts.length; part++) sum += parts[part].values[i] * weights[part];
      const utilization = kvUtilization(candidates[i]);
      if (utilization > 0.9) sum -= (0.5 * (utilization - 0.9)) / 0.1;
      scores[i] = sum + 0.01 / (1 + candidates[i].inFlight);
    }
  }
}

//  Routing rules of one line: in turn, and by one number of each instance.

class RoundRobin implements RoutingPolicy {
  readonly name: string = 'round-robin';
  readonly readsCaches: boolean = false;
  readonly readsReports: boolean = false;
  #turn = 0;

  choose({ candidates }: RoutingContext): RoutingChoice {
    const index = this.#turn % candidates.length;
    return { index, reason: this.name, scores: null, parts: [], filteredOut: [] };
  }

  routed(): void {
    this.#turn++;
  }

  visitState(visitor: StateVisitor): void {
    this.#turn = visitor.number(this.#turn);
  }
}

/** A score of one instance, higher is better. */
export type InstanceScore = (instance: InstanceSnapshot, request: RequestView) => number;

class ByScore implements RoutingPolicy {
  readonly name: string;
  readonly readsCaches: boolean = false;
  readonly readsReports: boolean;
  readonly #score: InstanceScore;
  readonly #picker: Picker;
  #scores: Float64Array = new Float64Array(8);

  constructor(name: string, score: InstanceScore, readsReports: boolean, picker: Picker) {
    this.name = name;
    this.readsReports = readsReports;
    this.#score = score;
    this.#picker = picker;
  }

  choose({ request, candidates }: RoutingContext): RoutingChoice {
    if (this.#scores.length < candidates.length) this.#scores = new Float64Array(candidates.length * 2);
    for (let i = 0; i < candidates.length; i++) this.#scores[i] = this.#score(candidates[i], request);
    const index = this.#picker.highest(this.#scores, candidates.length);
    return { index, reason: this.name, scores: this.#scores, parts: [], filteredOut: [] };
  }

  visitState(visitor: StateVisitor): void {
    this.#picker.visitState(visitor);
  }
}

const OUTPUT_PER_PROMPT = 0.6;
const RESERVE_SHARE = 0.03;
const INADMISSIBLE = 10;
const PER_REQUEST = 0.001;

/**
 * Glia's head-room allocator (arXiv 2510.27176): a request needs (1.6 x its prompt + block - 1) / block
 * blocks; with T blocks in HBM of which F are free, it is admissible where F - needed >= 0.03 T. The score is
 * -(T - F + needed) / T - 0.001 x load, 10 less where it is not admissible. Before the first report T is
 * unknown and counts as one block, which is inadmissible everywhere alike.
 */
function gliaHeadRoom(blockTokens: number): InstanceScore {
  return (instance, request) => {
    const needed = (request.promptTokens * (1 + OUTPUT_PER_PROMPT) + blockTokens - 1) / blockTokens;
    const top = instance.kv.tiers[0];
    const total = Math.max(1, top?.capacityBlocks ?? 0);
    const free = top?.capacityBlocks ? top.freeBlocks : 0;
    const used = total - free + needed;
    const score = -used / total - PER_REQUEST * effectiveLoad(instance);
    return total - used >= total * RESERVE_SHARE ? score : score - INADMISSIBLE;
  };
}

/** Rules that score one instance at a time: policies by themselves, and actions of decision trees. */
export const instanceScores: Registry<InstanceScore> = new Registry<InstanceScore>('instance score', [
  scoreOf('least-loaded', 'fewest queued, running and in flight', (instance) => -effectiveLoad(instance)),
  scoreOf('always-busiest', 'most of them, for tests', effectiveLoad),
  scoreOf('llq', 'fewest queued', ({ queueDepth }) => -queueDepth),
  { ...scoreOf('lor', 'fewest in flight', ({ inFlight }) => -inFlight), readsReports: false },
  scoreOf('least-kv', 'least of HBM held by requests', (instance) => -kvUtilization(instance)),
  {
    name: 'glia',
    about: 'most head room in HBM',
    parameters: {},
    readsKeys: false,
    readsReports: true,
    make: (_, { blockTokens }) => gliaHeadRoom(blockTokens),
  },
]);

/** A formula over what an instance reports. */
function scoreOf(name: string, about: string, score: InstanceScore): PolicyEntry<InstanceScore> {
  return { name, about, parameters: {}, readsKeys: false, readsReports: true, make: () => score };
}

//  The registry.

/** Upstream's profile for `weighted`. */
const defaultScorers: Readonly<Record<string, number>> = {
  'precise-prefix-cache': 2,
  'queue-depth': 1,
  'kv-utilization': 1,
};

const llmDScorers = { 'prefix-affinity': 3, 'queue-depth': 2, 'kv-utilization': 2 };

const ties = { kind: 'choice', default: 'lowest', names: tieNames } as const;

function scorersRule(byDefault: Readonly<Record<string, number>>): ParameterRules[string] {
  return {
    kind: 'numbers',
    default: byDefault,
    each: { kind: 'number', default: 1, above: 0, max: 1e6 },
    names: scorers.names,
  };
}

/** A policy that takes the instance with the highest score of a formula. */
function byScore(name: string): PolicyEntry<RoutingPolicy> {
  const { about, readsKeys, readsReports } = instanceScores.entry(name);
  return {
    name,
    about,
    parameters: { ties },
    readsKeys,
    readsReports,
    make: (p, world) => {
      const choice = { policy: name };
      const score = instanceScores.make(choice, world);
      return new ByScore(name, score, instanceScores.readsReports(choice), Picker.of(p.text('ties'), world));
    },
  };
}

const weightedScorers = (p: PolicyParameters): string[] => {
  const weights = Object.entries(p.numbers('scorers'));
  return weights.filter(([, weight]) => weight > 0).map(([name]) => name);
};

/** Reads of a weighted policy: those of its filters and of the scorers with a weight. */
const readsOfWeighted: Pick<PolicyEntry<RoutingPolicy>, 'readsKeys' | 'readsReports'> = {
  readsKeys: (p) =>
    filtersReadKeys(p) || weightedScorers(p).some((name) => scorers.readsKeys({ policy: name })),
  readsReports: (p) =>
    filtersReadReports(p) || weightedScorers(p).some((name) => scorers.readsReports({ policy: name })),
};

function weightedParts(p: PolicyParameters, world: PolicyWorld): ConstructorParameters<typeof Weighted> {
  const parts = partsOf(p.numbers('scorers'), world.blockTokens);
  return [parts, new Filters(p, world), Picker.of(p.text('ties'), world)];
}

/** A sum of weighted scorers with these weights unless others are given. */
function weighted(
  name: string,
  about: string,
  byDefault: Readonly<Record<string, number>>,
): PolicyEntry<RoutingPolicy> {
  return {
    name,
    about,
    ...readsOfWeighted,
    parameters: { scorers: scorersRule(byDefault), ties, ...filterParameters },
    make: (p, world) => new Weighted(...weightedParts(p, world)),
  };
}

/** llm-d's default profile with another picker. */
function drawing(name: string, how: DrawName, about: string): PolicyEntry<RoutingPolicy> {
  const temperature: NumberRule = { kind: 'number', default: 0.1, above: 0 };
  return {
    name,
    about: `llm-d's default profile, ${about}`,
    ...readsOfWeighted,
    parameters: {
      scorers: scorersRule(llmDScorers),
      ...(how === 'softmax' ? { temperature } : {}),
      ...filterParameters,
    },
    make: (p, world) => {
      const picker = new DrawingPicker(
        how,
        how === 'softmax' ? p.number('temperature') : 1,
        world.stream('router'),
      );
      return new Weighted(partsOf(p.numbers('scorers'), world.blockTokens), new Filters(p, world), picker);
    },
  };
}

export const routingPolicies: Registry<RoutingPolicy> = new Registry<RoutingPolicy>('routing', [
  {
    name: 'round-robin',
    isUsual: true,
    about: 'in turn',
    parameters: {},
    readsKeys: false,
    readsReports: false,
    make: () => new RoundRobin(),
  },
  ...instanceScores.names.map(byScore),
  { ...weighted('weighted', 'a weighted sum of scorers', defaultScorers), isOfScorers: true },
  weighted('prefix-affinity', 'where the router sent the prefix before, and load', {
    'prefix-affinity': 1,
    'load-balance': 1,
  }),
  weighted('precise-prefix', 'where the prefix is cached, and load', {
    'precise-prefix-cache': 2,
    'kv-utilization': 1,
    'queue-depth': 1,
  }),
  weighted('session-affinity', 'where the session was before, and load', {
    'session-affinity': 2,
    'load-balance': 1,
  }),
  {
    ...weighted('evolved', 'prefix affinity that lets go of crowded instances', {
      'prefix-affinity': 1,
      'load-balance': 1,
    }),
    readsReports: true,
    make: (p, world) => new Evolved(...weightedParts(p, world)),
  },
  weighted('llm-d', "llm-d's default profile: where the router sent the prefix, queue and KV", llmDScorers),
  weighted('llm-d-prefix-length', 'the same profile with the length term for half of the prefix scorer', {
    'prefix-length': 1.5,
    'prefix-affinity': 1.5,
    'queue-depth': 2,
    'kv-utilization': 2,
  }),
  weighted('llm-d-pd', "llm-d's profile of each pool of a hand-off: prefix and queue", {
    'prefix-affinity': 2,
    'queue-depth': 1,
  }),
  drawing('llm-d-weighted-random', 'weighted-random', 'one drawn in proportion to its score'),
  drawing('llm-d-softmax', 'softmax', 'one drawn in proportion to exp(score / temperature)'),
  drawing('llm-d-two-choices', 'two-choices', 'the better of two that are drawn'),
  ...chanceRules,
  ...dynamoRules,
  ...sglangRules,
  ...aibrixRules,
  ...prebleRules,
  ...productionStackRules,
  ...llmDRules,
]);
