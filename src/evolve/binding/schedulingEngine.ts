/**
 * The real engine with an instance scheduler of a bundle. The policy ranks requests between steps, and the
 * shared scheduler goes by the ranks; so a log holds all that the policy decided, and is replayed without it.
 *
 *     arrives --> on_arrival: its rank, once
 *     before a step, where something changed that it could see: make_batch ranks all that wait
 *     before a step in which blocks may run out: select_preemption_victim ranks all that run
 */

import type { RequestProgress, RequestRank } from '../../runtime/batching/index.ts';
import type { StateVisitor } from '../../runtime/snapshot/index.ts';
import type { Stateful } from '../../sim/control/index.ts';
import type { MakeEngine } from '../../sim/deployment/index.ts';
import { type EngineStep, SchedulerEngine, type SimRequest } from '../../sim/instance/index.ts';
import type { EngineFacts, SchedulingFacts } from '../features/index.ts';
import { finiteRank } from './decisions.ts';

/** Ranks the requests, one number each. The numbers hold until the next call. */
export type RankAll = (requests: readonly SchedulingFacts[], instance: EngineFacts) => ArrayLike<number>;

/** What of an instance's scheduling a policy decides. What it remembers is part of the instance's state. */
export interface SchedulingPolicy extends Stateful {
  /** The rank of a request as it arrives: a 32-bit integer, lower is more urgent. */
  readonly rankArrival?: (facts: SchedulingFacts) => number;
  /** Of those that wait, the lowest joins the batch first. */
  readonly rankWaiting?: RankAll;
  /** Of those that run, the highest gives way first. */
  readonly rankVictims?: RankAll;
}

export class PolicyEngine extends SchedulerEngine {
  readonly #policy: SchedulingPolicy;
  /** Since those that wait were ranked last, one has come or gone. */
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
    // a step without tokens says nothing of who joined and who ended
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
    visitor.value(
      () => this.#policy.snapshot(),
      (saved) => this.#policy.restore(saved),
    );
  }
}

function atArrival({ promptTokens }: SimRequest): RequestProgress {
  return { knownTokens: promptTokens, computedTokens: 0, preemptions: 0 };
}

/** @param makePolicy called once for each instance: what one remembers, no other sees */
export function engineWith(makePolicy: () => SchedulingPolicy): MakeEngine {
  return ({ engine }, timeline, woken) => new PolicyEngine(makePolicy(), engine, timeline, woken);
}
