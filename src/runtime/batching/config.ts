/**
 * The scheduler's configuration, checked field by field, and its policies by name: queue orders and victim rules. A
 * log header holds the configuration whole, so policies are named there as here. Both rules are total orders: equal
 * inputs give equal decisions.
 */

import { configError, nearestName } from '../errors.ts';
import type { ValueKind } from '../kinds.ts';
import * as is from '../kinds.ts';
import { type Kinds, type OptionTable, optionTable } from '../options.ts';
import type { RequestState } from './request.ts';

/** Name of the order and of the rule that read ranks set by `rerank`. */
export const RANKED = 'ranked';

export interface QueueOrder {
  readonly name: string;
  /** One line for people who choose. */
  readonly about: string;
  /** It reads how long an answer may get. A simulated request asks for exactly what it gets: searched policies must not see it. */
  readonly foresees?: true;
  /** Owners have their turns (ownerTurns.ts); the rank orders requests that had theirs and wait again. */
  readonly inTurns?: true;
  /** Lower goes first; ties go by arrival and then by id. */
  rank(state: RequestState): number;
}

const queueOrders: readonly QueueOrder[] = [
  { name: 'fcfs', about: 'in order of arrival at the instance', rank: (state) => state.ticket },
  {
    name: 'tenant-turns',
    about: 'the tenants in turn, and requests of one tenant in order of arrival',
    inTurns: true,
    rank: (state) => state.ticket,
  },
  {
    name: 'priority-fcfs',
    about: 'the most urgent first, then in order of arrival',
    rank: (state) => state.priority,
  },
  { name: 'sjf', about: 'the shortest prompt first', rank: (state) => state.request.promptTokens },
  { name: 'reverse-priority', about: 'the least urgent first, for tests', rank: (state) => -state.priority },
  {
    name: 'sjf-output',
    about: 'the fewest output tokens asked for first',
    foresees: true,
    rank: (state) => state.request.maxOutputTokens,
  },
  { name: RANKED, about: 'by ranks given from outside', rank: (state) => state.queueRank },
];

export interface VictimRule {
  readonly name: string;
  /** Whether `candidate` gives way rather than `chosen`, which joined the batch later. */
  prefers(candidate: RequestState, chosen: RequestState): boolean;
  /** True if the rule always picks the request that joined last, so that the search ends there. */
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

/** Orders that need the requests alone: no ranks from outside, and no owners, which simulated requests do not have. */
export const plainOrderNames: readonly string[] = queueOrders
  .filter(({ name, inTurns }) => name !== RANKED && inTurns !== true)
  .map(({ name }) => name);
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

/** Budgets and policies of a `Scheduler`. */
export interface SchedulerConfig {
  /** Most tokens that one step computes, over all requests. Default 2048. */
  maxBatchedTokens?: number;
  /** Most requests in the batch. Default 256. */
  maxSequences?: number;
  /** Most tokens of one request's prefill in one step. 0, the default: only the step's budget limits it. */
  longPrefillTokens?: number;
  /** Tokens, prompt and output together, at which a request ends. 0, the default: only its own limit holds. */
  maxModelTokens?: number;
  /** `fcfs` (default), `tenant-turns`, `priority-fcfs`, `sjf`, `reverse-priority`, `sjf-output`, or `ranked` (ranks set by `rerank`). */
  queueOrder?: string;
  /**
   * Which running request is preempted when blocks run out: `fcfs` (default) the last of the batch, `priority`, or
   * `ranked` (ranks set by `rerank`).
   */
  victimRule?: string;
  /**
   * The part of a preempted request that is kept. `recompute`, the default: its tokens; KV that is still cached when it
   * comes back is used, the rest is computed again. `offload`: the same, and its blocks move to lower tiers at once to
   * make room in HBM. `restart`: nothing; it generates its tokens again from the first, for callers that hand output
   * over whole.
   */
  preemption?: string;
  /**
   * When other requests may find a full block. `whenComputed`, the default: after the step that computes it, which
   * verified bytes need. `whenPlanned`: from that step on, as in vLLM; the engine then computes the requests of a
   * step in batch order, and the driver seals after the step's kernels.
   */
  publish?: string;
  /**
   * Behaviour of a request while its found blocks come up from lower tiers. `awaited`, the default: it waits for all of
   * them. `overlapped`: it computes from the front while blocks arrive from the back. The division ends soonest by the
   * steps and loads measured so far; blocks that come too late are computed.
   */
  prefixLoads?: string;
  /**
   * Behaviour of a request while another one of the batch computes its next blocks, where blocks are published after
   * their step. `awaited`, the default: it keeps its place in the queue, lets later requests pass, and finds the blocks
   * once they are published. `computed`: it computes them as well.
   */
  sharedPrefixes?: string;
}

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

/** One of the entries by its name. An error has the nearest that exists. */
const entryOf = <T extends { readonly name: string }>(entries: readonly T[]): ValueKind<T['name']> => ({
  read: (value, field) => named(field, value as string, entries).name,
});

const servedSettings = {
  maxBatchedTokens: is.optional(is.integer(1), 2048),
  maxSequences: is.optional(is.integer(1, 2 ** 20), 256),
  longPrefillTokens: is.optional(is.integer(0), 0),
  maxModelTokens: is.optional(is.integer(0), 0),
  queueOrder: is.optional(entryOf(queueOrders), 'fcfs'),
  victimRule: is.optional(entryOf(victimRules), 'fcfs'),
  preemption: is.optional(entryOf(preemptionModes), 'recompute'),
  prefixLoads: is.optional(entryOf(prefixLoadModes), 'awaited'),
  sharedPrefixes: is.optional(entryOf(sharedPrefixModes), 'awaited'),
} satisfies Kinds<Omit<SchedulerConfig, 'publish'>>;

/** Settings where bytes are verified: blocks are published once they are computed. */
export const servedSchedulerConfig: OptionTable<Omit<ResolvedSchedulerConfig, 'publish'>> = optionTable(
  servedSettings,
  'TKV_CONFIG',
);

const schedulerConfig: OptionTable<ResolvedSchedulerConfig> = optionTable(
  {
    ...servedSettings,
    publish: is.optional(entryOf(publishModes), 'whenComputed'),
  } satisfies Kinds<SchedulerConfig>,
  'TKV_CONFIG',
);

/** @throws TKV_CONFIG with the field that is wrong, and the nearest name where one is unknown */
export function resolveSchedulerConfig(
  config: SchedulerConfig,
  hasLowerTier: boolean,
): ResolvedSchedulerConfig {
  const read = schedulerConfig.read(config, 'config');
  if (read.preemption === 'offload' && !hasLowerTier) {
    throw configError('preemption', 'is offload, which needs a tier below HBM', "Use 'recompute'.");
  }
  return read;
}
