/**
 * The v2 workload spec as data: what the YAML says, with defaults filled in and every number checked. Names
 * follow the keys of the YAML; `undefined` means that a key with a meaning of its own when absent (a timeout,
 * for one) was not given.
 */

import type { ArrivalSpec, LengthSpec } from '../random/samplers.ts';

export const SLO_CLASSES = ['', 'critical', 'standard', 'sheddable', 'batch', 'background'] as const;
export type SloClass = (typeof SLO_CLASSES)[number];
export const CATEGORIES = ['', 'language', 'multimodal', 'reasoning'] as const;
type Category = (typeof CATEGORIES)[number];

export interface ActiveWindow {
  startUs: number;
  endUs: number;
  /** A weight when the spec has an aggregate rate, else requests per second. */
  traceRate?: number;
  arrival?: ArrivalSpec;
  inputLength?: LengthSpec;
  outputLength?: LengthSpec;
}

export interface MultiTurnSpec {
  maxRounds: number;
  thinkTimeUs: number;
  accumulate: boolean;
  singleSession: boolean;
}

export interface ReasoningSpec {
  /** In percent. */
  reasonRatio?: LengthSpec;
  multiTurn?: MultiTurnSpec;
}

export interface ModalitySpec {
  count: LengthSpec;
  length: LengthSpec;
}

export interface MultimodalSpec {
  text?: LengthSpec;
  image?: ModalitySpec;
  audio?: ModalitySpec;
  video?: ModalitySpec;
}

interface NetworkSpec {
  rttMs: number;
  bandwidthMbps: number;
}

/** Fields that clients and cohorts share. */
export interface TrafficSpec extends AdditionsSpec {
  id: string;
  tenantId: string;
  sloClass: SloClass;
  model: string;
  adapter: string;
  rateFraction: number;
  arrival: ArrivalSpec;
  inputLength: LengthSpec;
  outputLength: LengthSpec;
  prefixGroup: string;
  /** 0 = not given. */
  prefixLength: number;
  streaming: boolean;
  network?: NetworkSpec;
  multimodal?: MultimodalSpec;
  reasoning?: ReasoningSpec;
  timeoutUs?: number;
  sloTargetUs: number;
  closedLoop?: boolean;
}

export interface ClientSpec extends TrafficSpec {
  concurrency: number;
  thinkTimeUs: number;
  windows: readonly ActiveWindow[];
  /** Set by the inference_perf expansion only: arrivals that do not follow the aggregate rate. */
  ownArrivals?:
    | { kind: 'exactly'; requests: number; durationUs: number }
    | { kind: 'poisson'; ratePerUs: number };
}

export interface CohortSpec extends TrafficSpec {
  population: number;
  prefixSharing: 'shared' | 'per_member';
  diurnal?: { peakHour: number; peakToTroughRatio: number };
  spike?: { startUs: number; durationUs: number; traceRate?: number };
  drain?: { startUs: number; rampDurationUs: number };
}

export interface InferencePerfSpec {
  stages: ReadonlyArray<{ rate: number; durationS: number }>;
  systemPrompts: number;
  usersPerPrompt: number;
  systemPromptTokens: number;
  questionTokens: number;
  outputTokens: number;
  multiTurn: boolean;
}

export interface ServeGenSpec {
  path: string;
  windowDurationS: number;
  drainTimeoutS: number;
  timeWindow: '' | 'midnight' | 'morning' | 'afternoon';
  spanStartS: number;
  spanEndS: number;
}

export interface SloTargets {
  ttftMs?: number;
  itlMs?: number;
  e2eMs?: number;
}

/** A workload as its YAML describes it: clients, arrivals, lengths and sessions. */
export interface WorkloadSpec {
  seed: bigint;
  category: Category;
  /** Requests per second; 0 = every window says its own. */
  aggregateRate: number;
  /** Infinity = none. */
  horizonUs: number;
  /** 0 = as many as the horizon allows. */
  numRequests: number;
  goodputSloTargets: Readonly<Record<string, SloTargets>>;
  servegen?: ServeGenSpec;
  inferencePerf?: InferencePerfSpec;
  clients: readonly ClientSpec[];
  cohorts: readonly CohortSpec[];
}

/** Whether follow-up rounds of this client wait for the round before. */
export function isClosedLoop(client: TrafficSpec): boolean {
  return client.closedLoop ?? client.reasoning?.multiTurn !== undefined;
}

// Additions of a client to upstream's keys: sessions that walk from state to state, misbehaviour, a choice among
// prefixes, correlations. A client without any of them draws what upstream's draws.

export const contextGrowths = ['linear', 'sublinear', 'bounded', 'none'] as const;
/** How much of a conversation the next prompt repeats. */
type ContextGrowth = (typeof contextGrowths)[number];

export interface WalkState {
  readonly name: string;
  readonly inputLength: LengthSpec;
  readonly outputLength: LengthSpec;
  /** In milliseconds, from the end of the request before to this one; absent: none. */
  readonly pauseMs?: LengthSpec;
  /** States that may follow, with their weights; `end` ends the session. */
  readonly next: Readonly<Record<string, number>>;
}

/** A session in closed loop whose requests follow a Markov chain. The first request is of the first state. */
export interface WalkSpec {
  readonly states: readonly WalkState[];
  readonly maxRounds: number;
  /** Requests of a session, drawn when its first one has ended; absent: as the states have it. */
  readonly rounds?: LengthSpec;
  readonly growth: ContextGrowth;
  /** Most tokens that a prompt repeats, with `bounded`. */
  readonly contextLimit: number;
  /** Each round's new tokens are by this share more than those of the round before. */
  readonly promptGrowthRate: number;
  /** Share by which an answer may be longer or shorter than drawn. */
  readonly decodeVariation: number;
}

/** The state that ends a session. */
export const END_STATE = 'end';

export interface BehaviorSpec {
  /** After an arrival, with this probability, `size` more come `intervalUs` apart. */
  readonly burst?: { readonly probability: number; readonly size: number; readonly intervalUs: number };
  /** Share of the requests whose prompt has `tokens` new tokens. */
  readonly oversized?: { readonly share: number; readonly tokens: number };
  /** All requests come at multiples of `everyUs`, `size` at a time, whatever the rate. */
  readonly synchronised?: { readonly everyUs: number; readonly size: number };
}

export interface PrefixChoiceSpec {
  /** How often a request, or a session, begins with one of the groups' prefixes. */
  readonly reuseProbability: number;
  readonly groups: readonly { readonly id: string; readonly tokens: number; readonly popularity: number }[];
}

export interface CorrelationSpec {
  /**
   * Exponent in [-1, 1]: prompts are longer by (mean gap / gap) to its power, at most fourfold; above 0 those
   * of a burst are long.
   */
  readonly burstSize: number;
}

/** Users who give requests up. */
export interface CancellationSpec {
  /** Share of the requests, in [0, 1]. */
  readonly share: number;
  /** From arrival, in milliseconds. */
  readonly delayMs: LengthSpec;
}

export interface AdditionsSpec {
  cancellation?: CancellationSpec;
  walk?: WalkSpec;
  behavior?: BehaviorSpec;
  prefixes?: PrefixChoiceSpec;
  correlation?: CorrelationSpec;
}
