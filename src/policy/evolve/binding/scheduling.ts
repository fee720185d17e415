/**
 * The real engine with an instance scheduler of a bundle. The policy ranks requests between steps, and the shared
 * scheduler sorts by the ranks. So a log holds all decisions of the policy, and a replay needs no policy.
 *
 *     a request arrives: on_arrival gives its rank, once
 *     before a step, if the queue or the batch changed: make_batch ranks the waiting requests
 *     before a step in which blocks may run out: select_preemption_victim ranks the running requests
 */

import { RANKED, type SchedulerConfig } from '../../../runtime/batching/config.ts';
import type { RequestProgress, RequestRank } from '../../../runtime/batching/scheduler.ts';
import type { Stateful, StateVisitor } from '../../../runtime/snapshot.ts';
import { noMemory, type ParameterValue } from '../../../sim/control/policy.ts';
import type { MakeEngine } from '../../../sim/description/deployment.ts';
import type { EngineStep } from '../../../sim/instance/engine.ts';
import { SchedulerEngine } from '../../../sim/instance/schedulerEngine.ts';
import type { SimRequest } from '../../../sim/instance/simRequest.ts';
import { batchRules, eachBy, type RankAll, rankingRule, victimRules } from '../bundle/batchRules.ts';
import type { DecisionTreePolicy, PolicyBundle } from '../bundle/policyBundle.ts';

import { engineFeatures, type SchedulingFacts, schedulingFeatures } from '../features/scheduling.ts';
import { type LoadedCode, type SlotCall, SlotProgram } from './codePolicies.ts';
import { finiteRank, rankOf } from './decisions.ts';
import { DecisionTree } from './treePolicies.ts';

/** An instance scheduler's decisions. Its memory is part of the state of the instance. */
export interface SchedulingPolicy extends Stateful {
  /** The rank of a request as it arrives: a 32-bit integer, lower is more urgent. */
  readonly rankArrival?: (facts: SchedulingFacts) => number;
  /** Ranks waiting requests: the lowest joins the batch first. */
  readonly rankWaiting?: RankAll;
  /** Ranks running requests: the highest gives way first. */
  readonly rankVictims?: RankAll;
}

export class PolicyEngine extends SchedulerEngine {
  readonly #policy: SchedulingPolicy;
  /** Whether a request came or went since the last ranking of the waiting requests. */
  #hasChanged = false;

  constructor(policy: SchedulingPolicy, ...parts: ConstructorParameters<typeof SchedulerEngine>) {
    super(...parts);
    this.#policy = policy;
  }

  override add(request: SimRequest, nowUs: number): void {
    const { rankArrival, rankWaiting, rankVictims } = this.#policy;
    if (rankArrival !== undefined) request.priority = rankArrival(this.#factsOf(request, nowUs));
    const own = rankArrival === undefined ? NaN : request.priority;
    request.queueRank = rankWaiting === undefined ? own : NaN;
    request.victimRank = rankVictims === undefined ? own : NaN;
    super.add(request, nowUs);
    this.#hasChanged = true;
  }

  override abort(request: SimRequest, nowUs: number): void {
    super.abort(request, nowUs);
    this.#hasChanged = true;
  }

  override step(nowUs: number): EngineStep {
    this.#rank(nowUs);
    const step = super.step(nowUs);
    if (step.preempted.length > 0) this.#hasChanged = true;
    // a step without tokens does not list the requests that joined or ended
    if (step.sums.tokens > 0 && step.admitted.length + step.finished.length > 0) this.#hasChanged = true;
    return step;
  }

  #rank(nowUs: number): void {
    const { rankWaiting, rankVictims } = this.#policy;
    const ranks: RequestRank[] = [];
    if (rankWaiting !== undefined && this.#hasChanged && this.waitingCount > 0) {
      const requests = this.scheduler.requestsOutside();
      this.#ask(rankWaiting, requests, nowUs, (request, rank) => {
        if (request.queueRank === rank) return;
        request.queueRank = rank;
        ranks.push({ id: request.id, rank });
      });
    }
    this.#hasChanged = false;
    if (rankVictims !== undefined && this.scheduler.mayRunShort) {
      this.#ask(rankVictims, this.scheduler.runningRequests(), nowUs, (request, rank) => {
        if (request.victimRank === rank) return;
        request.victimRank = rank;
        ranks.push({ id: request.id, rank });
      });
    }
    if (ranks.length > 0) this.scheduler.rerank(ranks, nowUs);
  }

  #ask(
    rankAll: RankAll,
    requests: readonly SimRequest[],
    nowUs: number,
    take: (request: SimRequest, rank: number) => void,
  ): void {
    const facts = requests.map((request) => this.#factsOf(request, nowUs));
    const numbers = rankAll(facts, { engine: this, nowUs });
    for (let i = 0; i < requests.length; i++) take(requests[i], finiteRank(numbers[i]));
  }

  #factsOf(request: SimRequest, nowUs: number): SchedulingFacts {
    const progress = this.scheduler.progress(request.id) ?? atArrival(request);
    return { request, progress, engine: this, nowUs };
  }

  override visitState(visitor: StateVisitor, requestOf: (row: number) => SimRequest): void {
    super.visitState(visitor, requestOf);
    this.#hasChanged = visitor.flag(this.#hasChanged);
    this.#policy.visitState(visitor);
  }
}

function atArrival({ promptTokens }: SimRequest): RequestProgress {
  return { knownTokens: promptTokens, computedTokens: 0, preemptions: 0 };
}

/** @param makePolicy called once for each instance, so that no two instances share a memory */
export function engineWith(makePolicy: () => SchedulingPolicy): MakeEngine {
  return ({ engine }, timeline, woken, share) =>
    new PolicyEngine(makePolicy(), engine, timeline, woken, null, share);
}

// Instance schedulers of a bundle as policies of an engine (programs, decision trees, rules by name), with the queue
// order and the victim rule that the shared scheduler takes beside them.

interface Scheduling {
  readonly config: SchedulerConfig;
  /** Undefined where the shared scheduler ranks requests itself. */
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

/** Requests that the policy does not rank keep the ranks that they came with. */
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
  const order = rankingRule(batchRules, template);
  const victims = rankingRule(victimRules, victimRule);
  const policy: SchedulingPolicy = {
    ...noMemory,
    ...(order === undefined ? {} : { rankWaiting: order.rank }),
    ...(victims === undefined ? {} : { rankVictims: victims.rank }),
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
    visitState: (visitor) => program.visitState(visitor),
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
