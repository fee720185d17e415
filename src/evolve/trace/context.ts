/** What was known where a decision was made, as its record has it: of the router, the tenant, an instance. */

import { type CandidateScore, type ControlPlane, kvUtilization } from '../../sim/control/index.ts';
import type { Instance } from '../../sim/instance/index.ts';

/** Others that a routing record names. */
const CANDIDATES = 3;
const HBM = 0;

/** The whole traffic as the router counts it, before the decision. */
export interface RouterContext {
  /** Requests routed and not ended. */
  readonly inFlight: number;
  /** Requests that arrived and were not routed, rejected or put out; the one decided about is one of them. */
  readonly pending: number;
  /** Completions and arrivals a second over the window. */
  readonly throughput: number;
  readonly requestRate: number;
}

/** The request's tenant as the router counts it, before the decision. */
export interface TenantContext {
  /** Requests that arrived since the start, the one decided about included. */
  readonly requestCount: number;
  /** Requests routed and not ended. */
  readonly activeRequests: number;
  /** Arrivals a second over the window. */
  readonly recentRate: number;
  readonly burstDetected: boolean;
}

/** All instances together, as old as their last reports. */
export interface ClusterContext {
  readonly instances: number;
  /** Requests over all of them. */
  readonly queueDepth: number;
  readonly batchSize: number;
  /** Mean of them, of HBM; 0 without an instance. */
  readonly kvUtilization: number;
}

/** An instance as it is when its step is formed. */
export interface EngineContext {
  /** Requests outside the batch, and in it. */
  readonly queueDepth: number;
  readonly batchSize: number;
  /** Share of HBM that requests hold. */
  readonly kvUtilization: number;
}

/** @param routed whether the request is counted as routed by now, and was not when it was decided about */
export function routerContext({ router }: ControlPlane, routed: boolean): RouterContext {
  const { inFlight, pending, throughput, requestRate } = router.global;
  const one = routed ? 1 : 0;
  return { inFlight: inFlight - one, pending: pending + one, throughput, requestRate };
}

/** @param routed as above */
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
  const { usedBlocks, capacityBlocks } = engine.tiers()[HBM];
  return {
    queueDepth: engine.waitingCount,
    batchSize: engine.runningCount,
    kvUtilization: usedBlocks / capacityBlocks,
  };
}

/** The best others by score, the best first; ties to the lowest instance. Those filtered out are none. */
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
