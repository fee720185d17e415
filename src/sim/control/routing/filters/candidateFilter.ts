/** A filter leaves candidates out before one of the rest is picked. */

import type { RoutingContext } from '../routingPolicy.ts';

/** A place in the candidates, and the name of the rule that leaves it out. */
export interface LeftOut {
  readonly at: number;
  readonly filter: string;
}

export interface CandidateFilter {
  /** @param open places of the candidates that no filter before has left out, in order */
  leavesOut(context: RoutingContext, open: readonly number[]): readonly LeftOut[];
}

/** Those of `open` that are not kept. */
export function allBut(open: readonly number[], kept: readonly number[], filter: string): readonly LeftOut[] {
  return open.filter((at) => !kept.includes(at)).map((at) => ({ at, filter }));
}
