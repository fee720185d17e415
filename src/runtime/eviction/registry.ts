/** The eviction policies by name. A new policy is a file beside this one and an entry here. */

import { configError, described, unknownName } from '../errors.ts';
import * as is from '../kinds.ts';
import { checkInputs } from '../options.ts';
import { Arc } from './arc.ts';
import type { EvictionChoice, EvictionPolicy, EvictionWorld } from './evictionPolicy.ts';
import { Fifo } from './fifo.ts';
import { Hazard } from './hazard/hazard.ts';
import { Lfu } from './lfu.ts';
import { Lru } from './lru.ts';
import { PriorityEviction } from './priority.ts';
import { RetentionPolicy } from './retention.ts';
import { S3Fifo } from './s3Fifo.ts';

const NO_PARAMETERS = 'The policy takes no parameters: leave it out.';

/** A policy's parameter that users may set: the default, which says the type, and bounds of a number. */
interface EvictionParameter {
  readonly default: string | number | boolean;
  readonly min?: number;
  readonly max?: number;
}

interface EvictionEntry {
  /** One line for people who choose. */
  readonly about: string;
  readonly parameters: Readonly<Record<string, EvictionParameter>>;
  make(world: EvictionWorld, parameters: Readonly<Record<string, string | number | boolean>>): EvictionPolicy;
}

const policies: Readonly<Record<string, EvictionEntry>> = {
  lru: { about: 'the block used longest ago', parameters: {}, make: (world) => new Lru(world) },
  fifo: { about: 'the block that came first', parameters: {}, make: (world) => new Fifo(world) },
  lfu: { about: 'the block used least often', parameters: {}, make: (world) => new Lfu(world) },
  /** `levels`: priority of owner 0, 1, ..., separated by commas. */
  priority: {
    about: 'blocks of the least urgent owner',
    parameters: { levels: { default: '' } },
    make: (world, { levels }) => new PriorityEviction(world, levels as string),
  },
  arc: {
    about: 'recency and frequency, balanced by what was evicted too early',
    parameters: {},
    make: (world) => new Arc(world),
  },
  s3fifo: {
    about: 'a small queue for newcomers before the main one',
    parameters: {},
    make: (world) => new S3Fifo(world),
  },
  /** `behindLru`: share of all lookups by which it may find less than an LRU would; 1 for no such bound. */
  hazard: {
    about: 'the block that is least likely to be asked for soon',
    parameters: { behindLru: { default: 0.0025, min: 0, max: 1 } },
    make: (world, { behindLru }) => new Hazard(world, behindLru as number),
  },
};

/** The policy where a configuration names none. */
export const defaultEviction: EvictionChoice = { policy: 'hazard' };

/** Names of the eviction policies that `ManagerConfig.eviction` takes. */
export const evictionPolicyNames: readonly string[] = Object.keys(policies);

/**
 * The choice with every parameter of its policy filled in. @throws TKV_CONFIG naming the unknown policy or parameter
 */
export function resolvePolicy(choice: EvictionChoice): EvictionChoice {
  requireChoice('eviction', choice, evictionPolicyNames);
  const entry = Object.hasOwn(policies, choice.policy) ? policies[choice.policy] : undefined;
  if (entry === undefined) throw unknownName('eviction.policy', choice.policy, evictionPolicyNames);
  const names = Object.keys(entry.parameters);
  for (const [name, value] of Object.entries(choice)) {
    if (name === 'policy') continue;
    if (!names.includes(name)) throw unknownName(`eviction.${name}`, name, names, NO_PARAMETERS);
    const wanted = typeof entry.parameters[name].default;
    if (typeof value !== wanted || (wanted === 'number' && !Number.isFinite(value))) {
      throw configError(`eviction.${name}`, `is ${JSON.stringify(value)}`, `Give it a ${wanted}.`);
    }
  }
  const defaults = Object.entries(entry.parameters).map(([name, rule]) => [name, rule.default]);
  return { ...Object.fromEntries(defaults), ...choice };
}

/** @param name one of `evictionPolicyNames` */
export function describeEviction(name: string): Pick<EvictionEntry, 'about' | 'parameters'> {
  const { about, parameters } = policies[name];
  return { about, parameters };
}

/** @param choice as `resolvePolicy` returns it */
export function makeEvictionPolicy(choice: EvictionChoice, world: EvictionWorld): RetentionPolicy {
  checkInputs(
    { choice, world },
    {
      choice: is.fields({ policy: is.text() }),
      world: is.fields({ tiers: is.number(), contents: is.number() }),
    },
  );
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
