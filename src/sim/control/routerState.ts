/**
 * What the router itself knows: tenants, the whole traffic, windows of history, and two views of where KV
 * lies. The observed view is right but old; the shadow is predicted from what the router saw. Nothing
 * reconciles the two: a policy takes which it wants, and their difference is counted.
 */

import type { RequestView } from './request.ts';

export interface TenantState {
  readonly tenantId: string;
  /** SLO class of its last request. */
  readonly sloClass: string;
  /** Requests that arrived since the start. */
  readonly requestCount: number;
  /** Requests that were routed and have not ended. */
  readonly activeRequests: number;
  readonly admitted: number;
  readonly rejected: number;
  /** Arrivals a second over the window. */
  readonly recentRate: number;
  /** Whether the rate of the last tenth of the window is a multiple of the whole window's. */
  readonly burstDetected: boolean;
  /** Generated tokens of completed requests. */
  readonly outputTokens: number;
}

export interface GlobalRouterMetrics {
  /** Requests routed and not ended. */
  readonly inFlight: number;
  /** Requests that arrived and were not routed, rejected or put out: delayed, or in the gateway's queue. */
  readonly pending: number;
  /** Completions a second over the window. */
  readonly throughput: number;
  /** Arrivals a second over the window. */
  readonly requestRate: number;
}

/** One point of history: what happened in `[startUs, startUs + widthUs)`. */
export interface HistoryPoint {
  readonly startUs: number;
  readonly arrivals: number;
  readonly admitted: number;
  readonly rejected: number;
  readonly completions: number;
  readonly promptTokens: number;
}

/** Where the leading blocks of a prompt lie on one instance. */
export interface PrefixPlace {
  /** Leading blocks found in any tier, each in the fastest that holds it. */
  readonly blocks: number;
  /** Of these, by tier, HBM first. */
  readonly byTier: readonly number[];
}

/** A view of which blocks instances hold, by whatever means it knows. */
export interface PrefixView {
  /** Leading blocks of the prompt that the instance holds in HBM. */
  hbmBlocks(request: RequestView, instance: number): number;
  /** The same in any tier. */
  place(request: RequestView, instance: number): PrefixPlace;
}

/** The router's prediction of an instance's cache. */
export interface ShadowView extends PrefixView {
  readonly model: ShadowName;
  /** Predicted share of the tier that is in use. */
  utilization(instance: number, tier: number): number;
  /** Blocks that the shadow believes to be there. */
  blocks(instance: number, tier: number): number;
  /** Keys, as hexadecimal digits, that it expects to be evicted next from the tier, the next one first. */
  evictionQueue(instance: number, tier: number, most: number): readonly string[];
}

export const shadowNames = ['none', 'approximate', 'events', 'speculative'] as const;
export type ShadowName = (typeof shadowNames)[number];

export interface RouterState {
  readonly nowUs: number;
  /** A tenant that has not been seen is all zeros. */
  tenant(tenantId: string): TenantState;
  readonly tenants: readonly TenantState[];
  readonly global: GlobalRouterMetrics;
  /** Complete windows, the newest last. */
  readonly history: readonly HistoryPoint[];
  /** Where KV lies as instances told it, as old as the cache signal. */
  readonly observedKv: PrefixView;
  /** Null where no shadow is kept. */
  readonly shadowKv: ShadowView | null;
}
