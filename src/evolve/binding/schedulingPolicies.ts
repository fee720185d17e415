/**
 * Instance schedulers of a bundle as policies of an engine: programs, decision trees and rules by name, and
 * the queue order and victim rule by which the shared scheduler goes then.
 */

import { RANKED, type SchedulerConfig } from '../../runtime/batching/index.ts';
import { noMemory, type ParameterValue } from '../../sim/control/index.ts';
import {
  batchRuleNames,
  type DecisionTreePolicy,
  type PolicyBundle,
  victimRuleNames,
} from '../bundle/index.ts';
import { engineFeatures, type SchedulingFacts, schedulingFeatures } from '../features/index.ts';
import { batchRules, victimRules } from './batchRules/index.ts';
import { rankOf } from './decisions.ts';
import type { RankAll, SchedulingPolicy } from './schedulingEngine.ts';
import { type LoadedCode, type SlotCall, SlotProgram } from './slotProgram.ts';
import { DecisionTree } from './tree.ts';

export interface Scheduling {
  readonly config: SchedulerConfig;
  /** Undefined where the shared scheduler needs nobody to rank requests. */
  readonly makePolicy: (() => SchedulingPolicy) | undefined;
}

/** @throws PolicyError contract, and what loading a program may throw */
export function schedulingOf(
  spec: PolicyBundle['instanceScheduler'],
  code: LoadedCode | undefined,
): Scheduling {
  if (code !== undefined) return made(() => policyOfCode(code));
  if (spec?.type === 'decisionTree') return made(() => policyOfTree(spec));
  return spec?.type === 'parameterized' ? byName(spec.template, spec.parameters) : byName(undefined, {});
}

/** Requests go by what the policy ranks, and else by the ranks that they come with. */
function made(makePolicy: () => SchedulingPolicy): Scheduling {
  const { rankWaiting, rankVictims } = makePolicy();
  return {
    config: {
      queueOrder: rankWaiting === undefined ? 'priority-fcfs' : RANKED,
      victimRule: rankVictims === undefined ? 'priority' : RANKED,
    },
    makePolicy,
  };
}

function byName(
  template: string | undefined,
  { victimRule, longPrefillTokens }: Readonly<Record<string, ParameterValue | undefined>>,
): Scheduling {
  const order = batchRuleNames.find((name) => name === template);
  const victims = victimRuleNames.find((name) => name === victimRule);
  const policy: SchedulingPolicy = {
    ...noMemory,
    ...(order === undefined ? {} : { rankWaiting: batchRules[order] }),
    ...(victims === undefined ? {} : { rankVictims: victimRules[victims] }),
  };
  return {
    config: {
      ...(template === undefined ? {} : { queueOrder: order === undefined ? template : RANKED }),
      ...(typeof victimRule === 'string' ? { victimRule: victims === undefined ? victimRule : RANKED } : {}),
      ...(typeof longPrefillTokens === 'number' ? { longPrefillTokens } : {}),
    },
    makePolicy: order === undefined && victims === undefined ? undefined : () => policy,
  };
}

function eachBy(rank: (facts: SchedulingFacts) => number): RankAll {
  return (requests) => requests.map(rank);
}

function policyOfTree({ root, entrypoint = 'on_arrival' }: DecisionTreePolicy): SchedulingPolicy {
  const tree = new DecisionTree('instanceScheduler', root);
  const rank = (facts: SchedulingFacts): number => tree.walk({ request: facts, instance: facts }).value ?? 0;
  switch (entrypoint) {
    case 'make_batch':
      return { ...noMemory, rankWaiting: eachBy(rank) };
    case 'select_preemption_victim':
      return { ...noMemory, rankVictims: eachBy(rank) };
    default:
      return { ...noMemory, rankArrival: (facts) => rankOf(rank(facts)) };
  }
}

function policyOfCode(code: LoadedCode): SchedulingPolicy {
  const program = new SlotProgram('instanceScheduler', code);
  const arrival = program.call('on_arrival');
  const waiting = program.call('make_batch');
  const victims = program.call('select_preemption_victim');
  return {
    ...(arrival === undefined ? {} : { rankArrival: oneBy(arrival) }),
    ...(waiting === undefined ? {} : { rankWaiting: allBy(waiting) }),
    ...(victims === undefined ? {} : { rankVictims: allBy(victims) }),
    snapshot: () => program.snapshot(),
    restore: (state) => program.restore(state),
  };
}

function oneBy(call: SlotCall): (facts: SchedulingFacts) => number {
  const writer = call.writer(0, schedulingFeatures);
  return (facts) => {
    writer.write(0, facts);
    return rankOf(call.decide(facts.request.id, facts.nowUs)[0]);
  };
}

function allBy(call: SlotCall): RankAll {
  const each = call.writer(0, schedulingFeatures);
  const own = call.writer(1, engineFeatures);
  return (requests, instance) => {
    each.rows(requests.length);
    for (let row = 0; row < requests.length; row++) each.write(row, requests[row]);
    own.write(0, instance);
    return call.decide('', instance.nowUs);
  };
}
