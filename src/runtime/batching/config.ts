/**
 * What a scheduler is built from, checked field by field. Policies are named, so that a log header can hold
 * the whole.
 */

import { configError, nearestName, requireInteger } from '../errors.ts';
import { optionNames, requireOptions } from '../options.ts';
import type { RequestState } from './request.ts';

// The policies of a scheduler by name: the order of the waiting queue, and which running request gives way. A
// log header names a policy by the name it has here. Both rules are total orders, so equal inputs give equal
// decisions.

/** The order and the rule that go by ranks which are given from outside. */
export const RANKED = 'ranked';

export interface QueueOrder {
  readonly name: string;
  /** One line for people who choose. */
  readonly about: string;
  /** Lower goes first; ties go by arrival and then by id. */
  rank(state: RequestState): number;
}

const queueOrders: readonly QueueOrder[] = [
  { name: 'fcfs', about: 'in order of arrival at the instance', rank: (state) => state.ticket },
  {
    name: 'priority-fcfs',
    about: 'the most urgent first, then in order of arrival',
    rank: (state) => state.priority,
  },
  { name: 'sjf', about: 'the shortest prompt first', rank: (state) => state.request.promptTokens },
  { name: 'reverse-priority', about: 'the least urgent first, for tests', rank: (state) => -state.priority },
  { name: RANKED, about: 'by ranks given from outside', rank: (state) => state.queueRank },
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
function named<T extends { readonly name: string }>(field: string, name: string, entries: readonly T[]): T {
  const found = entries.find((entry) => entry.name === name);
  if (found !== undefined) return found;
  const names = entries.map((entry) => entry.name);
  const near = nearestName(name, names);
  const remedy = near === undefined ? `Use one of ${names.join(', ')}.` : `Did you mean '${near}'?`;
  throw configError(field, `is ${JSON.stringify(name)}, which does not exist`, remedy);
}

export interface SchedulerConfig {
  /** Most tokens that one step computes, over all requests. Default 2048. */
  maxBatchedTokens?: number;
  /** Most requests in the batch. Default 256. */
  maxSequences?: number;
  /** Most tokens of one request's prefill in one step; 0, the default, is no limit but that of the step. */
  longPrefillTokens?: number;
  /** Tokens, prompt and output together, at which a request ends. 0, the default, is no limit but its own. */
  maxModelTokens?: number;
  /** `fcfs` (default), `priority-fcfs`, `sjf`, `reverse-priority`, or `ranked`: as `rerank` says. */
  queueOrder?: string;
  /**
   * Which running request gives way when blocks run out: `fcfs` (default) the last of the batch, `priority`,
   * or `ranked`: as `rerank` says.
   */
  victimRule?: string;
  /**
   * What a request that gave way keeps. `recompute`, the default: its tokens; the KV that is still found when
   * it comes back is used, and the rest is computed again. `offload`: the same, and its room in HBM is made
   * at once by moving blocks to lower tiers. `restart`: nothing; it generates its tokens again from the
   * first, as where output is only handed over whole.
   */
  preemption?: string;
  /**
   * When a full block may be found by other requests. `whenComputed`, the default: after the step that
   * computes it, as where bytes are verified. `whenPlanned`: from its own step on, as in vLLM; the engine
   * then computes the requests of a step in batch order, and the driver seals after the step's kernels.
   */
  publish?: string;
  /**
   * What happens while found blocks come up from lower tiers. `awaited`, the default: the request waits for
   * all of them. `overlapped`: it computes from the front while they come from the back, as much of them as
   * ends soonest by the steps and loads measured so far, and what does not come in time is computed.
   */
  prefixLoads?: string;
  /**
   * What a request does whose next blocks another one of the batch computes just now, where blocks are
   * published after their step. `awaited`, the default: it keeps its place in the queue, lets those behind it
   * pass, and finds the blocks when they are published. `computed`: it computes them as well.
   */
  sharedPrefixes?: string;
}

export const schedulerConfigNames: readonly string[] = optionNames<SchedulerConfig>({
  maxBatchedTokens: true,
  maxSequences: true,
  longPrefillTokens: true,
  maxModelTokens: true,
  queueOrder: true,
  victimRule: true,
  preemption: true,
  publish: true,
  prefixLoads: true,
  sharedPrefixes: true,
});

export type PreemptionMode = 'recompute' | 'offload' | 'restart';
type PublishMode = 'whenComputed' | 'whenPlanned';
type PrefixLoadMode = 'awaited' | 'overlapped';
type SharedPrefixMode = 'awaited' | 'computed';

export interface ResolvedSchedulerConfig {
  readonly maxBatchedTokens: number;
  readonly maxSequences: number;
  readonly longPrefillTokens: number;
  readonly maxModelTokens: number;
  readonly queueOrder: string;
  readonly victimRule: string;
  readonly preemption: PreemptionMode;
  readonly publish: PublishMode;
  readonly prefixLoads: PrefixLoadMode;
  readonly sharedPrefixes: SharedPrefixMode;
}

const preemptionModes = [{ name: 'recompute' }, { name: 'offload' }, { name: 'restart' }] as const;
const publishModes = [{ name: 'whenComputed' }, { name: 'whenPlanned' }] as const;
const sharedPrefixModes = [{ name: 'awaited' }, { name: 'computed' }] as const;
const prefixLoadModes = [{ name: 'awaited' }, { name: 'overlapped' }] as const;

export const preemptionNames: readonly string[] = preemptionModes.map(({ name }) => name);
export const publishNames: readonly string[] = publishModes.map(({ name }) => name);

/** @throws TKV_CONFIG with the field that is wrong, and the nearest name where one is unknown */
export function resolveSchedulerConfig(
  config: SchedulerConfig,
  hasLowerTier: boolean,
): ResolvedSchedulerConfig {
  requireOptions(config, schedulerConfigNames, 'config', 'TKV_CONFIG');
  const preemption = named('preemption', config.preemption ?? 'recompute', preemptionModes).name;
  if (preemption === 'offload' && !hasLowerTier) {
    throw configError('preemption', 'is offload, but there is no tier below HBM', "Use 'recompute'.");
  }
  return {
    maxBatchedTokens: requireInteger('maxBatchedTokens', config.maxBatchedTokens ?? 2048, 1),
    maxSequences: requireInteger('maxSequences', config.maxSequences ?? 256, 1, 2 ** 20),
    longPrefillTokens: requireInteger('longPrefillTokens', config.longPrefillTokens ?? 0, 0),
    maxModelTokens: requireInteger('maxModelTokens', config.maxModelTokens ?? 0, 0),
    queueOrder: queueOrder(config.queueOrder ?? 'fcfs').name,
    victimRule: victimRule(config.victimRule ?? 'fcfs').name,
    preemption,
    publish: named('publish', config.publish ?? 'whenComputed', publishModes).name,
    prefixLoads: named('prefixLoads', config.prefixLoads ?? 'awaited', prefixLoadModes).name,
    sharedPrefixes: named('sharedPrefixes', config.sharedPrefixes ?? 'awaited', sharedPrefixModes).name,
  };
}
