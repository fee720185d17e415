/**
 * Watches a run and records its decisions, the moves between tiers, and its anomalies. It changes nothing
 * in the run.
 */

import { keyToHex } from '../../../runtime/keys/keyChain.ts';
import * as is from '../../../runtime/kinds.ts';
import { TOP } from '../../../runtime/tier/tier.ts';
import type { Handoff, HandoffSend } from '../../../sim/cluster/handoffs.ts';
import type { SimulationObserver, StepSpan } from '../../../sim/cluster/parts.ts';
import type { ReplicaChange, ScaleChange } from '../../../sim/cluster/scaling.ts';
import type { Simulation } from '../../../sim/cluster/simulation.ts';
import { kvUtilization } from '../../../sim/control/admission.ts';
import type { ShadowDivergence } from '../../../sim/control/controlPlane.ts';
import type { AdmissionDecision, RequestPriority, RoutingDecision } from '../../../sim/control/policy.ts';
import type { SimRequest } from '../../../sim/instance/simRequest.ts';
import { type Status, statusNames } from '../../../sim/metrics/requestTable.ts';
import { ScaleRecords } from '../../../sim/report/scaling.ts';
import { AnomalyWatch } from './anomalies.ts';
import {
  bestOthers,
  clusterContext,
  engineContext,
  type MovedBlock,
  type RoutingRecord,
  routerContext,
  type TraceLevel,
  type TraceRecord,
  type TransferRecord,
  tenantContext,
  traceLevels,
} from './records.ts';

function about({ id, tenantId, sloClass, promptTokens }: SimRequest): {
  requestId: string;
  tenantId: string;
  priorityClass: string;
  inputTokens: number;
} {
  return { requestId: id, tenantId, priorityClass: sloClass, inputTokens: promptTokens };
}

function rankIn(rank: number): number | null {
  return Number.isNaN(rank) ? null : rank;
}

/** The instance that computes the prompt. */
function computesAt({ target, prefillInstance }: RoutingDecision): number {
  return prefillInstance === -1 ? target : prefillInstance;
}

export class TraceRecorder implements SimulationObserver {
  readonly records: TraceRecord[] = [];
  /** The last routing decision of each request, by its row. */
  readonly routings: Map<number, RoutingRecord> = new Map();
  readonly anomalies: AnomalyWatch = new AnomalyWatch();
  readonly #level: TraceLevel;
  #simulation: Simulation | undefined;
  #admissions = 0;
  #routings = 0;
  readonly #scales: ScaleRecords = new ScaleRecords();
  /** The last step of each instance. */
  readonly #steps: StepSpan[] = [];
  readonly #transfers: Transfers = new Transfers();
  readonly stored?: (instance: number, tier: number, key: Uint32Array) => void;
  readonly removed?: (instance: number, tier: number, key: Uint32Array) => void;

  constructor(level: TraceLevel) {
    is.oneOf(traceLevels).read(level, 'level');
    this.#level = level;
    if (level === 'minimal') return;
    // caches report their blocks only to a listener
    this.stored = (instance, tier, key) => this.#transfers.blocksOf(instance).stored(tier, key);
    this.removed = (instance, tier, key) => this.#transfers.blocksOf(instance).removed(tier, key);
  }

  /** Called before the run. */
  attach(simulation: Simulation): void {
    this.#simulation = simulation;
    this.anomalies.attach(simulation);
    this.#transfers.attach(simulation);
  }

  #keep(record: TraceRecord): void {
    if (this.#level !== 'minimal') this.records.push(record);
  }

  #event(record: TraceRecord): void {
    if (this.#level === 'full') this.records.push(record);
  }

  arrived(request: SimRequest, nowUs: number): void {
    this.#event({ kind: 'arrived', timeUs: nowUs, ...about(request) });
  }

