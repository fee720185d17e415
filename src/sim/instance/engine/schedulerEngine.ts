/**
 * The engine of a simulated instance: the real scheduler on the real manager. Whoever waits for blocks is
 * told when they have come.
 */

import { resolveSchedulerConfig } from '../../../runtime/batching/config.ts';
import { Scheduler, type StepPlan } from '../../../runtime/batching/index.ts';
import { type DecisionSink, KVManager } from '../../../runtime/index.ts';
import type { BlockKeys } from '../../../runtime/keys/index.ts';
import type { Sequence, SequenceId } from '../../../runtime/manager/sequences/blockTable/sequence.ts';
import type { ManagerListener } from '../../../runtime/manager/tables/listener.ts';
import type { StateVisitor } from '../../../runtime/snapshot/index.ts';
import { LinkModel, type Timeline } from '../../driver/index.ts';
import { BatchSums } from '../../latency/index.ts';
import type { SimRequest } from '../simRequest.ts';
import type {
  CacheListener,
  EngineCounters,
  EngineStep,
  EngineTraffic,
  InstanceEngine,
  TierReport,
} from './engine.ts';
import { checkEngineConfig, type EngineConfig, type LoadTiming, managerConfigOf } from './engineConfig.ts';
import { HeldBlocks } from './heldBlocks.ts';
import { JobEnds } from './jobEnds.ts';
import { ChoosingPort } from './loadChoice.ts';
import { countersOf, tiersOf, trafficOf } from './reports.ts';

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

