/**
 * The engine of a simulated instance: the real scheduler on the real manager. Without lower tiers, or with
 * loads that are billed to the step, every job of the manager ends in the call that issued it; otherwise the
 * modeled driver says when, on the simulation's clock, and whoever waits is told.
 */

import { resolveSchedulerConfig } from '../../runtime/batching/config.ts';
import { Scheduler, type StepPlan } from '../../runtime/batching/index.ts';
import { type DecisionSink, KVManager, Outcome, type Transfer, tierName } from '../../runtime/index.ts';
import type { BlockKeys } from '../../runtime/keys/index.ts';
import type { ManagerListener } from '../../runtime/manager/listener.ts';
import type { Sequence, SequenceId } from '../../runtime/manager/sequences/sequence.ts';
import type { StateVisitor } from '../../runtime/snapshot/index.ts';
import { LinkModel, ModeledDriver, type Timeline } from '../driver/index.ts';
import { BatchSums } from '../latency/index.ts';
import type {
  CacheListener,
  EngineCounters,
  EngineStep,
  EngineTraffic,
  InstanceEngine,
  TierReport,
} from './engine.ts';
import { checkEngineConfig, type EngineConfig, type LoadTiming, managerConfigOf } from './engineConfig.ts';
import { ChoosingPort } from './loadChoice.ts';
import type { SimRequest } from './simRequest.ts';

const HBM = 0;
/** Share of HBM that stays free for the tokens of those that decode when blocks come from elsewhere. */
const HEADROOM_SHARE = 1 / 16;
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

