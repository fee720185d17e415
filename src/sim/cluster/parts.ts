/** Parts of a simulation: its kinds of events, its observer, forced decisions, and the key that names a run. */

import { requireInteger } from '../../runtime/errors.ts';
import type { BlockKeys } from '../../runtime/keys/keyChain.ts';
import * as is from '../../runtime/kinds.ts';
import { checkInputs } from '../../runtime/options.ts';
import type { ControlPlane, ShadowDivergence } from '../control/controlPlane.ts';
import type { GatewayTiming } from '../control/gatewayQueue.ts';
import type {
  AdmissionDecision,
  ForcedRouting,
  RequestPriority,
  Role,
  RoutingDecision,
} from '../control/policy.ts';
import type { BlockMove } from '../instance/engine.ts';
import type { Instance, InstanceHost } from '../instance/instance.ts';
import type { PromptKeys, SimRequest } from '../instance/simRequest.ts';
import type { Timeline } from '../links/modeledDriver.ts';
import type { SharedServer, SharedServerConfig } from '../links/sharedServer.ts';
import type { RequestTable, Status } from '../metrics/requestTable.ts';
import { fnv1a64 } from '../random/goRand.ts';
import type { SessionPlan } from '../workload/closedLoop.ts';
import type { RequestStream } from '../workload/request.ts';
import type { Handoff, HandoffConfig, HandoffSend } from './handoffs.ts';
import type { ReplicaChange, ScaleChange, ScalingSetup } from './scaling.ts';

export interface SimulatedWorkload {
  /** Requests in order of arrival. */
  readonly stream: RequestStream;
  /** Present where requests exist only once others have ended. */
  readonly sessions: SessionPlan | undefined;
  /** Whether no request has tokens of another one, as far as is known before. */
  readonly sharesNothing?: boolean;
}

/** Settings of a simulation beside its parts, such as its horizon. */
export interface SimulationOptions {
  /** No event after this happens. Infinity for none. */
  readonly horizonUs: number;
  readonly admissionLatencyUs: number;
  readonly routingLatencyUs: number;
  /** Whether the last token of an answer is part of the conversation that follows. */
  readonly lastTokenInContext: boolean;
  /** Between prefill and decode instances. */
  readonly handoff: HandoffConfig;
  /** Times of the control plane's gateway queue, where it has one. */
  readonly gateway?: GatewayTiming;
}

/** A pool in the cluster: a deployment configuration, whose instances are made alike. */
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
    shared: SharedServer | null,
  ): Instance;
  /** The server of the tier that instances share, where they do. */
  readonly shared?: SharedServerConfig;
  readonly control: ControlPlane;
  readonly keys: PromptKeys;
  readonly observer?: SimulationObserver;
  /** One for each pool that scales, in order of the pools. */
  readonly scaling?: readonly ScalingSetup[];
  /** Decisions that are taken out of the policies' hands. */
  readonly forced?: ForcedDecisions;
}

// The kinds of events of a simulation and which of them go first at the same time: what comes in before what
// is decided about it, decisions before steps, steps before what follows from them, and changes of the
// cluster last. At equal kind, events of instances go by the instance's number, and the rest in the order in
// which they were scheduled.

export const SimEvent = {
  /** A request reaches the cluster. a: slot, b: 0 from the stream, 1 a follow-up */
  ARRIVAL: 0,
  /** Admission decides. a: row */
  ADMISSION: 1,
  /** Routing decides. a: row */
  ROUTING: 2,
  /** The gateway's queue looks whether it may let requests through. */
  DISPATCH: 3,
  /** A request has passed its instance's queueing time. a: row */
  QUEUED: 4,
  /** A step begins. a: instance */
  STEP: 5,
  /** A request's deadline. a: row */
  TIMEOUT: 6,
  /** A transfer between tiers ends. a: instance, b: flight */
  TRANSFER: 7,
  /**
   * A hand-off: more of its prompt is computed (b: 0), or its KV has come to the decode instance (b: 1). a:
   * row
   */
  HANDOFF: 8,
  /** A request has waited in the gateway's queue as long as it may. a: row */
  EXPIRY: 9,
  /** An autoscaler looks. a: its number */
  SCALE_CHECK: 10,
  /** The time of a replica's phase is up. a: replica, b: number of its autoscaler */
  SCALE_ACTION: 11,
  /** An instance has loaded its model. a: instance */
  INSTANCE_READY: 12,
  /** A decode instance has more room for hand-offs. a: instance */
  ROOM: 13,
  /** A user gives a request up. a: row */
  CANCEL: 14,
} as const;
export type SimEvent = (typeof SimEvent)[keyof typeof SimEvent];

