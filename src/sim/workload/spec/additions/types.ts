/**
 * What a client may have beyond upstream's keys: sessions that walk from state to state, misbehaviour, a
 * choice among prefixes, correlations. A client without any of them draws what upstream's draws.
 */

import type { LengthSpec } from '../../../random/index.ts';

export const contextGrowths = ['linear', 'sublinear', 'bounded', 'none'] as const;
/** What of a conversation the next prompt repeats. */
export type ContextGrowth = (typeof contextGrowths)[number];

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
  /** Share of the requests whose prompt has so many new tokens. */
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

export interface AdditionsSpec {
  walk?: WalkSpec;
  behavior?: BehaviorSpec;
  prefixes?: PrefixChoiceSpec;
  correlation?: CorrelationSpec;
}
