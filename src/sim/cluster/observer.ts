/** Who watches a simulation: for traces and tests. Nothing that it does reaches the simulation. */

import type { AdmissionDecision, RoutingDecision, ShadowDivergence } from '../control/index.ts';
import type { SimRequest } from '../instance/index.ts';
import type { Status } from '../metrics/index.ts';

export interface SimulationObserver {
  arrived?(request: SimRequest, nowUs: number): void;
  admission?(request: SimRequest, decision: AdmissionDecision, nowUs: number): void;
  /** `null`: no instance could take it. */
  routing?(request: SimRequest, decision: RoutingDecision | null, nowUs: number): void;
  diverged?(divergence: ShadowDivergence): void;
  ended?(request: SimRequest, status: Status, timeUs: number): void;
}
