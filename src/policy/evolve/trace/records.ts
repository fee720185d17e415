/** Records of a trace: each decision with the facts that it was made on. Times are simulated microseconds. */

import { TOP } from '../../../runtime/tier/tier.ts';
import type { HandoffSend } from '../../../sim/cluster/handoffs.ts';
import type { ReplicaChange } from '../../../sim/cluster/scaling.ts';
import { kvUtilization } from '../../../sim/control/admission.ts';
import type { ControlPlane } from '../../../sim/control/controlPlane.ts';
import type { CandidateScore } from '../../../sim/control/policy.ts';
import type { Instance } from '../../../sim/instance/instance.ts';
import type { ScaleRecord } from '../../../sim/report/scaling.ts';

/** `minimal`: metrics alone. `decisions`: each decision with its facts. `full`: events as well. */
export const traceLevels = ['minimal', 'decisions', 'full'] as const;
export type TraceLevel = (typeof traceLevels)[number];

interface OfRequest {
  readonly timeUs: number;
  readonly requestId: string;
  readonly tenantId: string;
  readonly priorityClass: string;
  readonly inputTokens: number;
}

interface AdmissionRecord extends OfRequest {
  readonly kind: 'admission';
  /** Number of the decision, from 0 on. A delayed request gets another decision later. */
  readonly decision: number;
  readonly verdict: 'admit' | 'reject' | 'delay';
  readonly reason: string;
  readonly durationUs: number;
  readonly routerState: RouterContext;
  readonly tenantState: TenantContext;
  readonly cluster: ClusterContext;
}

interface PriorityRecord extends OfRequest {
  readonly kind: 'priority';
  readonly score: number;
  readonly rank: number;
  readonly routerState: RouterContext;
  readonly tenantState: TenantContext;
}

/** An instance as the router saw it. */
interface InstanceState {
  readonly instance: number;
  readonly queueDepth: number;
  readonly batchSize: number;
  readonly inFlight: number;
  readonly kvUtilization: number;
  readonly reportAgeUs: number;
  /** Score by the policy; null for a policy that does not score. */
  readonly score: number | null;
}

export interface RoutingRecord extends OfRequest {
  readonly kind: 'routing';
  /** Number of the decision, from 0 on, by which it can be forced. */
  readonly decision: number;
  /** First block of the prompt, 16 hexadecimal digits; '' for a prompt without a full block. */
  readonly prefixHash: string;
  readonly instances: readonly InstanceState[];
  readonly routerState: RouterContext;
  readonly tenantState: TenantContext;
  /** Number of the instance; -1 where all were unable to take it. */
  readonly chosenInstance: number;
  /** Numbers of the instances that could have been chosen, by role, model and state. */
  readonly couldTake: readonly number[];
  readonly reason: string;
  /** The best three other instances, the best first: by score, or by load where the policy does not score. */
  readonly topKCandidates: readonly { readonly instance: number; readonly score: number }[];
  /** Blocks that the router expects: by its shadow, or by reports of instances. */
  readonly expectedBlocks: number;
  readonly expectedCacheHit: boolean;
  // the outcome; -1 for an event that never came
  actualTtftUs: number;
  actualE2eUs: number;
  cachedBlocks: number;
  cacheHit: boolean;
  /** The slowest tier with blocks of the prompt, on the instance that computes it, at the time of routing; '' for none. */
  readonly cacheTier: string;
  /** Milliseconds by which it would have ended sooner on the best other instance; -1 where that was not tried. */
  regretMs: number;
}

/** A request joined the batch of an instance. */
interface BatchRecord extends OfRequest {
  readonly kind: 'batch';
  readonly instance: number;
  /** Its rank, lower first, where the instance scheduler of a bundle ranks; else null. */
  readonly rank: number | null;
  readonly cachedBlocks: number;
  /** Requests that wait there still, by what the router knows. */
  readonly waiting: number;
  /** When the step that it joined was formed, with the tokens and requests that this step computes. */
  readonly batch: EngineContext & {
    readonly tokens: number;
    readonly decodes: number;
    readonly prefills: number;
  };
}

interface PreemptionRecord extends OfRequest {
  readonly kind: 'preemption';
  readonly instance: number;
  /** Its rank, higher gives way first, where the instance scheduler of a bundle ranks; else null. */
  readonly rank: number | null;
  /** Number of times that it has given way, this time included. */
  readonly preemptions: number;
  /** When the step that it gave way to was formed: it waits again. */
  readonly batch: EngineContext;
}

/** A replica of a configuration begins a phase of its life. */
interface ReplicaRecord extends ReplicaChange {
  readonly kind: 'replica';
}

/** A block that came to a tier. */
export interface MovedBlock {
  /** 16 hexadecimal digits of its key. */
  readonly block: string;
  readonly fromTier: string;
  readonly toTier: string;
}

/** Blocks that an instance moved between two of its steps. */
export interface TransferRecord {
  readonly kind: 'transfer';
  readonly timeUs: number;
  readonly instance: number;
  /** Blocks sent to a lower tier. */
  readonly offloadedBlocks: number;
  readonly reloadedBlocks: number;
  /** Reloads that came soon after the block's own offload. */
  readonly thrashedBlocks: number;
  readonly transferUs: number;
  /**
   * Blocks that arrived since the last record, at most 16, in the order of their arrival. A block that is counted here
   * may arrive later.
   */
  readonly blocks: readonly MovedBlock[];
}

