/** The eviction policies by name. A new policy is a file beside this one and an entry here. */

import { configError, nearestName } from '../errors.ts';
import { described } from '../options.ts';
import { Arc } from './arc.ts';
import type { EvictionChoice, EvictionPolicy, EvictionWorld } from './evictionPolicy.ts';
import { Fifo } from './fifo.ts';
import { Hazard } from './hazard/hazard.ts';
import { Lfu } from './lfu.ts';
import { Lru } from './lru.ts';
import { PriorityEviction } from './priority.ts';
import { RetentionPolicy } from './retention.ts';
import { S3Fifo } from './s3Fifo.ts';

interface EvictionEntry {
  /** Names of the parameters that the policy takes, with their default values. */
  readonly parameters: Readonly<Record<string, string | number | boolean>>;
  make(world: EvictionWorld, parameters: Readonly<Record<string, string | number | boolean>>): EvictionPolicy;
}

const policies: Readonly<Record<string, EvictionEntry>> = {
  lru: { parameters: {}, make: (world) => new Lru(world) },
  fifo: { parameters: {}, make: (world) => new Fifo(world) },
  lfu: { parameters: {}, make: (world) => new Lfu(world) },
  /** `levels`: priority of owner 0, 1, ..., separated by commas. */
  priority: {
    parameters: { levels: '' },
    make: (world, { levels }) => new PriorityEviction(world, levels as string),
  },
  arc: { parameters: {}, make: (world) => new Arc(world) },
  s3fifo: { parameters: {}, make: (world) => new S3Fifo(world) },
  /** `behindLru`: share of all lookups by which it may find less than LRU would; 1 turns the bound off. */
  hazard: {
    parameters: { behindLru: 0.0025 },
    make: (world, { behindLru }) => new Hazard(world, behindLru as number),
  },
};

/** The policy where a configuration names none. */
export const defaultEviction: EvictionChoice = { policy: 'hazard' };

export const evictionPolicyNames: readonly string[] = Object.keys(policies);

/**
 * The choice with every parameter of its policy filled in. @throws TKV_CONFIG naming the unknown policy or parameter
 */
export function resolvePolicy(choice: EvictionChoice): EvictionChoice {
  requireChoice('eviction', choice, evictionPolicyNames);
  const entry = Object.hasOwn(policies, choice.policy) ? policies[choice.policy] : undefined;
  if (entry === undefined) throw unknown('eviction.policy', choice.policy, evictionPolicyNames);
  const names = Object.keys(entry.parameters);
  for (const [name, value] of Object.entries(choice)) {
    if (name === 'policy') continue;
    if (!names.includes(name)) throw unknown(`eviction.${name}`, name, names);
    const wanted = typeof entry.parameters[name];
    if (typeof value !== wanted || (wanted === 'number' && !Number.isFinite(value))) {
      throw configError(`eviction.${name}`, `is ${JSON.stringify(value)}`, `Give it a ${wanted}.`);
    }
  }
  return { ...entry.parameters, ...choice };
}

/** @param choice as `resolvePolicy` returns it */
export function makeEvictionPolicy(choice: EvictionChoice, world: EvictionWorld): RetentionPolicy {
  return new RetentionPolicy(policies[choice.policy].make(world, choice), world);
}

/** `{ policy: name, ... }`. @throws TKV_CONFIG for anything else, such as the name alone */
export function requireChoice(
  field: string,
  choice: { readonly policy: string },
  names: readonly string[],
): void {
  if (typeof choice === 'object' && choice !== null && typeof choice.policy === 'string') return;
  const isName = typeof choice === 'string' && names.includes(choice);
  const isObject = typeof choice === 'object' && choice !== null && !Array.isArray(choice);
  const found = isObject ? `policy ${described(choice.policy)}` : described(choice);
  const example = isName ? choice : names[0];
  throw configError(field, `must name a policy, but is ${found}`, `Pass { policy: '${example}' }.`);
}

function unknown(field: string, name: string, known: readonly string[]): Error {
  const nearest = nearestName(name, known);
  const remedy =
    known.length === 0
      ? 'The policy takes no parameters: leave it out.'
      : nearest === undefined
        ? `Known: ${known.join(', ')}.`
        : `Did you mean ${nearest}?`;
  return configError(field, `is not known (${JSON.stringify(name)})`, remedy);
}
