/** Routing policies by name. */

import type { PolicyWorld } from '../policy.ts';
import type { Parameters } from '../registry/index.ts';
import { type NumberRule, type ParameterRules, type PolicyEntry, PolicyRegistry } from '../registry/index.ts';
import { Evolved } from './evolved.ts';
import { Filters, filterParameters } from './filters/index.ts';
import { DrawingPicker, type DrawName, Picker, tieNames } from './picking.ts';
import type { RoutingPolicy } from './routingPolicy.ts';
import { ruleEntries } from './rules/index.ts';
import { scorerNames } from './scorers/index.ts';
import {
  alwaysBusiest,
  ByScore,
  gliaHeadRoom,
  type InstanceScore,
  leastCached,
  leastLoaded,
  leastOutstanding,
  leastQueued,
  RoundRobin,
} from './simple.ts';
import { partsOf, Weighted } from './weighted.ts';

export type { RoutingChoice, RoutingContext, RoutingPolicy, ScorePart } from './routingPolicy.ts';
export { makeScorer, type Scorer, scorerNames, scorerReadsReports } from './scorers/index.ts';
export type { InstanceScore } from './simple.ts';

/** Upstream's profile for `weighted`. */
export const defaultScorers: Readonly<Record<string, number>> = {
  'precise-prefix-cache': 2,
  'queue-depth': 1,
  'kv-utilization': 1,
};

const llmDScorers = { 'prefix-affinity': 3, 'queue-depth': 2, 'kv-utilization': 2 };

/** Rules that score one instance at a time, by the name of the policy that goes by them. */
export const instanceScores: Readonly<Record<string, (world: PolicyWorld) => InstanceScore>> = {
  'least-loaded': () => leastLoaded,
  'always-busiest': () => alwaysBusiest,
  llq: () => leastQueued,
  lor: () => leastOutstanding,
  'least-kv': () => leastCached,
  glia: ({ blockTokens }) => gliaHeadRoom(blockTokens),
};

const ties = { kind: 'choice', default: 'lowest', names: tieNames } as const;

function scorersRule(byDefault: Readonly<Record<string, number>>): ParameterRules[string] {
  return {
    kind: 'numbers',
    default: byDefault,
    each: { kind: 'number', default: 1, above: 0, max: 1e6 },
    names: scorerNames,
  };
}

/** A policy that takes the instance with the highest score of a formula. */
function byScore(
  name: string,
  about: string,
): { about: string; parameters: ParameterRules; make: (p: Parameters, world: PolicyWorld) => RoutingPolicy } {
  return {
    about,
    parameters: { ties },
    make: (p, world) => new ByScore(name, instanceScores[name](world), Picker.of(p.text('ties'), world)),
  };
}

/** A sum of weighted scorers with these weights unless others are given. */
function weighted(
  about: string,
  byDefault: Readonly<Record<string, number>>,
  Policy: typeof Weighted,
): { about: string; parameters: ParameterRules; make: (p: Parameters, world: PolicyWorld) => RoutingPolicy } {
  return {
    about,
    parameters: { scorers: scorersRule(byDefault), ties, ...filterParameters },
    make: (p, world) =>
      new Policy(
        partsOf(p.numbers('scorers'), world.blockTokens),
        new Filters(p, world),
        Picker.of(p.text('ties'), world),
      ),
  };
}

/** llm-d's default profile with another picker. */
function drawing(how: DrawName, about: string): PolicyEntry<RoutingPolicy> {
  const temperature: NumberRule = { kind: 'number', default: 0.1, above: 0 };
  return {
    about: `llm-d's default profile, ${about}`,
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

export const routingPolicies: PolicyRegistry<RoutingPolicy> = new PolicyRegistry<RoutingPolicy>('routing', {
  'round-robin': { about: 'in turn', parameters: {}, make: () => new RoundRobin() },
  'least-loaded': byScore('least-loaded', 'fewest queued, running and in flight'),
  'always-busiest': byScore('always-busiest', 'most of them, for tests'),
  llq: byScore('llq', 'fewest queued'),
  lor: byScore('lor', 'fewest in flight'),
  'least-kv': byScore('least-kv', 'least of HBM held by requests'),
  glia: byScore('glia', 'most head room in HBM'),
  weighted: weighted('a weighted sum of scorers', defaultScorers, Weighted),
  'prefix-affinity': weighted(
    'where the router sent the prefix before, and load',
    { 'prefix-affinity': 1, 'load-balance': 1 },
    Weighted,
  ),
  'precise-prefix': weighted(
    'where the prefix is cached, and load',
    { 'precise-prefix-cache': 2, 'kv-utilization': 1, 'queue-depth': 1 },
    Weighted,
  ),
  'session-affinity': weighted(
    'where the session was before, and load',
    { 'session-affinity': 2, 'load-balance': 1 },
    Weighted,
  ),
  evolved: weighted(
    'prefix affinity that lets go of crowded instances',
    { 'prefix-affinity': 1, 'load-balance': 1 },
    Evolved,
  ),
  'llm-d': weighted(
    "llm-d's default profile: where the router sent the prefix, queue and KV",
    llmDScorers,
    Weighted,
  ),
  'llm-d-prefix-length': weighted(
    'the same profile with the length term for half of the prefix scorer',
    { 'prefix-length': 1.5, 'prefix-affinity': 1.5, 'queue-depth': 2, 'kv-utilization': 2 },
    Weighted,
  ),
  'llm-d-pd': weighted(
    "llm-d's profile of each pool of a hand-off: prefix and queue",
    { 'prefix-affinity': 2, 'queue-depth': 1 },
    Weighted,
  ),
  'llm-d-weighted-random': drawing('weighted-random', 'one drawn in proportion to its score'),
  'llm-d-softmax': drawing('softmax', 'one drawn in proportion to exp(score / temperature)'),
  'llm-d-two-choices': drawing('two-choices', 'the better of two that are drawn'),
  ...ruleEntries,
});
