/** Who watches a simulation: for traces and tests. Nothing that it does reaches the simulation. */

import type { AdmissionDecision, RoutingDecision, ShadowDivergence } from '../control/index.ts';
import type { SimRequest } from '../instance/index.ts';
import type { Status } from '../metrics/index.ts';
import type { Handoff } from './handoffs.ts';

export interface SimulationObserver {
  arrived?(request: SimRequest, nowUs: number): void;
  admission?(request: SimRequest, decision: AdmissionDecision, nowUs: number): void;
  /** `null`: no instance could take it. */
  routing?(request: SimRequest, decision: RoutingDecision | null, nowUs: number): void;
  /** The KV of a request has come to its decode instance. */
  handedOff?(handoff: Handoff): void;
  diverged?(divergence: ShadowDivergence): void;
  ended?(request: SimRequest, status: Status, timeUs: number): void;
}
