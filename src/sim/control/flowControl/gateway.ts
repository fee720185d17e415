/** A queue in front of routing that holds requests while the instances are saturated. */

import type { Priority } from '../decisions.ts';
import type { NamedPolicy, Stateful } from '../policy.ts';
import type { RequestView } from '../request.ts';

export interface GatewayEntry {
  readonly request: RequestView;
  readonly priority: Priority;
  readonly enqueuedUs: number;
  /** Order of arrival at the queue. */
  readonly sequence: number;
}

export type EnqueueResult =
  | { readonly outcome: 'queued' }
  | { readonly outcome: 'rejected'; readonly reason: string }
  /** Another one was put out to make room. */
  | { readonly outcome: 'evicted'; readonly evicted: GatewayEntry };

export interface FlowControl extends Stateful, Pick<NamedPolicy, 'completed'> {
  readonly size: number;
  /** How many of those that wait `matches` is true of. */
  count(matches: (request: RequestView) => boolean): number;
  enqueue(request: RequestView, priority: Priority, nowUs: number): EnqueueResult;
  /**
   * The next request to route, or undefined while everything is held back.
   * @param saturation of the instances, from 0; 1 is full
   */
  dispatch(saturation: number, nowUs: number): GatewayEntry | undefined;
  /**
   * After `restore`: gives the entries their requests back by their numbers. A snapshot holds no requests,
   * which belong to the simulation.
   */
  adopt(requestOf: (number: number) => RequestView): void;
  /** Takes a request out, because it expired or its client gave up; false when it is not here. */
  remove(request: RequestView): boolean;
}
