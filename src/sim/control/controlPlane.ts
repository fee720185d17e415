/**
 * The control plane as the cluster drives it: one object with one call for each thing that happens. It keeps
 * no clock and schedules no events; every call says when it is.
 *
 *     arrived -> admit -> (gateway) -> route -> scheduled -> firstToken -> ended
 *
 * Routing takes no simulated time of its own. Each `route` that named an instance has one `ended`, also when
 * the request is turned away there; a hand-off has `ended` with `handedOff` for the prefill instance before
 * it, and any other end counts for both.
 */

import type { Stateful } from '../../runtime/snapshot.ts';
import type { FlowControl } from './flowControl.ts';
import type {
  AdmissionDecision,
  ClusterState,
  ForcedRouting,
  InstanceProbe,
  PolicyChoice,
  RequestPriority,
  RequestView,
  RoutingDecision,
  Stay,
} from './policy.ts';
import type { RouterState, ShadowName } from './routerState.ts';

/** How old the router's signals are; 0 reads them at each decision. Upstream's default is 50,000 for both. */
export interface SignalConfig {
  /** Age of queue depth, batch size, KV utilisation and the other reports of instances. */
  readonly snapshotIntervalUs: number;
  /** Age of the report of blocks that instances hold. */
  readonly cacheSignalUs: number;
}

export interface ShadowConfig {
  readonly model: ShadowName;
  /** Most blocks that the shadow remembers of an instance; 0 for as many as the instance's tiers hold. */
  readonly blocks: number;
  /** From an event until the router knows of it. */
  readonly eventDelayUs: number;
  /** How long blocks of a routed request are believed in without an event, with `speculative`. */
  readonly speculativeTtlUs: number;
}

export interface HistoryConfig {
  readonly windowUs: number;
  /** Windows that are kept. */
  readonly windows: number;
  /** A tenant bursts when its rate over the last tenth of the window is above this many times its rate over the whole window. */
  readonly burstFactor: number;
}

/** The control plane by the names of its policies: admission, priority, routing, and signals. */
export interface ControlConfig {
  readonly admission: PolicyChoice;
  readonly priority: PolicyChoice;
  readonly routing: PolicyChoice;
  /** For the pools of a prefill/decode deployment; `routing` where they are left out. */
  readonly prefillRouting?: PolicyChoice;
  readonly decodeRouting?: PolicyChoice;
  readonly decider: PolicyChoice;
  /** Null for no gateway queue. */
  readonly gateway: PolicyChoice | null;
  readonly signals: SignalConfig;
  readonly shadow: ShadowConfig;
  readonly history: HistoryConfig;
  /** Candidates in a decision's record beside the chosen one; -1 leaves out scores as well. */
  readonly topK: number;
}

/** The verdict on a request at admission, in place of the policy's. */
export type ForcedAdmission = AdmissionDecision['verdict'];

/** How a request left an instance. */
export type EndKind = 'completed' | 'handedOff' | 'dropped' | 'timedOut' | 'evicted' | 'redirected';

export interface ShadowDivergence {
  readonly timeUs: number;
  readonly request: number;
  readonly instance: number;
  readonly expectedBlocks: number;
  readonly actualBlocks: number;
}

export interface ControlCounters {
  arrived: number;
  admitted: number;
  rejected: number;
  delayed: number;
  routed: number;
  unroutable: number;
  disaggregated: number;
  /** Requests whose prefix was not where the shadow had it: it expected more blocks, or fewer, than there. */
  shadowOverestimates: number;
  shadowUnderestimates: number;
  /** Requests for which the shadow was asked and the truth is known. */
  shadowChecks: number;
}

export interface ControlPlane extends Stateful {
  /** Another one of the same policies that has seen nothing. */
  fresh(): ControlPlane;

  readonly router: RouterState;
  readonly gateway: FlowControl | null;
  /** Whether it is of use to call `kvStored` and `kvRemoved`. */
  readonly wantsCacheEvents: boolean;
  readonly counters: Readonly<ControlCounters>;
  /** Whether decisions name the scores of all candidates, as far as `topK` says; false where they are not read. */
  recordsScores: boolean;
  /** Whether any router goes by what instances report. */
  readonly routesByReports: boolean;

  /** Instances get their numbers from the probe; a number is never used again. */
  addInstance(probe: InstanceProbe, nowUs: number): void;
  /** Whether it may get new requests; a new one may not until it is said. */
  setRoutable(instance: number, routable: boolean): void;
  removeInstance(instance: number): void;
  /** The routable instances, with signals brought up to date as far as they are due. */
  cluster(nowUs: number): ClusterState;

  /** How full the instances are by the gateway's detector; 0 without a gateway. */
  saturation(nowUs: number): number;

  arrived(request: RequestView, nowUs: number): void;
  /** @param forced what is done, whatever the policy would do */
  admit(request: RequestView, nowUs: number, forced?: ForcedAdmission): AdmissionDecision;
  prioritise(request: RequestView, nowUs: number): RequestPriority;
  /**
   * @param forced what is done, whatever the policies would choose
   * @param stay for a request that is routed again: it stays in its configurations, and with its hand-off,
   * as long as an instance of them is routable
   * @returns null when no instance can take it
   * @throws TKV_INPUT when a forced one cannot
   */
  route(
    request: RequestView,
    priority: RequestPriority,
    nowUs: number,
    forced?: ForcedRouting,
    stay?: Stay,
  ): RoutingDecision | null;
  /**
   * Moves a request that was to go on at `from`, once its prompt has come there, to another instance of that
   * configuration.
   * @returns that instance; -1, with nothing changed, when none is routable
   */
  rehome(
    request: RequestView,
    priority: RequestPriority,
    from: number,
    configId: string,
    nowUs: number,
  ): number;

  /**
   * The request joined the batch of the instance for the first time.
   * @param cachedBlocks blocks that it found there
   * @returns how the shadow was wrong, or null
   */
  scheduled(
    request: RequestView,
    instance: number,
    cachedBlocks: number,
    nowUs: number,
  ): ShadowDivergence | null;
  firstToken(request: RequestView, instance: number, nowUs: number): void;
  /** The request was routed there and is there no more. */
  ended(request: RequestView, instance: number, how: EndKind, outputTokens: number, nowUs: number): void;
  /** A request that was never routed is given up: rejected or expired at the gateway, or timed out there. */
  abandoned(request: RequestView, nowUs: number): void;

  /**
   * An instance published a block in the tier at that position, HBM at 0, or lost it: what the manager's
   * listener is told. `key` is read during the call only.
   */
  kvStored(instance: number, tier: number, key: Uint32Array, nowUs: number): void;
  kvRemoved(instance: number, tier: number, key: Uint32Array, nowUs: number): void;
}