/** Blocks of a prompt that go from a prefill to a decode instance together. */
interface HandoffTransferRecord extends Omit<HandoffSend, 'request' | 'sentUs'> {
  readonly kind: 'handoff_transfer';
  /** When they were given to the link. */
  readonly timeUs: number;
  readonly requestId: string;
}

/** All KV of a request has come to its decode instance, which owns it from now on. */
interface HandoffRecord {
  readonly kind: 'handoff';
  readonly timeUs: number;
  readonly requestId: string;
  readonly from: number;
  readonly to: number;
  readonly blocks: number;
  readonly bytes: number;
  readonly transfers: number;
  /** When the prompt was computed, room was asked for, and the first transfer could begin. */
  readonly readyUs: number;
  readonly askedUs: number;
  readonly startUs: number;
}

interface DivergenceRecord {
  readonly kind: 'shadow_divergence';
  readonly timeUs: number;
  readonly requestId: string;
  readonly instance: number;
  readonly expectedBlocks: number;
  readonly actualBlocks: number;
}

/** At the level `full`. */
interface EventRecord {
  readonly kind: 'arrived' | 'step' | 'ended';
  readonly timeUs: number;
  readonly [field: string]: number | string;
}

export type TraceRecord =
  | AdmissionRecord
  | PriorityRecord
  | RoutingRecord
  | BatchRecord
  | PreemptionRecord
  | ScaleRecord
  | ReplicaRecord
  | TransferRecord
  | HandoffTransferRecord
  | HandoffRecord
  | DivergenceRecord
  | EventRecord;

// Facts of a decision, as its record has them: of the router, the tenant, an instance.

/** Others that a routing record names. */
const CANDIDATES = 3;

/** The whole traffic as the router counts it, before the decision. */
interface RouterContext {
  /** Requests routed and not ended. */
  readonly inFlight: number;
  /** Requests that arrived and were not routed, rejected or put out, with the request of the decision. */
  readonly pending: number;
  /** Completions and arrivals a second over the window. */
  readonly throughput: number;
  readonly requestRate: number;
}

/** The request's tenant as the router counts it, before the decision. */
interface TenantContext {
  /** Requests that arrived since the start, with the request of the decision. */
  readonly requestCount: number;
  /** Requests routed and not ended. */
  readonly activeRequests: number;
  /** Arrivals a second over the window. */
  readonly recentRate: number;
  readonly burstDetected: boolean;
}

/** All instances together, as old as their last reports. */
interface ClusterContext {
  readonly instances: number;
  /** Requests over all of them. */
  readonly queueDepth: number;
  readonly batchSize: number;
  /** Mean of them, of HBM; 0 without an instance. */
  readonly kvUtilization: number;
}

/** An instance as it is when its step is formed. */
interface EngineContext {
  /** Requests outside the batch, and in it. */
  readonly queueDepth: number;
  readonly batchSize: number;
  /** Share of HBM that requests hold. */
  readonly kvUtilization: number;
}

/** @param routed whether the router counts the request as routed by now; at the decision it did not */
export function routerContext({ router }: ControlPlane, routed: boolean): RouterContext {
  const { inFlight, pending, throughput, requestRate } = router.global;
  const one = routed ? 1 : 0;
  return { inFlight: inFlight - one, pending: pending + one, throughput, requestRate };
}

/** @param routed whether the router counts the request as routed by now */
export function tenantContext({ router }: ControlPlane, tenantId: string, routed: boolean): TenantContext {
  const { requestCount, activeRequests, recentRate, burstDetected } = router.tenant(tenantId);
  return { requestCount, activeRequests: activeRequests - (routed ? 1 : 0), recentRate, burstDetected };
}

export function clusterContext(control: ControlPlane, nowUs: number): ClusterContext {
  const { instances } = control.cluster(nowUs);
  const sum = (of: (each: (typeof instances)[number]) => number): number =>
    instances.reduce((total, each) => total + of(each), 0);
  return {
    instances: instances.length,
    queueDepth: sum(({ queueDepth }) => queueDepth),
    batchSize: sum(({ batchSize }) => batchSize),
    kvUtilization: sum(kvUtilization) / Math.max(1, instances.length),
  };
}

export function engineContext({ engine }: Instance): EngineContext {
  const { usedBlocks, capacityBlocks } = engine.tiers()[TOP];
  return {
    queueDepth: engine.waitingCount,
    batchSize: engine.runningCount,
    kvUtilization: usedBlocks / capacityBlocks,
  };
}

/** The best others by score, the best first; ties to the lowest instance. Instances that a filter removed are left out. */
export function bestOthers(
  scores: readonly CandidateScore[],
  target: number,
): { readonly instance: number; readonly score: number }[] {
  return scores
    .filter(({ instance, score }) => instance !== target && score !== -Infinity)
    .sort((a, b) => b.score - a.score || a.instance - b.instance)
    .slice(0, CANDIDATES)
    .map(({ instance, score }) => ({ instance, score }));
}
