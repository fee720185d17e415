/**
 * A policy is plain data: its name, its parameters, and a state that can be written down, so that a run can
 * be named, forked and repeated. It sees no clock but the time it is told, and no chance but the streams it
 * is given.
 */

import type { BlockKeys } from '../../runtime/keys/keyChain.ts';
import type { Stateful, StateVisitor } from '../../runtime/snapshot.ts';
import type { GoRandom } from '../random/goRand.ts';
import type { SourceState } from '../random/laggedFibonacci.ts';

export type ParameterValue = number | string | boolean | Readonly<Record<string, number>>;

/** A policy by name, with parameters; the ones left out take their defaults. */
export interface PolicyChoice {
  readonly policy: string;
  readonly [parameter: string]: ParameterValue;
}

/** Facts and tools that policies are made with. */
export interface PolicyWorld {
  /**
   * A random stream of that name under the simulation's key, for its owner alone: each call gives another
   * object, at the start of the stream.
   */
  stream(name: string): GoRandom;
  /** Tokens of a block. */
  readonly blockTokens: number;
  /** Most requests in the batch of an instance. */
  readonly maxSequences: number;
}

/** Plain data that can be cloned. */
export type PlainState =
  | null
  | boolean
  | number
  | string
  | Float64Array
  | Int32Array
  | Uint32Array
  | SourceState
  | readonly PlainState[]
  | { readonly [key: string]: PlainState };

/** State of a bundle's program: its image is plain data, and policies show it to a visitor as one value. */
export interface SnapshotState {
  /** The program's memory as of now, independent of later calls; null for a program without memory. */
  snapshot(): PlainState;
  /** Goes on from what `snapshot` of an instance of the same program gave. */
  restore(state: PlainState): void;
}

export interface NamedPolicy extends Stateful {
  readonly name: string;
  /** Told of each routed request as it ends; what a policy learns from outcomes, it learns here. */
  completed?(outcome: RequestOutcome): void;
}

/** Shows the image of a program to a visitor. */
export function visitProgram(visitor: StateVisitor, program: SnapshotState): void {
  visitor.value<PlainState>(
    () => program.snapshot(),
    (saved) => program.restore(saved),
  );
}

/** Shows the place of a random stream to a visitor. */
export function visitStream(visitor: StateVisitor, stream: GoRandom): void {
  visitor.value(
    () => stream.snapshot(),
    (saved) => stream.restore(saved),
  );
}

/** The number of a name that a client chose; undefined for names that only the object's prototype has, as `constructor`. */
export function ownNumber(numbers: Readonly<Record<string, number>>, name: string): number | undefined {
  return Object.hasOwn(numbers, name) ? numbers[name] : undefined;
}

/** The state of a policy without memory. */
export const noMemory: Stateful = { visitState: () => {} };

/** A policy whose decisions depend on nothing that it saw before. */
export abstract class StatelessPolicy {
  visitState(): void {}
}

// Answers of the stages of the control plane, one after the other.

/** Admission's answer to a request. A delayed one comes to admission again after `durationUs`. */
export type AdmissionDecision = (
  | { readonly verdict: 'admit' }
  | { readonly verdict: 'reject'; readonly reason: string }
  | { readonly verdict: 'delay'; readonly durationUs: number; readonly reason: string }
) & {
  /** The policy's own decision, where another one was forced. */
  readonly wished?: AdmissionDecision;
};

export const ADMIT: AdmissionDecision = { verdict: 'admit' };

interface PriorityHints {
  /** Whether admission and gateway may turn it away under load. */
  readonly sheddable: boolean;
  /** When its first token should be there, absolute in microseconds; 0 for no target. */
  readonly dueUs: number;
}

export interface RequestPriority {
  /** Higher is more urgent. */
  readonly score: number;
  /** Priority that the instance's scheduler is told, a whole number: lower is more urgent. */
  readonly rank: number;
  readonly hints: PriorityHints;
}

export interface CandidateScore {
  readonly instance: number;
  readonly id: string;
  readonly score: number;
  /** The weighted parts of the score, by scorer. Empty for policies that do not add up scores. */
  readonly scoreBreakdown: Readonly<Record<string, number>>;
}

export interface FilteredOut {
  readonly instance: number;
  readonly id: string;
  readonly filter: string;
}

