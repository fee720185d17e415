/**
 * The engine of a simulated instance: the real scheduler on the real manager. Without lower tiers, or with
 * loads that are billed to the step, every job of the manager ends in the call that issued it; otherwise the
 * modeled driver says when, on the simulation's clock, and whoever waits is told.
 */

import { Scheduler, type StepPlan } from '../../runtime/batching/index.ts';
import { KVManager, Outcome, type Transfer } from '../../runtime/index.ts';
import type { BlockKeys } from '../../runtime/keys/index.ts';
import type { Sequence } from '../../runtime/manager/sequences/sequence.ts';
import { LinkModel, ModeledDriver, type Timeline } from '../driver/index.ts';
import { BatchSums } from '../latency/index.ts';
import type { Engine, EngineCounters, EngineStep, TierReport } from './engine.ts';
import { checkEngineConfig, type EngineConfig, type LoadTiming, managerConfigOf } from './engineConfig.ts';
import { ChoosingPort } from './loadChoice.ts';
import type { SimRequest } from './simRequest.ts';

const HBM = 0;
const nobody: readonly SimRequest[] = [];

/** Prefill of the plan, as the latency model counts it. */
interface Prefill {
  promptTokens: number;
  progressTokens: number;
  newTokens: number;
  outputTokens: number;
}

/** Told when a request that waited for its blocks may go on. */
export type Woken = () => void;

