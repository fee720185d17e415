/**
 * The policies of a scheduler by name: the order of the waiting queue, and which running request gives way. A
 * log header names a policy by the name it has here. Both rules are total orders, so equal inputs give equal
 * decisions.
 */

import { configError } from '../../errors.ts';
import { nearestName } from '../../nearestName.ts';
import type { RequestState } from './request.ts';

/** The order and the rule that go by ranks which are given from outside. */
export const RANKED = 'ranked';

export interface QueueOrder {
  readonly name: string;
  /** Lower goes first; ties go by arrival and then by id. */
  rank(state: RequestState): number;
}

const queueOrders: readonly QueueOrder[] = [
  { name: 'fcfs', rank: (state) => state.ticket },
  { name: 'priority-fcfs', rank: (state) => state.priority },
  { name: 'sjf', rank: (state) => state.request.promptTokens },
  { name: 'reverse-priority', rank: (state) => -state.priority },
  { name: RANKED, rank: (state) => state.queueRank },
];

export interface VictimRule {
  readonly name: string;
  /** Whether `candidate` gives way rather than `chosen`, which joined the batch later. */
  prefers(candidate: RequestState, chosen: RequestState): boolean;
  /** The request that joined the batch last is always the one, so nobody needs to look further. */
  readonly takesTheLast: boolean;
}

const victimRules: readonly VictimRule[] = [
  { name: 'fcfs', takesTheLast: true, prefers: () => false },
  {
    name: 'priority',
    takesTheLast: false,
    prefers: (candidate, chosen) =>
      candidate.priority > chosen.priority ||
      (candidate.priority === chosen.priority && candidate.arrivalUs > chosen.arrivalUs),
  },
  {
    name: RANKED,
    takesTheLast: false,
    prefers: (candidate, chosen) => candidate.victimRank > chosen.victimRank,
  },
];

export const queueOrderNames: readonly string[] = queueOrders.map(({ name }) => name);
export const victimRuleNames: readonly string[] = victimRules.map(({ name }) => name);

/** @throws TKV_CONFIG with the nearest name that exists */
export function queueOrder(name: string): QueueOrder {
  return named('queueOrder', name, queueOrders);
}

/** @throws TKV_CONFIG with the nearest name that exists */
export function victimRule(name: string): VictimRule {
  return named('victimRule', name, victimRules);
}

/** The entry of that name. @throws TKV_CONFIG with the nearest name that exists */
export function named<T extends { readonly name: string }>(
  field: string,
  name: string,
  entries: readonly T[],
): T {
  const found = entries.find((entry) => entry.name === name);
  if (found !== undefined) return found;
  const names = entries.map((entry) => entry.name);
  const near = nearestName(name, names);
  const remedy = near === undefined ? `Use one of ${names.join(', ')}.` : `Did you mean '${near}'?`;
  throw configError(field, `is ${JSON.stringify(name)}, which does not exist`, remedy);
}
