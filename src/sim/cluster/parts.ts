/** What a simulation is made of. */

import type { ControlPlane, Role } from '../control/index.ts';
import type { Timeline } from '../driver/index.ts';
import type { Instance, InstanceHost, PromptKeys } from '../instance/index.ts';
import type { RequestTable } from '../metrics/index.ts';
import type { RequestStream, SessionPlan } from '../workload/index.ts';
import type { GatewayTiming } from './flow/gatewayQueue.ts';
import type { HandoffConfig } from './flow/handoff.ts';
import type { ForcedDecisions } from './forced.ts';
import type { SimulationObserver } from './observer.ts';
import type { ScalingSetup } from './scaling/scalingLoop.ts';
import type { SimulationKey } from './simulationKey.ts';

export interface SimulatedWorkload {
  /** Requests in order of arrival. */
  readonly stream: RequestStream;
  /** Present where requests exist only once others have ended. */
  readonly sessions: SessionPlan | undefined;
  /** Whether no request has tokens of another one, as far as is known before. */
  readonly sharesNothing?: boolean;
}

export interface SimulationOptions {
  /** No event after this happens. Infinity for none. */
  readonly horizonUs: number;
  readonly admissionLatencyUs: number;
  readonly routingLatencyUs: number;
  /** Whether the last token of an answer is part of the conversation that follows. */
  readonly lastTokenInContext: boolean;
  /** Between prefill and decode instances. */
  readonly handoff: HandoffConfig;
  /** Of the control plane's gateway queue, where it has one. */
  readonly gateway?: GatewayTiming;
}

/** What the cluster knows of a pool: a deployment configuration, whose instances are made alike. */
export interface PoolPart {
  readonly configId: string;
  readonly role: Role;
  /** Model that it serves, '' for any. */
  readonly model: string;
}

export interface SimulationParts {
  readonly key: SimulationKey;
  readonly workload: SimulatedWorkload;
  readonly options: SimulationOptions;
  readonly pools: readonly PoolPart[];
  /** The instances that there are at first: the pool of each. */
  readonly instances: readonly number[];
  /** Makes the instance of that number in that pool; the timeline is for its transfers. */
  makeInstance(
    number: number,
    pool: number,
    table: RequestTable,
    host: InstanceHost,
    timeline: Timeline,
  ): Instance;
  readonly control: ControlPlane;
  readonly keys: PromptKeys;
  readonly observer?: SimulationObserver;
  /** One for each pool that scales, in order of the pools. */
  readonly scaling?: readonly ScalingSetup[];
  /** Decisions that are taken out of the policies' hands. */
  readonly forced?: ForcedDecisions;
}