  admission(request: SimRequest, decision: AdmissionDecision, nowUs: number): void {
    const number = this.#admissions++;
    const control = this.#simulation?.control;
    if (control === undefined || this.#level === 'minimal') return;
    const router = routerContext(control, false);
    // a rejected one is pending no more by now
    const pending = router.pending + (decision.verdict === 'reject' ? 1 : 0);
    this.#keep({
      kind: 'admission',
      timeUs: nowUs,
      decision: number,
      ...about(request),
      verdict: decision.verdict,
      reason: decision.verdict === 'admit' ? '' : decision.reason,
      durationUs: decision.verdict === 'delay' ? decision.durationUs : 0,
      routerState: { ...router, pending },
      tenantState: tenantContext(control, request.tenantId, false),
      cluster: clusterContext(control, nowUs),
    });
  }

  prioritised(request: SimRequest, { score, rank }: RequestPriority, nowUs: number): void {
    this.anomalies.prioritised(request, score);
    const control = this.#simulation?.control;
    if (control === undefined || this.#level === 'minimal') return;
    const routerState = routerContext(control, false);
    const tenantState = tenantContext(control, request.tenantId, false);
    this.#keep({ kind: 'priority', timeUs: nowUs, ...about(request), score, rank, routerState, tenantState });
  }

  routing(request: SimRequest, decision: RoutingDecision | null, nowUs: number): void {
    const number = this.#routings++;
    if (decision !== null) this.anomalies.routed(request, decision);
    const control = this.#simulation?.control;
    if (control === undefined) return;
    const sentTo = decision === null ? [] : [decision.target, decision.prefillInstance];
    const record: RoutingRecord = {
      kind: 'routing',
      timeUs: nowUs,
      decision: number,
      ...about(request),
      prefixHash: request.promptBlocks === 0 ? '' : blockName(request.keys.words),
      instances: control.cluster(nowUs).instances.map((instance) => ({
        instance: instance.instance,
        queueDepth: instance.queueDepth,
        batchSize: instance.batchSize,
        // the state at the policy's choice, although the router counts the request by now
        inFlight: instance.inFlight - (sentTo.includes(instance.instance) ? 1 : 0),
        kvUtilization: kvUtilization(instance),
        reportAgeUs: nowUs - instance.reportedUs,
        score: decision?.scores.find((each) => each.instance === instance.instance)?.score ?? null,
      })),
      routerState: routerContext(control, decision !== null),
      tenantState: tenantContext(control, request.tenantId, decision !== null),
      chosenInstance: decision?.target ?? -1,
      couldTake: decision?.couldTake ?? [],
      reason: decision?.reason ?? 'no instance could take it',
      topKCandidates: decision === null ? [] : bestOthers(decision.scores, decision.target),
      expectedBlocks: decision?.expectedBlocks ?? 0,
      expectedCacheHit: (decision?.expectedBlocks ?? 0) > 0,
      actualTtftUs: -1,
      actualE2eUs: -1,
      cachedBlocks: -1,
      cacheHit: false,
      cacheTier: decision === null ? '' : this.#transfers.cacheTier(request, computesAt(decision)),
      regretMs: -1,
    };
    this.routings.set(request.number, record);
    this.#keep(record);
  }

  joined(request: SimRequest, instance: number, nowUs: number): void {
    const waiting = this.anomalies.joined(request, instance, nowUs);
    const cachedBlocks = Math.max(0, request.foundBlocks);
    const routing = this.routings.get(request.number);
    if (routing !== undefined && routing.cachedBlocks === -1) {
      routing.cachedBlocks = cachedBlocks;
      routing.cacheHit = cachedBlocks > 0;
    }
    const at = this.#simulation?.instances[instance];
    const step = this.#steps[instance];
    if (at === undefined || step === undefined || this.#level === 'minimal') return;
    const { tokens, decodes, prefills } = step;
    this.#keep({
      kind: 'batch',
      timeUs: nowUs,
      ...about(request),
      instance,
      rank: rankIn(request.queueRank),
      cachedBlocks,
      waiting,
      batch: { ...engineContext(at), tokens, decodes, prefills },
    });
  }

  preempted(request: SimRequest, instance: number, nowUs: number): void {
    this.anomalies.preempted(request, instance, nowUs);
    const simulation = this.#simulation;
    if (simulation === undefined || this.#level === 'minimal') return;
    this.#keep({
      kind: 'preemption',
      timeUs: nowUs,
      ...about(request),
      instance,
      rank: rankIn(request.victimRank),
      preemptions: simulation.table.preemptions[request.number] + 1,
      batch: engineContext(simulation.instances[instance]),
    });
  }

  scaled(change: ScaleChange): void {
    this.anomalies.scaled(change);
    this.#keep(this.#scales.scaled(change));
  }

  replica(change: ReplicaChange): void {
    this.#scales.replica(change);
    this.#keep({ kind: 'replica', ...change });
  }

  handoffSent({ request, sentUs, ...sent }: HandoffSend): void {
    this.#keep({ kind: 'handoff_transfer', timeUs: sentUs, requestId: request.id, ...sent });
  }

  handedOff({ request, from, to, blocks, bytes, transfers, readyUs, askedUs, startUs }: Handoff): void {
    const timeUs = this.#simulation?.nowUs ?? 0;
    const times = { readyUs, askedUs, startUs };
    const requestId = request.id;
    this.#keep({ kind: 'handoff', timeUs, requestId, from, to, blocks, bytes, transfers, ...times });
  }

  diverged({ timeUs, request, instance, expectedBlocks, actualBlocks }: ShadowDivergence): void {
    const requestId = this.#simulation?.table.idOf(request) ?? String(request);
    this.anomalies.diverged(requestId, timeUs, expectedBlocks, actualBlocks);
    this.#keep({ kind: 'shadow_divergence', timeUs, requestId, instance, expectedBlocks, actualBlocks });
  }

  step(span: StepSpan): void {
    const { instance, startUs, endUs, tokens, decodes, prefills, transferUs } = span;
    this.#event({ kind: 'step', timeUs: startUs, instance, endUs, tokens, decodes, prefills, transferUs });
    this.#steps[instance] = span;
    const moved = this.#transfers.stepped(span);
    const { offloadedBlocks, reloadedBlocks, thrashedBlocks, blocks } = moved;
    this.anomalies.stepped(instance, startUs, thrashedBlocks, span.thrashedFor);
    if (offloadedBlocks + reloadedBlocks + blocks.length > 0) this.#keep(moved);
  }

  ended(request: SimRequest, status: Status, timeUs: number, instance: number): void {
    const simulation = this.#simulation;
    this.anomalies.ended(request);
    this.#event({ kind: 'ended', timeUs, ...about(request), status: statusNames[status], instance });
    const routing = this.routings.get(request.number);
    if (routing === undefined || simulation === undefined) return;
    routing.actualTtftUs = simulation.table.firstTokenUs[request.number];
    routing.actualE2eUs = simulation.table.e2eUs[request.number];
  }
}