/** A routing decision that is taken out of the policies' hands, or a part of it. */
export interface ForcedRouting {
  /** The instance that gets the request, or its output. Default: what the policy chooses. */
  readonly target?: number;
  /** The instance that computes the prompt for it, -1 for no hand-off. Default: what the policies choose. */
  readonly prefillInstance?: number;
}

/** The configurations that a request was routed to before, and stays in when it is routed again. */
export interface Stay {
  readonly target: string;
  /** The instance that was to compute its prompt for another one; '' without a hand-off. */
  readonly prefill: string;
}

export interface RoutingDecision {
  /** Number of the instance that the request runs on; with a hand-off the one that decodes. */
  readonly target: number;
  /** The policy's choice; it differs from `target` only where that was forced. */
  readonly wished: number;
  /** Where its prompt is computed, -1 where that is `target`. */
  readonly prefillInstance: number;
  /** Where it goes on after a hand-off, -1 without one. */
  readonly decodeInstance: number;
  readonly reason: string;
  /** Scores by instance, in order of their numbers; empty where details are not asked for. */
  readonly scores: readonly CandidateScore[];
  readonly filteredOut: readonly FilteredOut[];
  /** The best others, the best first; ties to the lowest instance. */
  readonly topKCandidates: readonly CandidateScore[];
  /** Leading blocks that the router believed to be cached where the prompt is computed. */
  readonly expectedBlocks: number;
  /** Instances that could have been `target`: of the model and role, routable. Empty where details are not asked for. */
  readonly couldTake: readonly number[];
}

// The control plane's view of instances. A snapshot is written by the `SignalBoard` alone; policies read it. Each
// signal is as old as its group says: counts that the router keeps itself are always fresh, reports of instances are as
// old as the last one.

export type Role = 'monolithic' | 'prefill' | 'decode';

/** Seen of one tier of an instance, HBM first. Shares lie in [0, 1]. */
export interface ObservedTier {
  readonly capacityBlocks: number;
  /** Blocks that requests hold; in lower tiers all blocks that hold anything. */
  readonly usedBlocks: number;
  /** Free or evictable. */
  readonly freeBlocks: number;
  /** used / capacity. */
  readonly utilization: number;
}

/** The KV cache of an instance as it reports it: right when it was read, and coarse. */
interface ObservedKV {
  readonly tiers: readonly ObservedTier[];
  /** Hits over lookups in blocks since the start. */
  readonly cacheHitRate: number;
  /** Blocks a second down and up a tier, between the last two reports. */
  readonly offloadRate: number;
  readonly reloadRate: number;
}

export interface InstanceSnapshot {
  /** Place in the cluster from 0. Ties between instances go to the lowest. */
  readonly instance: number;
  readonly id: string;
  readonly role: Role;
  readonly model: string;
  readonly configId: string;

  /** Reported: requests that wait in the instance's queue, and requests in its batch. */
  readonly queueDepth: number;
  readonly batchSize: number;
  /** Reported: preemptions since the start. */
  readonly preemptions: number;
  /** Reported. */
  readonly kv: ObservedKV;
  /** Reported: mean of the recent requests in microseconds, 0 before the first. */
  readonly recentTtftUs: number;
  readonly recentTpotUs: number;
  /** Reported: batch slots that are free. */
  readonly availableCapacity: number;
  /** Reported: adapters in its memory. */
  readonly adapters: readonly string[];
  /** When the reported signals were read; 0 before the first report, when all of them are 0. */
  readonly reportedUs: number;

  /** Fresh: requests that the router sent there and that have not ended. */
  readonly inFlight: number;
  /** Fresh: uncached prompt tokens of the requests in flight that have no first token yet. */
  readonly inFlightTokens: number;
}

/** `queueDepth + batchSize + inFlight`, upstream's load of an instance; a request in flight counts twice. */
export function effectiveLoad(instance: InstanceSnapshot): number {
  return instance.queueDepth + instance.batchSize + instance.inFlight;
}

/**
 * Expected wait for the batch in microseconds: queued requests times the recent time to the first token, over
 * the requests in the batch. Coarse on purpose: it is made of reported signals only.
 */
export function estimatedWaitUs(instance: InstanceSnapshot): number {
  return (instance.queueDepth * instance.recentTtftUs) / Math.max(1, instance.batchSize);
}

/** All instances that could take a request now, in order of their numbers. */
export interface ClusterState {
  readonly nowUs: number;
  readonly instances: readonly InstanceSnapshot[];
}

/**
 * Reads one instance, when a report of it is due. The cluster implements it for its instances, and the gateway for
 * real servers.
 */
