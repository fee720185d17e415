/** Registries of what has none in the control plane: orders of the instance scheduler, and eviction. */

import {
  victimRuleNames as ownVictimRules,
  queueOrderNames,
  RANKED,
  type SchedulerConfig,
} from '../../runtime/batching/index.ts';
import { evictionPolicyNames, type PolicyChoice } from '../../runtime/policy/index.ts';
import { type PolicyEntry, PolicyRegistry } from '../../sim/control/index.ts';

/** Rules by which requests are ranked between steps, as a program's `make_batch` does. */
export const batchRuleNames = ['edf', 'least-uncached', 'wspt', 'hrrn', 'lpm', 'dfs-weight'] as const;
export type BatchRule = (typeof batchRuleNames)[number];

/** Rules by which those that run are ranked, as `select_preemption_victim` does. */
export const victimRuleNames = ['least-progress'] as const;
export type VictimRule = (typeof victimRuleNames)[number];

const isOwn = (name: string): boolean => name !== RANKED;
const allVictimRules: readonly string[] = [...ownVictimRules.filter(isOwn), ...victimRuleNames];

const orderAbout: Readonly<Record<string, string>> = {
  fcfs: 'in order of arrival at the instance',
  'priority-fcfs': 'the most urgent first, then in order of arrival',
  sjf: 'the shortest prompt first',
  'reverse-priority': 'the least urgent first, for tests',
  edf: 'the earliest due first: arrival and the time to the first token that it asks for',
  'least-uncached': 'the fewest tokens to compute first: known tokens less those that HBM has',
  wspt: 'the fewest tokens to compute first, divided by 1 + the priority of the class where that is above 0',
  hrrn: 'the longest wait for each token to compute first',
  lpm: 'the longest cached prefix first, in order of arrival while more than 128 wait',
  'dfs-weight': 'by a walk through the tree of cached prefixes, the most waited for first',
};

function order(queueOrder: string): PolicyEntry<SchedulerConfig> {
  return {
    about: orderAbout[queueOrder] ?? queueOrder,
    parameters: {
      victimRule: { kind: 'choice', default: 'fcfs', names: allVictimRules },
      longPrefillTokens: { kind: 'number', default: 0, min: 0, max: 2 ** 20, integer: true },
    },
    make: (p) => ({
      queueOrder: queueOrderNames.includes(queueOrder) ? queueOrder : RANKED,
      victimRule: ownVictimRules.includes(p.text('victimRule')) ? p.text('victimRule') : RANKED,
      longPrefillTokens: p.number('longPrefillTokens'),
    }),
  };
}

/** Which waiting request is next, who gives way, and how many tokens of one prompt a step computes. */
export const schedulerOrders: PolicyRegistry<SchedulerConfig> = new PolicyRegistry(
  'instanceScheduler',
  Object.fromEntries(
    [...queueOrderNames.filter(isOwn), ...batchRuleNames].map((name) => [name, order(name)]),
  ),
);

const evictionAbout: Readonly<Record<string, string>> = {
  lru: 'the block used longest ago',
  fifo: 'the block that came first',
  lfu: 'the block used least often',
  priority: 'blocks of the least urgent owner',
  arc: 'recency and frequency, balanced by what was evicted too early',
  s3fifo: 'a small queue for newcomers before the main one',
  hazard: 'the block that is least likely to be asked for soon',
};

function eviction(policy: string): PolicyEntry<PolicyChoice> {
  const bound = { kind: 'number', default: 0.0025, min: 0, max: 1 } as const;
  return {
    about: evictionAbout[policy] ?? policy,
    parameters: policy === 'hazard' ? { behindLru: bound } : {},
    make: (p) => (policy === 'hazard' ? { policy, behindLru: p.number('behindLru') } : { policy }),
  };
}

/** Who leaves HBM when it is full. */
export const evictionPolicies: PolicyRegistry<PolicyChoice> = new PolicyRegistry(
  'eviction',
  Object.fromEntries(evictionPolicyNames.map((name) => [name, eviction(name)])),
);