// Blocks that come to the tiers of an instance, as its caches report.

/** Most blocks that one record names. */
const NAMED = 16;

/** Name of a block in traces: the first 16 hexadecimal digits of its key. */
function blockName(key: Uint32Array): string {
  return keyToHex(key).slice(0, 16);
}

class MovedBlocks {
  readonly #tiers: () => readonly string[];
  /** For each block, the last tier below HBM that it came to. */
  readonly #below = new Map<string, number>();
  #moved: MovedBlock[] = [];

  /** @param tiers names of the instance's tiers, HBM first */
  constructor(tiers: () => readonly string[]) {
    this.#tiers = tiers;
  }

  stored(tier: number, key: Uint32Array): void {
    const block = blockName(key);
    const before = this.#below.get(block);
    if (tier !== TOP) this.#below.set(block, tier);
    // a block in HBM is new, unless it came from a lower tier
    else if (before === undefined) return;
    if (this.#moved.length === NAMED) return;
    const names = this.#tiers();
    this.#moved.push({ block, fromTier: names[before ?? TOP], toTier: names[tier] });
  }

  removed(tier: number, key: Uint32Array): void {
    if (tier === TOP) return;
    const block = blockName(key);
    if (this.#below.get(block) === tier) this.#below.delete(block);
  }

  /** Arrivals since the last call. */
  take(): readonly MovedBlock[] {
    const moved = this.#moved;
    if (moved.length > 0) this.#moved = [];
    return moved;
  }
}

// Moves between the tiers of each instance, step by step.

interface Moved {
  readonly sent: number;
  readonly reloads: number;
  readonly thrashed: number;
}

const nothing: Moved = { sent: 0, reloads: 0, thrashed: 0 };

class Transfers {
  #simulation: Simulation | undefined;
  /** Totals of each instance at its last step. */
  readonly #moved: Moved[] = [];
  readonly #blocks: MovedBlocks[] = [];
  readonly #tiers: (readonly string[])[] = [];

  attach(simulation: Simulation): void {
    this.#simulation = simulation;
  }

  blocksOf(instance: number): MovedBlocks {
    return (this.#blocks[instance] ??= new MovedBlocks(() => this.#tierNames(instance)));
  }

  #tierNames(instance: number): readonly string[] {
    const engine = this.#simulation?.instances[instance]?.engine;
    return (this.#tiers[instance] ??= engine?.traffic().tiers.map(({ tier }) => tier) ?? []);
  }

  /** The slowest tier of the instance that holds leading blocks of the prompt now. */
  cacheTier({ keys, promptBlocks }: SimRequest, instance: number): string {
    const engine = this.#simulation?.instances[instance]?.engine;
    if (engine === undefined) return '';
    const byTier = engine.cachedByTier(keys, Math.min(promptBlocks, keys.length));
    const slowest = byTier.findLastIndex((blocks) => blocks > 0);
    return slowest === -1 ? '' : this.#tierNames(instance)[slowest];
  }

  /** Moves since the instance's previous step; zeros where nothing moved. */
  stepped({ instance, startUs, transferUs }: StepSpan): TransferRecord {
    const { sent, reloads, thrashed } = this.#simulation?.instances[instance]?.engine.counters ?? {
      ...nothing,
      thrashed: 0,
    };
    const now = { sent, reloads, thrashed };
    const before = this.#moved[instance] ?? nothing;
    this.#moved[instance] = now;
    return {
      kind: 'transfer',
      timeUs: startUs,
      instance,
      offloadedBlocks: now.sent - before.sent,
      reloadedBlocks: now.reloads - before.reloads,
      thrashedBlocks: now.thrashed - before.thrashed,
      transferUs,
      blocks: this.#blocks[instance]?.take() ?? [],
    };
  }
}