/** Kinds of a HANDOFF event: the prompt or a part of it is computed, or all of its KV has arrived. */
export const HANDOFF_READY = 0;
export const HANDOFF_ARRIVED = 1;

/** Priorities of events by kind: lower goes first. */
export const eventPriorities: readonly number[] = [
  10, 11, 20, 22, 25, 30, 35, 40, 45, 47, 50, 55, 60, 46, 36,
];

//  Who watches a simulation: for traces and tests. Nothing that it does reaches the simulation.

/** One step of an instance. */
export interface StepSpan {
  readonly instance: number;
  readonly startUs: number;
  readonly endUs: number;
  readonly tokens: number;
  readonly decodes: number;
  readonly prefills: number;
  /** Part of the step in which it waits for transfers. */
  readonly transferUs: number;
  /** Keys of requests whose loads, since the step before, brought back blocks that had just gone down. */
  readonly thrashedFor: readonly BlockKeys[];
}

/** An object of the caller that is told what happens in a simulation: arrivals, decisions, steps, ends. */
export interface SimulationObserver {
  step?(record: StepSpan): void;
  arrived?(request: SimRequest, nowUs: number): void;
  admission?(request: SimRequest, decision: AdmissionDecision, nowUs: number): void;
  prioritised?(request: SimRequest, priority: RequestPriority, nowUs: number): void;
  /** `null`: no instance could take it. */
  routing?(request: SimRequest, decision: RoutingDecision | null, nowUs: number): void;
  /** False: `routing` does not read scores and who could take the request. They then cost nothing. Default true. */
  readonly readsScores?: boolean;
  /** It joined the batch of the instance, for the first time or again. */
  joined?(request: SimRequest, instance: number, nowUs: number): void;
  /** It gave its blocks up and waits again. */
  preempted?(request: SimRequest, instance: number, nowUs: number): void;
  /** KV of a request goes on the way to its decode instance. */
  handoffSent?(sent: HandoffSend): void;
  /** The KV of a request has come to its decode instance. */
  handedOff?(handoff: Handoff): void;
  diverged?(divergence: ShadowDivergence): void;
  /**
   * A block can be found from now on in that tier of the instance, HBM 0. `key` is read during the call only.
   */
  stored?(instance: number, tier: number, key: Uint32Array): void;
  /** It can be found there no more. */
  removed?(instance: number, tier: number, key: Uint32Array): void;
  /** A block has come from one tier of the instance to another. Moves that began before the observer was there are left out. */
  moved?(instance: number, move: BlockMove): void;
  /** An autoscaler changes the number of replicas. */
  scaled?(change: ScaleChange): void;
  /** A replica begins a phase of its life. */
  replica?(change: ReplicaChange): void;
  /** `instance` is -1 for a request that none had. */
  ended?(request: SimRequest, status: Status, timeUs: number, instance: number): void;
}

export const readsScores = ({ routing, readsScores: reads = true }: SimulationObserver): boolean =>
  routing !== undefined && reads;

