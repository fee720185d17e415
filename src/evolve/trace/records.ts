/** What a trace records of each decision. Times are simulated microseconds. */

import type { HandoffSend, ReplicaChange } from '../../sim/cluster/index.ts';
import type { ScaleRecord } from '../../sim/report/index.ts';
import type { ClusterContext, EngineContext, RouterContext, TenantContext } from './context.ts';

/** `minimal`: metrics alone. `decisions`: each decision with what was known. `full`: events as well. */
export const traceLevels = ['minimal', 'decisions', 'full'] as const;
export type TraceLevel = (typeof traceLevels)[number];

interface OfRequest {
  readonly timeUs: number;
  readonly requestId: string;
  readonly tenantId: string;
  readonly priorityClass: string;
  readonly inputTokens: number;
}

export interface AdmissionRecord extends OfRequest {
  readonly kind: 'admission';
  /** 0 for the first of the run; a delayed request is decided about again. */
  readonly decision: number;
  readonly verdict: 'admit' | 'reject' | 'delay';
  readonly reason: string;
  readonly durationUs: number;
  readonly routerState: RouterContext;
  readonly tenantState: TenantContext;
  readonly cluster: ClusterContext;
}

export interface PriorityRecord extends OfRequest {
  readonly kind: 'priority';
  readonly score: number;
  readonly rank: number;
  readonly routerState: RouterContext;
  readonly tenantState: TenantContext;
}

/** An instance as the router saw it. */
export interface InstanceState {
  readonly instance: number;
  readonly queueDepth: number;
  readonly batchSize: number;
  readonly inFlight: number;
  readonly kvUtilization: number;
  readonly reportAgeUs: number;
  /** What the policy gave it; null for a policy that does not score. */
  readonly score: number | null;
}

export interface RoutingRecord extends OfRequest {
  readonly kind: 'routing';
  /** 0 for the first of the run: the number under which it can be forced. */
  readonly decision: number;
  /** First block of the prompt, 16 hexadecimal digits; '' for a prompt without a full block. */
  readonly prefixHash: string;
  readonly instances: readonly InstanceState[];
  readonly routerState: RouterContext;
  readonly tenantState: TenantContext;
  /** -1 where none could take it. */
  readonly chosenInstance: number;
  /** Numbers of the instances that could have been chosen, by role, model and state; none where none could. */
  readonly couldTake: readonly number[];
  readonly reason: string;
  /** The best three others, the best first: by score, or where the policy does not score by load. */
  readonly topKCandidates: readonly { readonly instance: number; readonly score: number }[];
  /** By the router's shadow, or what instances told it. */
  readonly expectedBlocks: number;
  readonly expectedCacheHit: boolean;
  // what came of it; -1 where it never came to that
  actualTtftUs: number;
  actualE2eUs: number;
  cachedBlocks: number;
  cacheHit: boolean;
  /**
   * The slowest tier that blocks of the prompt were found in where it computes, as it was routed; '' for
   * none.
   */
  readonly cacheTier: string;
  /** How much sooner it would have ended on the best other instance; -1 where that was not tried. */
  regretMs: number;
}

/** A request joined the batch of an instance. */
export interface BatchRecord extends OfRequest {
  readonly kind: 'batch';
  readonly instance: number;
  /** By which it joined, lower first, where the instance scheduler of a bundle ranks; else null. */
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

export interface PreemptionRecord extends OfRequest {
  readonly kind: 'preemption';
  readonly instance: number;
  /** By which it gave way, higher first, where the instance scheduler of a bundle ranks; else null. */
  readonly rank: number | null;
  /** How often it has given way so far, this time included. */
  readonly preemptions: number;
  /** When the step that it gave way to was formed: it waits again. */
  readonly batch: EngineContext;
}

/** A replica of a configuration begins a phase of its life. */
export interface ReplicaRecord extends ReplicaChange {
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
  readonly offloadedBlocks: number;
  readonly reloadedBlocks: number;
  /** Of the reloads, those that came soon after the block's own offload. */
  readonly thrashedBlocks: number;
  readonly transferUs: number;
  /**
   * Blocks that have arrived since the last record, at most 16 in the order in which they did. One that is
   * counted here may arrive later.
   */
  readonly blocks: readonly MovedBlock[];
}

/** Blocks of a prompt that go from a prefill to a decode instance together. */
export interface HandoffTransferRecord extends Omit<HandoffSend, 'request' | 'sentUs'> {
  readonly kind: 'handoff_transfer';
  /** When they were given to the link. */
  readonly timeUs: number;
  readonly requestId: string;
}

/** All KV of a request has come to its decode instance, which owns it from now on. */
export interface HandoffRecord {
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

export interface DivergenceRecord {
  readonly kind: 'shadow_divergence';
  readonly timeUs: number;
  readonly requestId: string;
  readonly instance: number;
  readonly expectedBlocks: number;
  readonly actualBlocks: number;
}

/** At the level `full`. */
export interface EventRecord {
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