export class SchedulerEngine implements InstanceEngine {
  readonly overlapsLastStep: boolean = false;
  readonly config: EngineConfig;
  readonly manager: KVManager;
  /** Present where loads take time. */
  readonly driver: ModeledDriver | null;
  readonly #scheduler: Scheduler<SimRequest>;
  readonly #port: ChoosingPort;
  readonly #loads: LoadTiming;
  readonly #prefetches: boolean;
  readonly #wakes: ManagerListener;
  readonly #afterCall: (nowUs: number) => void;
  /** Sequences that hold the blocks of requests on their way. */
  readonly #announced = new Map<number, Sequence>();
  /** Sequences that hold blocks for another instance, and those that hold room for its blocks, by request. */
  readonly #leaving = new Map<number, Sequence>();
  readonly #coming = new Map<number, Sequence>();
  readonly #prefill: Prefill = { promptTokens: 0, progressTokens: 0, newTokens: 0, outputTokens: 0 };
  readonly #step: {
    -readonly [K in keyof EngineStep]: EngineStep[K];
  };
  /** Blocks that came up from lower tiers and no step has paid for yet. */
  #unbilledBlocks = 0;

  /**
   * @param timeline where modeled transfers wait for their end; used with deferred loads only
   * @param sink takes what manager and scheduler are given and decide
   * @throws TKV_CONFIG with the field at fault
   */
  constructor(config: EngineConfig, timeline: Timeline, woken: Woken, sink: DecisionSink | null = null) {
    this.config = checkEngineConfig(config);
    this.manager = new KVManager(managerConfigOf(config), sink);
    const timed = config.loads.kind === 'deferred' && config.lowerTiers.length > 0;
    const links = timed ? linksOf(config.loads) : null;
    this.driver = links === null ? null : new ModeledDriver(this.manager.config, links, timeline);
    this.#prefetches = timed && config.loads.kind === 'deferred' && config.loads.prefetch;
    this.#loads = config.loads;
    this.#afterCall = this.driver === null ? this.#endJobs.bind(this) : this.#carry.bind(this);
    const afterCall = this.#afterCall;
    const { blockTokens, blockBytes, computeUsPerToken, loads } = config;
    const nowUs = (): number => timeline.nowUs;
    const estimate = { loads, blockBytes, computeUsPerToken, links, nowUs };
    this.#port = new ChoosingPort(this.manager, { blockTokens, afterCall }, estimate, (now) =>
      this.#giveUpOne(now),
    );
    const resolved = resolveSchedulerConfig(config.scheduler, this.#port.hasLowerTier);
    const told = sink?.scheduler?.({ ...resolved, blockTokens, sizeClass: 0 }, timeline.nowUs) ?? null;
    this.#scheduler = new Scheduler(config.scheduler, this.#port, told);
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
    this.#wakes = this.driver === null ? {} : { settled: woken, roomFreed: woken };
    if (this.driver !== null) this.manager.listen(this.#wakes);
  }

  get capacityBlocks(): number {
    return this.config.hbmBlocks;
  }

  get blockBytes(): number {
    return this.config.blockBytes;
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
    const { offloads, reloads: byTier, thrashed } = this.manager.counters;
    const reloads = byTier.reduce((sum, count) => sum + count, 0);
    const thrashing = reloads === 0 ? 0 : thrashed / reloads;
    return { hits, openedBlocks, preemptions, offloads, reloads, thrashing };
  }

  watchCache({ stored, removed }: CacheListener): void {
    this.manager.listen({ ...this.#wakes, stored: (tier, { key }) => stored(tier, key), removed });
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
    if (this.manager.load(sequence, nowUs)) this.#announced.set(request.number, sequence);
    else this.manager.release(sequence, nowUs);
    this.#carry(nowUs);
  }

  add(request: SimRequest, nowUs: number): void {
    const announced = this.#announced.get(request.number);
    if (announced !== undefined) {
      this.#announced.delete(request.number);
      this.manager.release(announced, nowUs);
      this.#carry(nowUs);
    }
    this.#scheduler.add(request, nowUs);
  }

  abort(request: SimRequest, nowUs: number): void {
    this.#scheduler.abort(request.id, nowUs);
    this.letGo(request, nowUs);
  }

  step(nowUs: number): EngineStep {
    let plan = this.#scheduler.step(nowUs);
    let preempted: readonly SimRequest[] = plan.preempted;
    // what others wait for with blocks in hand must not stop everybody
    while (plan.tokens === 0 && this.#scheduler.runningCount === 0 && this.#scheduler.waitingCount > 0) {
      if (!this.#giveUpOne(nowUs)) break;
      const before = [...preempted];
      plan = this.#scheduler.step(nowUs);
      preempted = before.length === 0 ? plan.preempted : [...before, ...plan.preempted];
    }
    const step = this.#step;
    step.preempted = preempted;
    if (plan.tokens === 0) {
      step.sums.clear();
      return step;
    }
    if (this.#coming.size > 0) for (const request of plan.admitted) this.letGo(request, nowUs);
    this.#sumUp(plan);
    step.transferUs = this.#bill();
    step.admitted = plan.admitted;
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

  traffic(): EngineTraffic {
    const { evictions, writtenBytes, readBytes } = this.manager.counters;
    const { hits } = this.counters;
    const tiers = this.tiers().map(({ capacityBlocks }, i) => ({
      tier: tierName(this.manager.tiers[i]),
      capacityBlocks,
      hits: hits[i],
      evictions: evictions[i],
      writtenBytes: writtenBytes[i],
      readBytes: readBytes[i],
    }));
    const links = [...(this.driver?.traffic ?? [])].map(([link, sums]) => ({ link, ...sums }));
    return { tiers, links };
  }

  cachedBlocks(keys: BlockKeys, count: number): number {
    if (this.config.lowerTiers.length === 0) return this.manager.matchLength(keys.words, count);
    return this.manager.lookup(keys.words, count).byTier[HBM];
  }

  /** Blocks of the scheduler that wait beside the queue for their loads. */
  get loadingCount(): number {
    return this.#scheduler.loadingCount;
  }

  hold(request: SimRequest, nowUs: number): void {
    const { keys } = request;
    const blocks = Math.min(request.promptBlocks, keys.length);
    this.#leaving.set(request.number, this.manager.open(keys.words, blocks, nowUs, blocks));
  }

  reserve(request: SimRequest, nowUs: number): boolean {
    const { keys, promptBlocks } = request;
    const blocks = Math.min(promptBlocks, keys.length);
    const here = this.#port.leadingHere(keys, this.manager.matchLength(keys.words, blocks));
    const spare = Math.ceil(this.config.hbmBlocks * HEADROOM_SHARE);
    const isAlone = this.#coming.size === 0 && this.#scheduler.runningCount === 0;
    if (!this.manager.canOpen(keys.words, here, blocks + (isAlone ? 0 : spare))) return false;
    const sequence = this.manager.open(keys.words, blocks, nowUs, here);
    const fits = this.manager.allocate(sequence, here, blocks, nowUs);
    this.#afterCall(nowUs);
    // a slot whose block is still on its way down is no room yet
    if (!fits || sequence.pending > 0) {
      this.manager.release(sequence, nowUs);
      this.#afterCall(nowUs);
      return false;
    }
    this.#coming.set(request.number, sequence);
    return true;
  }

  fill(request: SimRequest, nowUs: number): void {
    const sequence = this.#coming.get(request.number);
    if (sequence === undefined) return;
    const { keys } = request;
    const { matched, length } = sequence;
    this.manager.seal(sequence, matched, length, keys.words, 4 * matched, this.config.blockTokens, nowUs);
    this.#afterCall(nowUs);
  }

  letGo(request: SimRequest, nowUs: number): void {
    const held = this.#coming.has(request.number) ? this.#coming : this.#leaving;
    const sequence = held.get(request.number);
    if (sequence === undefined) return;
    held.delete(request.number);
    this.manager.release(sequence, nowUs);
    this.#afterCall(nowUs);
  }

  /** Lets the room go that was taken last for a request from elsewhere: it will compute its prompt here. */
  #giveUpOne(nowUs: number): boolean {
    const newest = [...this.#coming].at(-1);
    if (newest === undefined) return false;
    this.#coming.delete(newest[0]);
    this.manager.release(newest[1], nowUs);
    this.#afterCall(nowUs);
    return true;
  }

  transferred(flight: number): void {
    this.driver?.end(flight);
  }

  visitState(visitor: StateVisitor, requestOf: (row: number) => SimRequest): void {
    this.manager.visitState(visitor);
    this.driver?.visitState(visitor);
    const sequenceOf = (id: number): Sequence | undefined => this.manager.sequence(id as SequenceId);
    this.#scheduler.visitState(visitor, { nameOf: ({ number }) => number, requestOf, sequenceOf });
    for (const held of [this.#announced, this.#leaving, this.#coming]) {
      visitor.value(
        () => [...held].map(([row, { id }]) => [row, id] as const),
        (saved) => {
          held.clear();
          for (const [row, id] of saved) held.set(row, sequenceOf(id) as Sequence);
        },
      );
    }
    this.#unbilledBlocks = visitor.number(this.#unbilledBlocks);
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
    const moves: Transfer[] = [];
    for (let job = manager.nextJob(); job !== 0; job = manager.nextJob()) {
      const transfer = manager.transfer(job);
      if (transfer.source === null) {
        const { outcome, digestLo, digestHi } = driver.endAtOnce(transfer);
        manager.complete(job, outcome, nowUs, digestLo, digestHi);
      } else {
        moves.push(transfer);
      }
    }
    if (moves.length > 0) driver.submit(moves);
  }
}

function isReload({ source, target }: Transfer): boolean {
  return source !== null && target.tier === HBM && source.tier !== HBM;
}

function linksOf(loads: LoadTiming): LinkModel {
  const links = loads.kind === 'deferred' ? loads.links : {};
  return new LinkModel(links, { baseLatencyUs: 10, bandwidthBytesPerS: 25e9 });
}