/** Tells several observers of everything. */
export function observers(all: readonly SimulationObserver[]): SimulationObserver {
  checkInputs({ all }, { all: is.list(is.object()) });
  if (all.length === 1) return all[0];
  const tell = <K extends Exclude<keyof SimulationObserver, 'readsScores'>>(
    name: K,
  ): Partial<SimulationObserver> => {
    const told = all.filter((one) => one[name] !== undefined);
    if (told.length === 0) return {};
    const call = (...args: unknown[]): void => {
      for (const one of told) (one[name] as (...args: unknown[]) => void).apply(one, args);
    };
    return { [name]: call };
  };
  return {
    ...tell('step'),
    ...tell('arrived'),
    ...tell('admission'),
    ...tell('prioritised'),
    ...tell('routing'),
    ...tell('joined'),
    ...tell('preempted'),
    ...tell('handoffSent'),
    ...tell('handedOff'),
    ...tell('diverged'),
    ...tell('stored'),
    ...tell('removed'),
    ...tell('moved'),
    ...tell('scaled'),
    ...tell('replica'),
    ...tell('ended'),
    readsScores: all.some(readsScores),
  };
}

// Decisions that are taken out of a policy's hands, by their number: what if request routing number 17 had
// gone to instance 2? The policy decides all the same, so that its random draws stay what they were, and is
// then told what was done.

export interface ForcedDecisions {
  /**
   * Instances by number of the routing decision, 0 for the first of the run: the instance that gets the request, or its
   * output where the policies hand it off; or both instances.
   */
  readonly routing?: ReadonlyMap<number, number | ForcedRouting>;
  /** Forced admissions, by number of the admission decision. */
  readonly admission?: ReadonlyMap<number, 'admit' | 'reject'>;
}

/** @throws TKV_CONFIG for a number that is not a whole number from 0 */
export function checkForced(forced: ForcedDecisions): ForcedDecisions {
  for (const [decision, instance] of forced.routing ?? []) {
    requireInteger('forced.routing', decision, 0);
    const { target = 0, prefillInstance = 0 } = routingOf(instance);
    requireInteger(`forced.routing ${decision}`, target, 0);
    requireInteger(`forced.routing ${decision}.prefillInstance`, prefillInstance, -1);
  }
  for (const decision of forced.admission?.keys() ?? []) requireInteger('forced.admission', decision, 0);
  return forced;
}

function routingOf(forced: number | ForcedRouting): ForcedRouting {
  return typeof forced === 'number' ? { target: forced } : forced;
}

/** The forced part of the routing decision of that number. */
export function forcedRouting({ routing }: ForcedDecisions, decision: number): ForcedRouting | undefined {
  const forced = routing?.get(decision);
  return forced === undefined ? undefined : routingOf(forced);
}

// Seeds: all that a run depends on beside its deployment and its workload's description. Runs of one key are equal to
// the last byte: rows, metrics and decisions.

export interface SimulationKey {
  /** Names the policies with all their parameters: equal names, equal policies. */
  readonly policies: string;
  /** Seed of the requests: their arrivals and contents. */
  readonly workloadSeed: bigint;
  /** Seed of policies that draw: routing, admission. */
  readonly simulationSeed: bigint;
  /** Seed of delays that vary: arrival of machines, time to load. */
  readonly jitterSeed: bigint;
}

/** One seed for everything. */
export function keyOfSeed(seed: bigint, policies: string = ''): SimulationKey {
  return { policies, workloadSeed: seed, simulationSeed: seed, jitterSeed: seed };
}

/** A name for policies that are described by plain data: 16 hexadecimal digits, equal for equal data. */
export function policiesName(...choices: readonly unknown[]): string {
  return fnv1a64(JSON.stringify(choices, plain)).toString(16).padStart(16, '0');
}

export function sameKey(a: SimulationKey, b: SimulationKey): boolean {
  return keyText(a) === keyText(b);
}

/** For messages and files. */
export function keyText({ policies, workloadSeed, simulationSeed, jitterSeed }: SimulationKey): string {
  return `policies ${policies || 'unnamed'}, seeds ${workloadSeed}, ${simulationSeed} and ${jitterSeed}`;
}

/** Fields in order of their names, and what JSON has no form for as text. */
function plain(_name: string, value: unknown): unknown {
  if (typeof value === 'bigint' || value === Infinity) return String(value);
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return value;
  return Object.fromEntries(Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1)));
}