export class SchedulerEngine implements Engine {
  readonly overlapsLastStep: boolean = false;
  readonly config: EngineConfig;
  readonly manager: KVManager;
  /** Present where loads take time. */
  readonly driver: ModeledDriver | null;
  readonly #scheduler: Scheduler<SimRequest>;
  readonly #port: ChoosingPort;
  readonly #loads: LoadTiming;
  readonly #prefetches: boolean;
  /** Sequences that hold the blocks of requests on their way. */
  readonly #announced = new Map<SimRequest, Sequence>();
  readonly #prefill: Prefill = { promptTokens: 0, progressTokens: 0, newTokens: 0, outputTokens: 0 };
  readonly #step: {
    -readonly [K in keyof EngineStep]: EngineStep[K];
  };
  /** Blocks that came up from lower tiers and no step has paid for yet. */
  #unbilledBlocks = 0;

  /**
   * @param timeline where modeled transfers wait for their end; used with deferred loads only
   * @throws TKV_CONFIG with the field at fault
   */
  constructor(config: EngineConfig, timeline: Timeline, woken: Woken) {
    this.config = checkEngineConfig(config);
    this.manager = new KVManager(managerConfigOf(config));
    const timed = config.loads.kind === 'deferred' && config.lowerTiers.length > 0;
    const links = timed ? linksOf(config.loads) : null;
    this.driver = links === null ? null : new ModeledDriver(this.manager.config, links, timeline);
    this.#prefetches = timed && config.loads.kind === 'deferred' && config.loads.prefetch;
    this.#loads = config.loads;
    const afterCall = this.driver === null ? this.#endJobs.bind(this) : this.#carry.bind(this);
    const { blockTokens, blockBytes, computeUsPerToken, loads } = config;
    const nowUs = (): number => timeline.nowUs;
    const estimate = { loads, blockBytes, computeUsPerToken, links, nowUs };
    this.#port = new ChoosingPort(this.manager, { blockTokens, afterCall }, estimate);
    this.#scheduler = new Scheduler(config.scheduler, this.#port);
    this.#step = {
      sums: new BatchSums(),
      transferUs: 0,
      admitted: nobody,
      preempted: nobody,
      leftOut: nobody,
      started: nobody,
      finished: nobody,
      outputTokens: [],
    };
    this.driver?.onEnd(({ job, outcome, digestLo, digestHi }) => {
      this.manager.complete(job, outcome, timeline.nowUs, digestLo, digestHi);
      this.#carry(timeline.nowUs);
    });
    if (this.driver !== null) this.manager.listen({ settled: woken, roomFreed: woken });
  }

  get capacityBlocks(): number {
    return this.config.hbmBlocks;
  }

  get waitingCount(): number {
    return this.#scheduler.waitingCount;
  }

  get runningCount(): number {
    return this.#scheduler.runningCount;
  }

  get counters(): EngineCounters {
    const { openedBlocks, preemptions, hitBlocks } = this.#scheduler.counters;
    const hits = Array.from(this.manager.counters.hits);
    // what was matched in a lower tier is a hit there; the scheduler counts what it admitted
    const lower = hits.slice(1).reduce((sum, count) => sum + count, 0);
    hits[HBM] = Math.max(0, hitBlocks - lower);
    const { offloads, reloads } = this.manager.counters;
    return { hits, openedBlocks, preemptions, offloads, reloads: reloads.reduce((a, b) => a + b, 0) };
  }

  announce(request: SimRequest, nowUs: number, slackUs: number): void {
    if (!this.#prefetches) return;
    const { keys } = request;
    const found = this.manager.matchLength(keys.words, Math.min(request.promptBlocks, keys.length));
    if (found === 0) return;
    const blocks = this.#port.worthwhile(keys, found, slackUs);
    const { byTier } = this.manager.lookup(keys.words, blocks);
    if (byTier[HBM] === blocks) return;
    // the sequence keeps the blocks from being evicted until the scheduler looks for them
    const sequence = this.manager.open(keys.words, blocks, nowUs, blocks);
    if (this.manager.load(sequence, nowUs)) this.#announced.set(request, sequence);
    else this.manager.release(sequence, nowUs);
    this.#carry(nowUs);
  }

  add(request: SimRequest, nowUs: number): void {
    const announced = this.#announced.get(request);
    if (announced !== undefined) {
      this.#announced.delete(request);
      this.manager.release(announced, nowUs);
      this.#carry(nowUs);
    }
    this.#scheduler.add(request, nowUs);
  }

  abort(request: SimRequest, nowUs: number): void {
    this.#scheduler.abort(request.id, nowUs);
  }

  step(nowUs: number): EngineStep | null {
    const plan = this.#scheduler.step(nowUs);
    const step = this.#step;
    if (plan.tokens === 0) return null;
    this.#sumUp(plan);
    step.transferUs = this.#bill();
    step.admitted = plan.admitted;
    step.preempted = plan.preempted;
    step.leftOut = plan.leftOut;
    const { started, finished, outputTokens } = this.#scheduler.stepEnded({}, nowUs);
    step.started = started;
    step.finished = finished;
    step.outputTokens = outputTokens;
    return step;
  }

  tiers(): TierReport[] {
    const { blockBytes } = this.config;
    return this.manager.tiers.map((_, position) => {
      const { capacityBytes, residentBytes, heldBytes, cachedBytes } = this.manager.usage(position);
      const used = position === HBM ? heldBytes : residentBytes;
      return {
        capacityBlocks: capacityBytes / blockBytes,
        usedBlocks: used / blockBytes,
        freeBlocks: (capacityBytes - residentBytes + cachedBytes) / blockBytes,
      };
    });
  }

  cachedBlocks(keys: BlockKeys, count: number): number {
    if (this.config.lowerTiers.length === 0) return this.manager.matchLength(keys.words, count);
    return this.manager.lookup(keys.words, count).byTier[HBM];
  }

  /** Blocks of the scheduler that wait beside the queue for their loads. */
  get loadingCount(): number {
    return this.#scheduler.loadingCount;
  }

  transferred(flight: number): void {
    this.driver?.end(flight);
  }

  checkIntegrity(): void {
    this.#scheduler.checkIntegrity();
    this.manager.checkIntegrity();
  }

  #sumUp(plan: StepPlan<SimRequest>): void {
    const { sums } = this.#step;
    sums.clear();
    sums.addDecodes(plan.decodes, plan.decodeContextTokens);
    const prefill = this.#prefill;
    for (let seat = plan.firstPrefill(); seat !== -1; seat = plan.nextPrefill(seat)) {
      // after a preemption the tokens generated before are computed again, as part of the prompt
      prefill.promptTokens = plan.knownTokensOf(seat);
      const request = plan.request(seat);
      const from = plan.from(seat);
      if (request.foundBlocks === -1) request.foundBlocks = Math.floor(from / this.config.blockTokens);
      prefill.progressTokens = from;
      prefill.newTokens = plan.tokensOf(seat);
      prefill.outputTokens = request.maxOutputTokens;
      sums.add(prefill);
    }
  }

  /** What the step pays for blocks that came up before it. */
  #bill(): number {
    if (this.#loads.kind !== 'billed' || this.#unbilledBlocks === 0) return 0;
    const { baseUs, usPerBlock } = this.#loads;
    const billed = this.#unbilledBlocks * Math.trunc(baseUs + usPerBlock);
    this.#unbilledBlocks = 0;
    return billed;
  }

  /** Ends every job at once. */
  #endJobs(nowUs: number): void {
    const { manager } = this;
    const counts = this.#loads.kind === 'billed' && this.config.lowerTiers.length > 0;
    for (let job = manager.nextJob(); job !== 0; job = manager.nextJob()) {
      if (counts && isReload(manager.transfer(job))) this.#unbilledBlocks++;
      manager.complete(job, Outcome.LOADED, nowUs);
    }
  }

  /** Seals end at once; what moves goes to the driver. */
  #carry(nowUs: number): void {
    const { manager } = this;
    const driver = this.driver as ModeledDriver;
    for (let job = manager.nextJob(); job !== 0; job = manager.nextJob()) {
      const transfer = manager.transfer(job);
      if (transfer.source === null) {
        const { outcome, digestLo, digestHi } = driver.endAtOnce(transfer);
        manager.complete(job, outcome, nowUs, digestLo, digestHi);
      } else {
        driver.submit([transfer]);
      }
    }
  }
}

function isReload({ source, target }: Transfer): boolean {
  return source !== null && target.tier === HBM && source.tier !== HBM;
}

function linksOf(loads: LoadTiming): LinkModel {
  const links = loads.kind === 'deferred' ? loads.links : {};
  return new LinkModel(links, { baseLatencyUs: 10, bandwidthBytesPerS: 25e9 });
}
