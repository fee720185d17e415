/**
 * Content that each slot of a bundle accepts: templates, the function of a program with its arguments and results, and
 * features and actions of a decision tree. Reading, binding, the JSON schema and `describe` go by this.
 */

import {
  plainOrderNames,
  queueOrder,
  RANKED,
  type SchedulerConfig,
  victimRuleNames,
} from '../../../runtime/batching/config.ts';
import type { EvictionChoice } from '../../../runtime/eviction/evictionPolicy.ts';
import { describeEviction, evictionPolicyNames } from '../../../runtime/eviction/registry.ts';
import * as is from '../../../runtime/kinds.ts';
import { admissionPolicies } from '../../../sim/control/admission.ts';
import { priorityPolicies } from '../../../sim/control/priority.ts';
import { type NumberRule, type PolicyEntry, Registry } from '../../../sim/control/registry.ts';
import { instanceScores, routingPolicies } from '../../../sim/control/routing/routing.ts';
import { scorers } from '../../../sim/control/routing/scorers.ts';
import { scalingPolicies } from '../../../sim/control/scaling/registry.ts';
import { clusterFeatures, routerFeatures } from '../features/cluster.ts';
import type { FeatureTable } from '../features/feature.ts';
import { instanceFeatures } from '../features/instance.ts';
import { outcomeFeatures, requestFeatures } from '../features/request.ts';
import { scalingFeatures } from '../features/scaling.ts';
import { engineFeatures, schedulingFeatures } from '../features/scheduling.ts';
import { batchRules, victimRules } from './batchRules.ts';
import { type PolicySlot, policySlots } from './policyBundle.ts';

//  Registries of stages outside the control plane: orders of the instance scheduler, and eviction.

const isOwn = (name: string): boolean => name !== RANKED;
const ownOrders = plainOrderNames.filter((name) => queueOrder(name).foresees !== true);
const ownVictimRules = victimRuleNames.filter(isOwn);

/** Entry of an order: one of the shared scheduler, or a rule that gives it ranks. */
function order(name: string, about: string): PolicyEntry<SchedulerConfig> {
  return {
    name,
    about,
    parameters: {
      victimRule: {
        kind: 'choice',
        default: 'fcfs',
        names: [...ownVictimRules, ...victimRules.map((rule) => rule.name)],
      },
      longPrefillTokens: { kind: 'number', default: 0, min: 0, max: 2 ** 20, integer: true },
    },
    readsKeys: true,
    readsReports: false,
    make: (p) => ({
      queueOrder: ownOrders.includes(name) ? name : RANKED,
      victimRule: ownVictimRules.includes(p.text('victimRule')) ? p.text('victimRule') : RANKED,
      longPrefillTokens: p.number('longPrefillTokens'),
    }),
  };
}

/** Orders of the instance scheduler: next request, victim, and most prompt tokens of a request in a step. */
export const schedulerOrders: Registry<SchedulerConfig> = new Registry('instanceScheduler', [
  ...ownOrders.map((name) => order(name, queueOrder(name).about)),
  ...batchRules.map(({ name, about }) => order(name, about)),
]);

function eviction(policy: string): PolicyEntry<EvictionChoice> {
  const { about, parameters } = describeEviction(policy);
  const numbers: Record<string, NumberRule> = {};
  for (const [name, { default: value, min, max }] of Object.entries(parameters)) {
    if (typeof value !== 'number') continue; // a text belongs to one deployment: a bundle cannot set it
    numbers[name] = {
      kind: 'number',
      default: value,
      ...(min !== undefined && { min }),
      ...(max !== undefined && { max }),
    };
  }
  return {
    name: policy,
    about,
    parameters: numbers,
    readsKeys: true,
    readsReports: false,
    make: (p) => {
      return { policy, ...Object.fromEntries(Object.keys(numbers).map((name) => [name, p.number(name)])) };
    },
  };
}

