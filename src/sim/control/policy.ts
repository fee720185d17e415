/**
 * A policy is plain data: its name, its parameters, and a state that can be written down, so that a run can
 * be named, forked and repeated. It sees no clock but the time it is told, and no chance but the streams it
 * is given.
 */

import type { GoRandom, SourceState } from '../random/index.ts';
import type { Outcome } from './outcome.ts';

export type ParameterValue = number | string | boolean | Readonly<Record<string, number>>;

/** A policy by name, with parameters; the ones left out take their defaults. */
export interface PolicyChoice {
  readonly policy: string;
  readonly [parameter: string]: ParameterValue;
}

/** What policies are made with. */
export interface PolicyWorld {
  /**
   * A random stream of that name under the simulation's key, for its owner alone: each call gives another
   * object, at the start of the stream.
   */
  stream(name: string): GoRandom;
  /** Tokens of a block. */
  readonly blockTokens: number;
  /** Most requests in the batch of an instance. */
  readonly maxSequences: number;
}

/** Plain data that can be cloned: what a policy remembers. */
export type PlainState =
  | null
  | boolean
  | number
  | string
  | Float64Array
  | Int32Array
  | Uint32Array
  | SourceState
  | readonly PlainState[]
  | { readonly [key: string]: PlainState };

export interface Stateful {
  /** What it remembers now, independent of what it does later; null for a policy without memory. */
  snapshot(): PlainState;
  /** Goes on from what `snapshot` of a policy of the same name and parameters gave. */
  restore(state: PlainState): void;
}

export interface NamedPolicy extends Stateful {
  readonly name: string;
  /** Told of each routed request as it ends; what a policy learns from outcomes, it learns here. */
  completed?(outcome: Outcome): void;
}

/** What a policy without memory has in the place of one. */
export const noMemory: Stateful = { snapshot: () => null, restore: () => {} };

/** A policy whose decisions depend on nothing that it saw before. */
export abstract class StatelessPolicy {
  snapshot(): PlainState {
    return null;
  }

  restore(): void {}
}
