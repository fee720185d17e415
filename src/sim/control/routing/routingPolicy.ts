/**
 * The third stage: which instance takes a request. A policy filters, scores and picks; the router makes the
 * record of it.
 */

import type { FilteredOut, Priority } from '../decisions.ts';
import type { InstanceSnapshot } from '../instances.ts';
import type { NamedPolicy } from '../policy.ts';
import type { RequestView } from '../request.ts';
import type { RouterState } from '../routerState.ts';

export interface RoutingContext {
  readonly request: RequestView;
  readonly priority: Priority;
  /** At least one, in order of their numbers. */
  readonly candidates: readonly InstanceSnapshot[];
  readonly router: RouterState;
  /**
   * Grows with each report that the router reads: the same candidates with the same number have the same
   * reported signals. Left out where nobody counts.
   */
  readonly reports?: number;
}

/** One weighted part of the scores, by candidate. */
export interface ScorePart {
  readonly name: string;
  readonly weight: number;
  /** In [0, 1] where the policy clamps; before the weight. */
  readonly values: ArrayLike<number>;
}

export interface RoutingChoice {
  /** Index in the candidates. */
  readonly index: number;
  readonly reason: string;
  /** By candidate, higher is better; null where the policy does not score. `-Infinity` for filtered ones. */
  readonly scores: ArrayLike<number> | null;
  readonly parts: readonly ScorePart[];
  readonly filteredOut: readonly FilteredOut[];
}

export interface RoutingPolicy extends NamedPolicy {
  /** Whether it asks the router's observed view of caches; the view is kept only where somebody does. */
  readonly readsCaches: boolean;
  /** Whether it goes by what instances report, which is as old as the last report. */
  readonly readsReports: boolean;
  /**
   * Chooses; changes nothing but the policy's own counters and streams. What it returns holds until the next
   * call.
   */
  choose(context: RoutingContext): RoutingChoice;
  /** The request goes to the instance of that number. What the policy learns, it learns here. */
  routed?(context: RoutingContext, instance: number): void;
  /** The instance is gone, with all that it had cached. */
  removed?(instance: number): void;
}