/** Policies that choose the block to evict from full GPU memory. */
export const evictionPolicies: Registry<EvictionChoice> = new Registry(
  'eviction',
  evictionPolicyNames.map(eviction),
);

/** One argument of a program: a record of features, or a list of records. */
export interface SlotArgument {
  readonly name: string;
  /** Features of any kind of facts; the binding of the slot passes the matching facts. */
  readonly features: FeatureTable<never>;
  readonly isList: boolean;
}

/** Result of a function, as in the signatures of the sandbox. */
type SlotDecision =
  | { readonly kind: 'number' }
  | { readonly kind: 'index' | 'numbers'; readonly of: string }
  | { readonly kind: 'choice'; readonly names: readonly string[]; readonly withAmount: readonly string[] };

export interface SlotFunction {
  readonly name: string;
  readonly arguments: readonly SlotArgument[];
  readonly decision: SlotDecision;
  readonly returns: string;
}

/** An action of a leaf. `value` says whether it takes a number, `unit` which. */
interface SlotAction {
  readonly about: string;
  readonly value: 'none' | 'optional' | 'required';
  readonly unit: string;
}

interface SlotContract {
  readonly about: string;
  readonly templates: Pick<Registry<unknown>, 'names' | 'describe' | 'resolve'>;
  /**
   * Functions of which a program defines one, the usual one first. None where programs and trees are not
   * accepted.
   */
  readonly functions: readonly SlotFunction[];
  /** Whether a program may define several of the functions; each takes its own decision. */
  readonly takesSeveral?: boolean;
  /** Features of a tree: `group.name`. */
  readonly groups: Readonly<Record<string, FeatureTable<never>>>;
  readonly actions: Readonly<Record<string, SlotAction>>;
}

function argument<Facts>(name: string, features: FeatureTable<Facts>, isList: boolean = false): SlotArgument {
  return { name, features: features as FeatureTable<never>, isList };
}

function group<Facts>(features: FeatureTable<Facts>): FeatureTable<never> {
  return features as FeatureTable<never>;
}

const plain = (about: string): SlotAction => ({ about, value: 'none', unit: '' });
const factor = (about: string): SlotAction => ({ about, value: 'optional', unit: 'factor, default 1' });
const needs = (about: string, unit: string): SlotAction => ({ about, value: 'required', unit });

const request = argument('request', requestFeatures);
const cluster = argument('cluster', clusterFeatures);
const instances = argument('instances', instanceFeatures, true);
const scheduled = argument('requests', schedulingFeatures, true);
const instance = argument('instance', engineFeatures);

/** The observer that a program of admission, priority or routing may define beside its function. */
export const observerFunction: {
  readonly name: string;
  readonly arguments: readonly [SlotArgument];
} = {
  name: 'on_complete',
  arguments: [argument('outcome', outcomeFeatures)],
};

