/** What the event loop asks of the control plane: whether a request may in, where it runs, how urgent it is. */

import type { RunningRequest } from '../instance/index.ts';
import type { WorkloadRequest } from '../workload/index.ts';

/** A request that has arrived and is not with an instance yet. */
export interface Arrival {
  readonly workload: WorkloadRequest;
  readonly row: number;
}

export type Admission = 'admit' | 'reject' | { readonly delayUs: number };

export interface ControlPlane {
  admit(arrival: Arrival, nowUs: number): Admission;
  /** Number of the instance, or -1 when none can take the request. */
  route(arrival: Arrival, nowUs: number): number;
  /** Lower is more urgent. */
  priority(arrival: Arrival): number;
  /** The request ended on the instance, however it did. */
  ended(request: RunningRequest, instance: number): void;
}
