/**
 * The model of upstream's engine under the simulator's own instances, cluster and metrics. With no repair a
 * whole case then equals upstream's; with all repairs it equals a run of the real scheduler and manager. So
 * the two differ by the named repairs and by nothing else.
 */

import type { PoolConfig } from '../../../src/sim/description/deployment.ts';
import type {
  EngineCounters,
  EngineStep,
  EngineTraffic,
  InstanceEngine,
  TierReport,
} from '../../../src/sim/instance/engine.ts';
import type { SimRequest } from '../../../src/sim/instance/simRequest.ts';
import { type LatencyModel, sumBatch } from '../../../src/sim/latency/latencyModel.ts';
import type { Timeline } from '../../../src/sim/links/modeledDriver.ts';
import { TokenReader } from '../../../src/sim/workload/tokens.ts';
import type { StepTrace, TraceRequest } from '../stepTrace.ts';
import { UpstreamEngine } from './upstreamEngine.ts';
import { asUpstream, type Repairs, repaired, type UpstreamStore } from './upstreamStore.ts';

const reader = new TokenReader();

/** What tierkv does otherwise in a whole case. */
export interface CaseRepairs extends Repairs {
  /** U6: an emptied engine does not begin a step while its last one still runs. */
  readonly noOverlap: boolean;
  /** U7: the time of a step that leaves a request out is part of the request's time. */
  readonly leftOutTime: boolean;
}

interface Clock {
  readonly timeline: Timeline;
  woken(): void;
}

export const caseAsUpstream: CaseRepairs = { ...asUpstream, noOverlap: false, leftOutTime: false };
export const caseRepaired: CaseRepairs = { ...repaired, noOverlap: true, leftOutTime: true };

export class UpstreamCaseEngine implements InstanceEngine {
  readonly overlapsLastStep: boolean;
  readonly capacityBlocks: number;
  readonly blockBytes: number;
  readonly #engine: UpstreamEngine;
  readonly #latency: LatencyModel;
  readonly #countsWaits: boolean;
  readonly #requests = new Map<string, SimRequest>();
  readonly #clock: Clock | undefined;

  /** @param tiers where there are lower tiers: their store, and a clock for steps while all requests wait */
  constructor(
    { engine: config, latency }: PoolConfig,
    repairs: CaseRepairs,
    tiers?: { readonly store: UpstreamStore; readonly clock: Clock },
  ) {
    const { scheduler } = config;
    this.#latency = latency;
    this.#countsWaits = repairs.leftOutTime;
    const trace: StepTrace = {
      config: {
        blocks: config.topBlocks,
        block_size: config.blockTokens,
        max_num_seqs: scheduler.maxSequences ?? 256,
        max_num_batched_tokens: scheduler.maxBatchedTokens ?? 2048,
        long_prefill_threshold: scheduler.longPrefillTokens ?? 0,
        max_model_len: scheduler.maxModelTokens ?? 0,
        scheduler: scheduler.queueOrder ?? 'fcfs',
        preemption: scheduler.victimRule ?? 'fcfs',
      },
      requests: [],
      rows: [],
      preemptions: 0,
      lengthCapped: 0,
      meanFirstTokenUs: 0,
    };
    this.overlapsLastStep = !repairs.noOverlap;
    this.capacityBlocks = config.topBlocks;
    this.blockBytes = config.blockBytes;
    this.#clock = tiers?.clock;
    this.#engine = new UpstreamEngine(trace, repairs, tiers?.store);
  }

  get waitingCount(): number {
    return this.#engine.waitingCount;
  }

  get runningCount(): number {
    return this.#engine.runningCount;
  }

  get counters(): EngineCounters {
    const { hits, misses, missesBelow, thrashed, offloads } = this.#engine.store;
    return {
      hits: [hits],
      openedBlocks: misses + missesBelow,
      preemptions: this.#engine.preemptions,
      offloads,
      sent: 0,
      reloads: 0,
      thrashed,
    };
  }

  watchCache(): void {}
  announce(): void {}

  add(request: SimRequest): void {
    const { workload } = request;
    const raw: TraceRequest = {
      id: request.id,
      arrival: request.arrivalUs,
      input: [...reader.prompt(workload)],
      output: [...reader.output(workload)],
      max_output_len: workload.outputTokens,
      slo: workload.origin.sloClass,
    };
    this.#requests.set(request.id, request);
    this.#engine.enqueue(raw);
  }

  generatedOf(request: SimRequest): number {
    return this.#engine.generatedOf(request.id);
  }

  abort(request: SimRequest): void {
    this.#engine.abort(request.id);
  }

  step(nowUs: number): EngineStep {
    const { batch, transferUs = 0 } = this.#engine.plan(nowUs);
    this.#engine.end();
    // upstream steps on, a tick each, while every request waits for a tier
    if (batch.length === 0 && this.waitingCount > 0) this.#clock?.timeline.schedule(nowUs + 1, 0);
    const { last } = this.#engine;
    const named = (ids: readonly string[]): SimRequest[] =>
      ids.map((id) => this.#requests.get(id) as SimRequest);
    const finished = named(last.finished);
    const leftOut = named(last.leftOut);
    const sums = sumBatch(batch);
    if (!this.#countsWaits) {
      const lostUs = this.#latency.stepTimeUs(sums) + this.#latency.outputTokenProcessingUs;
      for (const request of leftOut) {
        request.gapUs -= lostUs;
        request.gaps--;
      }
    }
    const step: EngineStep = {
      sums,
      transferUs,
      admitted: named(last.admitted),
      preempted: named(last.preempted),
      leftOut: this.#countsWaits ? leftOut : [],
      leaving: [],
      leavingTokens: [],
      started: named(last.started),
      finished,
      outputTokens: finished.map(({ maxOutputTokens }) => maxOutputTokens),
      thrashedFor: [],
    };
    for (const id of last.finished) this.#requests.delete(id);
    return step;
  }

  tiers(): TierReport[] {
    const { total, used } = this.#engine.store;
    return [{ tier: 'hbm', capacityBlocks: total, usedBlocks: used, freeBlocks: total - used }];
  }

  visitState(): never {
    throw new Error("the model of upstream's engine has no snapshots");
  }

  traffic(): EngineTraffic {
    return { tiers: [], links: [] };
  }

  cachedBlocks(): number {
    return 0;
  }

  cachedByTier(): readonly number[] {
    return [0];
  }

  hold(): void {}
  foundOf(): number {
    return 0;
  }

  fill(): void {}
  letGo(): void {}

  reserve(): boolean {
    return true;
  }

  transferred(): void {
    this.#clock?.woken();
  }
  checkIntegrity(): void {}
}
