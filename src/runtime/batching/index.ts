/**
 * The one scheduler: which requests run in a step, with how many tokens. It drives the manager, and runs
 * nothing.
 */

export {
  type PreemptionMode,
  preemptionNames,
  publishNames,
  queueOrderNames,
  type ResolvedSchedulerConfig,
  type SchedulerConfig,
  victimRuleNames,
} from './config.ts';
export type { SchedulerCounters } from './core.ts';
export { type KVPort, ManagerPort, type ManagerPortConfig } from './kvPort.ts';
export type { RequestRank } from './ranking.ts';
export { type AbortResult, type RequestProgress, Scheduler, type StepResult } from './scheduler.ts';
export {
  type AddedRequest,
  SchedulerDecision,
  SchedulerInput,
  type SchedulerSink,
  schedulerDecisionNames,
  schedulerInputNames,
} from './schedulerSink.ts';
export type { SchedulerNames } from './schedulerState.ts';
export type { StepOutcome } from './state/outcome.ts';
export type { StepPlan } from './state/plan.ts';
export { RANKED } from './state/policies.ts';
export { FinishReason, finishReasonNames, type ServingRequest } from './state/request.ts';