export interface InstanceProbe {
  readonly instance: number;
  readonly id: string;
  readonly role: Role;
  readonly model: string;
  readonly configId: string;
  /** Blocks of each tier, HBM first. */
  readonly capacityBlocks: readonly number[];
  /** Grows with whatever changes a report. Left out, or -1, where changes are not counted: then each report is new. */
  changes?(): number;
  /**
   * When the figures that it reports were taken, and the same until newer ones have come. Left out where they are
   * taken in the moment they are asked for, as in a simulation.
   */
  takenUs?(): number;
  /** Fills in what the instance knows of itself now. */
  report(into: InstanceReport): void;
}

/** The raw figures of a report; counters count since the start of the instance. */
export interface InstanceReport {
  queueDepth: number;
  batchSize: number;
  maxBatch: number;
  preemptions: number;
  /** Used blocks by tier, HBM first. */
  usedBlocks: number[];
  freeBlocks: number[];
  hitBlocks: number;
  lookupBlocks: number;
  /** Blocks sent to a lower tier, and back to the top one. */
  offloadedBlocks: number;
  reloadedBlocks: number;
  recentTtftUs: number;
  recentTpotUs: number;
  adapters: readonly string[];
}

// The control plane's view of a request. The number of tokens that it will generate is left out: a policy that reads it
// would be an oracle.

export interface RequestView {
  /** Unique in the simulation, from 0 in order of arrival. */
  readonly number: number;
  readonly id: string;
  readonly tenantId: string;
  /** `critical`, `standard`, `batch`, `sheddable`, `background`, another name, or '' for none. */
  readonly sloClass: string;
  readonly model: string;
  /** LoRA adapter, '' for none. */
  readonly adapter: string;
  /** '' for none. */
  readonly sessionId: string;
  readonly arrivalUs: number;
  readonly promptTokens: number;
  /** Absolute, 0 for none. */
  readonly deadlineUs: number;
  /** Time to the first token that the request asks for in microseconds, 0 for none. */
  readonly sloTargetUs: number;
  /** Full blocks of the prompt. */
  readonly promptBlocks: number;
  /**
   * Keys of the blocks in order; the first `promptBlocks` of them are the prompt's, and policies read no
   * more. May be a getter that makes them when they are first asked for.
   */
  readonly keys: BlockKeys;
}

// The end of a routed request, for policies that learn from it.

export interface RequestOutcome {
  readonly request: RequestView;
  /** Where it ended. */
  readonly instance: number;
  /** False for one that was lost, timed out, or could not be served. */
  readonly completed: boolean;
  readonly outputTokens: number;
  /** From arrival to the step that gave its first token, -1 where none did. */
  readonly ttftUs: number;
  /** From arrival to the step in which it ended. */
  readonly e2eUs: number;
  readonly nowUs: number;
}

//  Times that the router predicts from its own counts and from reports; what llm-d's latency rules go by.

/** Prompt tokens a second of one instance that was not measured: llm-d's figure. */
export const PREFILL_TOKENS_PER_S = 15_928;

/**
 * Time to the first token of a request with `uncachedTokens`: they and the uncached tokens that the
 * router sent there and that had no first token yet, over the rate of prefill. Fresh.
 */
export function predictedTtftUs(
  instance: InstanceSnapshot,
  uncachedTokens: number,
  tokensPerS: number,
): number {
  return ((instance.inFlightTokens + uncachedTokens) * 1e6) / tokensPerS;
}

/** Time between its tokens: what the instance reported of recent requests, 0 before the first. */
function predictedTpotUs(instance: InstanceSnapshot): number {
  return instance.recentTpotUs;
}

export interface LatencyTargets {
  /** Target of a request that brings none; 0 for no target. */
  readonly ttftUs: number;
  readonly tpotUs: number;
  readonly tokensPerS: number;
}

/** Target less prediction of both kinds; 0 without a target. */
export function headroomUs(
  { sloTargetUs }: RequestView,
  instance: InstanceSnapshot,
  uncachedTokens: number,
  { ttftUs, tpotUs, tokensPerS }: LatencyTargets,
): { readonly ttft: number; readonly tpot: number } {
  const target = sloTargetUs > 0 ? sloTargetUs : ttftUs;
  return {
    ttft: target === 0 ? 0 : target - predictedTtftUs(instance, uncachedTokens, tokensPerS),
    tpot: tpotUs === 0 ? 0 : tpotUs - predictedTpotUs(instance),
  };
}