export class SchedulerEngine implements InstanceEngine {
  readonly overlapsLastStep: boolean = false;
  changes = 0;
  readonly config: EngineConfig;
  readonly manager: KVManager;
  protected readonly scheduler: Scheduler<SimRequest>;
  readonly #jobs: JobEnds;
  readonly #port: ChoosingPort;
  readonly #held: HeldBlocks;
  readonly #prefetches: boolean;
  readonly #wakes: ManagerListener;
  readonly #prefill: Prefill = { promptTokens: 0, progressTokens: 0, newTokens: 0, outputTokens: 0 };
  /** Whose keys these are, of the requests that may ask to join the batch. */
  readonly #asking = new WeakMap<BlockKeys, SimRequest>();
  /** Blocks that requests found which joined the batch, by tier. */
  readonly #hits: number[];
  /** Blocks of `SchedulerCounters.hitBlocks` that came by a hand-off: no cache had them. */
  readonly #received = { blocks: 0 };
  readonly #leaving: SimRequest[] = [];
  readonly #leavingTokens: number[] = [];
  readonly #step: {
    -readonly [K in keyof EngineStep]: EngineStep[K];
  };

  /**
   * @param timeline where modeled transfers wait for their end; used with deferred loads only
   * @param sink takes what manager and scheduler are given and decide
   * @throws TKV_CONFIG with the field at fault
   */
  constructor(config: EngineConfig, timeline: Timeline, woken: Woken, sink: DecisionSink | null = null) {
    this.config = checkEngineConfig(config);
    this.manager = new KVManager(managerConfigOf(config), sink);
    const { blockTokens, blockBytes, computeUsPerToken, loads, lowerTiers } = config;
    const links = loads.kind === 'deferred' && lowerTiers.length > 0 ? linksOf(loads) : null;
    this.#prefetches = links !== null && loads.kind === 'deferred' && loads.prefetch;
    this.#jobs = new JobEnds(this.manager, config, links, timeline);
    const { afterCall } = this.#jobs;
    const nowUs = (): number => timeline.nowUs;
    this.#hits = this.manager.tiers.map(() => 0);
    const crowd = () => {
      const { runningCount: running, loadingCount: loading, waitingCount } = this.scheduler;
      // loads that began at arrival are under way too, or hold what they brought
      return { running, loading: loading + this.#held.announced, waiting: waitingCount - loading };
    };
    const estimate = { loads, blockBytes, computeUsPerToken, links, nowUs, crowd };
    const port = new ChoosingPort(
      this.manager,
      { blockTokens, afterCall },
      estimate,
      (now) => this.#held.giveUpNewest(now),
      (keys, byTier) => this.#noteFound(keys, byTier),
    );
    this.#port = port;
    this.#held = new HeldBlocks(this.manager, port, config, afterCall);
    const resolved = resolveSchedulerConfig(config.scheduler, port.hasLowerTier);
    const told = sink?.scheduler?.({ ...resolved, blockTokens, sizeClass: 0 }, timeline.nowUs) ?? null;
    this.scheduler = new Scheduler(config.scheduler, port, told);
    this.#step = {
      sums: new BatchSums(),
      transferUs: 0,
      admitted: nobody,
      preempted: nobody,
      leftOut: nobody,
      leaving: this.#leaving,
      leavingTokens: this.#leavingTokens,
      started: nobody,
      finished: nobody,
      outputTokens: [],
      thrashedFor: [],
    };
    this.#wakes = links === null ? {} : { settled: woken, roomFreed: woken };
    if (links !== null) this.manager.listen(this.#wakes);
  }

  get capacityBlocks(): number {
    return this.config.hbmBlocks;
  }

  get blockBytes(): number {
    return this.config.blockBytes;
  }

  get waitingCount(): number {
    return this.scheduler.waitingCount;
  }

  get runningCount(): number {
    return this.scheduler.runningCount;
  }

  /** Requests that wait beside the queue for their loads. */
  get loadingCount(): number {
    return this.scheduler.loadingCount;
  }

  get counters(): EngineCounters {
    return countersOf(this.manager, this.scheduler.counters, this.#hits, this.#received.blocks);
  }

  tiers(): TierReport[] {
    return tiersOf(this.manager, this.blockBytes);
  }

  traffic(): EngineTraffic {
    return trafficOf(this.manager, this.blockBytes, this.counters.hits, this.#jobs.flights);
  }

  watchCache({ stored, removed }: CacheListener): void {
    this.manager.listen({ ...this.#wakes, stored: (tier, { key }) => stored(tier, key), removed });
  }

  cachedBlocks(keys: BlockKeys, count: number): number {
    if (this.config.lowerTiers.length === 0) return this.manager.matchLength(keys.words, count);
    return this.manager.lookup(keys.words, count).byTier[HBM];
  }

  cachedByTier(keys: BlockKeys, count: number): readonly number[] {
    return this.manager.lookup(keys.words, count).byTier;
  }

  announce(request: SimRequest, nowUs: number, slackUs: number): void {
    if (!this.#prefetches) return;
    this.changes++;
    this.#held.announce(request, nowUs, slackUs);
  }

  add(request: SimRequest, nowUs: number): void {
    this.changes++;
    this.#held.added(request, nowUs);
    this.#asking.set(request.keys, request);
    this.scheduler.add(request, nowUs);
  }

  abort(request: SimRequest, nowUs: number): void {
    this.changes++;
    this.scheduler.abort(request.id, nowUs);
    this.letGo(request, nowUs);
  }

  step(nowUs: number): EngineStep {
    this.changes++;
    let plan = this.scheduler.step(nowUs);
    let preempted: readonly SimRequest[] = plan.preempted;
    // what others wait for with blocks in hand must not stop everybody
    while (plan.tokens === 0 && this.scheduler.runningCount === 0 && this.scheduler.waitingCount > 0) {
      if (!this.#held.giveUpNewest(nowUs)) break;
      const before = [...preempted];
      plan = this.scheduler.step(nowUs);
      preempted = before.length === 0 ? plan.preempted : [...before, ...plan.preempted];
    }
    const step = this.#step;
    step.preempted = preempted;
    if (plan.tokens === 0) {
      step.sums.clear();
      return step;
    }
    if (this.#held.awaitsAny) for (const request of plan.admitted) this.letGo(request, nowUs);
    for (const request of plan.admitted) this.#countHits(request);
    this.#sumUp(plan);
    step.transferUs = this.#jobs.bill();
    step.admitted = plan.admitted;
    step.leftOut = plan.leftOut;
    const { started, finished, outputTokens } = this.scheduler.stepEnded({}, nowUs);
    step.started = started;
    step.finished = finished;
    step.outputTokens = outputTokens;
    step.thrashedFor = this.#port.takeThrashing();
    return step;
  }

  hold(request: SimRequest, nowUs: number): void {
    this.changes++;
    this.#held.hold(request, nowUs);
  }

  reserve(request: SimRequest, nowUs: number): boolean {
    this.changes++;
    return this.#held.reserve(request, this.scheduler.runningCount === 0, nowUs);
  }

  fill(request: SimRequest, nowUs: number): void {
    this.changes++;
    this.#held.fill(request, nowUs);
  }

  letGo(request: SimRequest, nowUs: number): void {
    this.changes++;
    this.#held.letGo(request, nowUs);
  }

  transferred(flight: number): void {
    this.changes++;
    this.#jobs.land(flight);
  }

  visitState(visitor: StateVisitor, requestOf: (row: number) => SimRequest): void {
    this.manager.visitState(visitor);
    this.#jobs.visitState(visitor);
    this.#held.visitState(visitor);
    visitor.list(this.#hits);
    visitor.fields(this.#received);
    const sequenceOf = (id: SequenceId): Sequence | undefined => this.manager.sequence(id);
    const asking = (row: number): SimRequest => {
      const request = requestOf(row);
      this.#asking.set(request.keys, request);
      return request;
    };
    this.scheduler.visitState(visitor, { nameOf: ({ number }) => number, requestOf: asking, sequenceOf });
  }

  checkIntegrity(): void {
    this.scheduler.checkIntegrity();
    this.manager.checkIntegrity();
  }

  /** A request asks to join the batch. Blocks that were loaded for it beforehand were found where they lay. */
  #noteFound(keys: BlockKeys, byTier: readonly number[]): void {
    const request = this.#asking.get(keys);
    if (request === undefined) return;
    const found = [...byTier];
    for (const [tier, blocks] of (request.announcedByTier ?? []).entries()) {
      if (tier === HBM) continue;
      const moved = Math.min(blocks, found[HBM]);
      found[HBM] -= moved;
      found[tier] += moved;
    }
    request.foundByTier = found;
  }

  #countHits(request: SimRequest): void {
    const { foundByTier, part } = request;
    request.foundByTier = null;
    request.announcedByTier = null;
    for (const [tier, blocks] of (foundByTier ?? []).entries()) {
      if (part === 'decode') this.#received.blocks += blocks;
      else this.#hits[tier] += blocks;
    }
  }

  #sumUp(plan: StepPlan<SimRequest>): void {
    const { sums } = this.#step;
    sums.clear();
    this.#leaving.length = 0;
    this.#leavingTokens.length = 0;
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
      if (request.part !== 'prefill') continue;
      this.#leaving.push(request);
      this.#leavingTokens.push(from + prefill.newTokens);
    }
  }
}

function linksOf(loads: LoadTiming): LinkModel {
  const links = loads.kind === 'deferred' ? loads.links : {};
  return new LinkModel(links, { baseLatencyUs: 10, bandwidthBytesPerS: 25e9 });
}