export const slotContracts: Readonly<Record<PolicySlot, SlotContract>> = {
  admission: {
    about: 'whether a request comes in, is turned away, or asks again later',
    templates: admissionPolicies,
    functions: [
      {
        name: 'admit',
        arguments: [request, cluster, instances],
        decision: { kind: 'choice', names: ['admit', 'reject', 'delay'], withAmount: ['delay'] },
        returns: '"admit", "reject", or ("delay", µs) to ask again after so long',
      },
    ],
    groups: { request: group(requestFeatures), cluster: group(clusterFeatures) },
    actions: {
      admit: plain('the request comes in'),
      reject: plain('it is turned away'),
      delay: needs('it asks again later', 'µs'),
    },
  },
  priority: {
    about: 'how urgent a request is, for the gateway queue and the schedulers of the instances',
    templates: priorityPolicies,
    functions: [
      {
        name: 'prioritise',
        arguments: [request, argument('cluster', routerFeatures)],
        decision: { kind: 'number' },
        returns: 'a number, higher is more urgent',
      },
    ],
    groups: { request: group(requestFeatures), cluster: group(routerFeatures) },
    actions: {
      score: needs('this urgency', 'higher is more urgent'),
      class: {
        about: 'the urgency of its SLO class, plus the value',
        value: 'optional',
        unit: 'added to it',
      },
    },
  },
  routing: {
    about: 'which instance takes a request',
    templates: routingPolicies,
    functions: [
      {
        name: 'score',
        arguments: [request, cluster, instances],
        decision: { kind: 'numbers', of: 'instances' },
        returns: 'a number for each instance, of which the highest wins; ties go to the lowest number',
      },
      {
        name: 'route',
        arguments: [request, cluster, instances],
        decision: { kind: 'index', of: 'instances' },
        returns: 'the place of an instance in `instances`, from 0',
      },
    ],
    groups: {
      request: group(requestFeatures),
      cluster: group(clusterFeatures),
      instance: group(instanceFeatures),
    },
    // the tree is walked once for each instance; its leaf scores the instance
    actions: {
      score: needs('scores the instance with this number', 'higher is better'),
      ...Object.fromEntries(
        scorers.names.map((name) => [name, factor(`its score by the scorer ${name}, 0 to 1`)]),
      ),
      ...Object.fromEntries(
        instanceScores.names.map((name) => [name, factor(`its score by the rule ${name}`)]),
      ),
    },
  },
  instanceScheduler: {
    about: 'the order in which requests that wait on an instance join its batch, and which gives way',
    templates: schedulerOrders,
    functions: [
      {
        name: 'on_arrival',
        arguments: [argument('request', schedulingFeatures)],
        decision: { kind: 'number' },
        returns:
          'the rank of the request, rounded to an integer from -2^31 to 2^31: where no other function ' +
          'ranks them, the lowest joins the batch first, and among running requests the highest gives way',
      },
      {
        name: 'make_batch',
        arguments: [scheduled, instance],
        decision: { kind: 'numbers', of: 'requests' },
        returns:
          'a rank for each request outside the batch, of which the lowest joins first; asked before a step ' +
          'when one has arrived, joined, given way or ended since; ranks stay until it is asked again',
      },
      {
        name: 'select_preemption_victim',
        arguments: [scheduled, instance],
        decision: { kind: 'numbers', of: 'requests' },
        returns:
          'a rank for each request of the batch, of which the highest gives way first; asked before each ' +
          'step in which blocks may run out',
      },
    ],
    takesSeveral: true,
    groups: { request: group(schedulingFeatures), instance: group(engineFeatures) },
    actions: { rank: needs('this rank of the request', 'lower joins first, higher gives way first') },
  },
  autoScale: {
    about: 'how many replicas of a deployment configuration there should be; each that scales has its own',
    templates: scalingPolicies,
    functions: [
      {
        name: 'scale',
        arguments: [argument('deployment', scalingFeatures)],
        decision: { kind: 'number' },
        returns: 'the number of replicas that there should be, rounded',
      },
    ],
    groups: { deployment: group(scalingFeatures) },
    actions: {
      keep: plain('leaves them as they are'),
      up: { about: 'adds replicas', value: 'optional', unit: 'replicas, default 1' },
      down: { about: 'takes replicas away', value: 'optional', unit: 'replicas, default 1' },
      target: needs('sets the number of replicas', 'replicas'),
    },
  },
  eviction: {
    about: 'which cached block leaves a full tier; by name only',
    templates: evictionPolicies,
    functions: [],
    groups: {},
    actions: {},
  },
};

/** Features of the slot that a tree can compare, as `group.name`. */
export function treeFeatures(slot: PolicySlot): readonly string[] {
  is.oneOf(policySlots).read(slot, 'slot');
  return Object.entries(slotContracts[slot].groups).flatMap(([groupName, features]) =>
    Object.keys(features)
      .filter((name) => features[name].kind !== 'text')
      .map((name) => `${groupName}.${name}`),
  );
}
