/**
 * The engine of a simulated instance: the real scheduler on the real manager. A request that waits for blocks is
 * told when they have arrived.
 */

import type { StepPlan } from '../../runtime/batching/batch.ts';
import { resolveSchedulerConfig } from '../../runtime/batching/config.ts';
import { ManagerPort, type ManagerPortConfig } from '../../runtime/batching/kvPort.ts';
import { Scheduler } from '../../runtime/batching/scheduler.ts';
import { invariant } from '../../runtime/errors.ts';
import { type DecisionSink, JobCarrier, KVManager } from '../../runtime/index.ts';
import type { BlockKeys } from '../../runtime/keys/keyChain.ts';
import type { ManagerListener } from '../../runtime/manager/core.ts';
import type { Sequence, SequenceId } from '../../runtime/manager/sequence.ts';
import { isLoadBetter, squaresOf } from '../../runtime/planning/loadOrRecompute.ts';
import type { StateVisitor } from '../../runtime/snapshot.ts';
import { linkName, type Tier, TOP } from '../../runtime/tier/tier.ts';
import { BatchSums } from '../latency/latencyModel.ts';
import { type LinkModel, modeledDigest, type Timeline } from '../links/modeledDriver.ts';
import { AdapterSlots } from './adapterSlots.ts';
import {
  type CacheListener,
  checkEngineConfig,
  countersOf,
  type EngineConfig,
  type EngineCounters,
  type EngineStep,
  type EngineTraffic,
  type InstanceEngine,
  type LoadTiming,
  linksOf,
  managerConfigOf,
  type TierReport,
  tiersOf,
  trafficOf,
} from './engine.ts';
import { InstanceDriver, type InstanceShare } from './instanceDriver.ts';
import { SideSequences } from './sideSequences.ts';
import type { SimRequest } from './simRequest.ts';

const noRequests: readonly SimRequest[] = [];

/** Prefill of the plan, as the latency model counts it. */
interface Prefill {
  promptTokens: number;
  progressTokens: number;
  newTokens: number;
  outputTokens: number;
}

/** Told when a request that waited for its blocks may go on. */
type Woken = () => void;

export class SchedulerEngine implements InstanceEngine {
  readonly overlapsLastStep: boolean = false;
  changes = 0;
  readonly config: EngineConfig;
  readonly manager: KVManager;
  protected readonly scheduler: Scheduler<SimRequest>;
  readonly #driver: InstanceDriver;
  /** To be called after each call of the manager that may have issued jobs. */
  readonly #afterCall: (nowUs: number) => void;
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

  readonly #shared: InstanceShare | null;
  readonly #side: SideSequences | null;
  readonly #adapters: AdapterSlots | null;

  /**
   * @param timeline where modeled transfers wait for their end; used with deferred loads only
   * @param sink takes what manager and scheduler are given and decide
   * @param shared the tier that instances share, where the configuration has one
   * @throws TKV_CONFIG with the field at fault
   */
  constructor(
    config: EngineConfig,
    timeline: Timeline,
    woken: Woken,
    sink: DecisionSink | null = null,
    shared: InstanceShare | null = null,
  ) {
    this.config = checkEngineConfig(config);
    invariant(
      config.shared === undefined || shared !== null,
      'an engine whose last tier is shared is given it',
    );
    this.#shared = config.shared === undefined ? null : shared;
    this.manager = new KVManager(managerConfigOf(config), sink);
    const {
      blockTokens,
      blockBytes,
      computeUsPerToken,
      computeUsPerTokenSquared = 0,
      loads,
      lowerTiers,
    } = config;
    const links = loads.kind === 'deferred' && lowerTiers.length > 0 ? linksOf(loads) : null;
    this.#prefetches = links !== null && loads.kind === 'deferred' && loads.prefetch;
    const tiers = this.manager.inspect.tiers;
    const driver = new InstanceDriver({ tiers, loads, links, shared: this.#shared }, timeline);
    this.#driver = driver;
    const carrier = new JobCarrier(this.manager, driver);
    const afterCall = (now: number): void => {
      driver.setNow(now);
      carrier.submit();
    };
    this.#afterCall = afterCall;
    const nowUs = (): number => timeline.nowUs;
    this.#hits = this.manager.inspect.tiers.map(() => 0);
    const crowd = () => {
      const { loadingCount: loading, waitingCount } = this.scheduler;
      // loads that began at arrival are under way too, or hold what they brought
      return { loading: loading + this.#held.announced, waiting: waitingCount - loading };
    };
    const estimate = {
      loads,
      blockBytes,
      computeUsPerToken,
      computeUsPerTokenSquared,
      links,
      nowUs,
      crowd,
      shared: this.#shared,
    };
    this.#side = config.side === undefined ? null : new SideSequences(config.side, this.manager, blockTokens);
    this.#adapters = config.adapters === undefined ? null : new AdapterSlots(config.adapters);
    const adapters = this.#adapters;
    const port = new ChoosingPort(
      this.manager,
      { blockTokens, afterCall },
      this.#side,
      adapters === null ? null : { slots: adapters, of: (keys) => this.#asking.get(keys)?.adapter ?? '' },
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
      sums: new BatchSums(config.side?.windowTokens),
      transferUs: 0,
      admitted: noRequests,
      preempted: noRequests,
      leftOut: noRequests,
      leaving: this.#leaving,
      leavingTokens: this.#leavingTokens,
      started: noRequests,
      finished: noRequests,
      outputTokens: [],
      thrashedFor: [],
    };
    this.#wakes = links === null ? {} : { settled: woken, roomFreed: woken };
    if (links !== null) this.manager.listen(this.#wakes);
  }

  get capacityBlocks(): number {
    return this.config.topBlocks;
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

  get counters(): EngineCounters {
    const losesLoads = this.#shared !== null;
    return countersOf(this.manager, this.scheduler.counters, this.#hits, this.#received.blocks, losesLoads);
  }

  tiers(): TierReport[] {
    return tiersOf(this.manager, this.blockBytes, this.#shared?.server ?? null);
  }

  traffic(): EngineTraffic {
    return trafficOf(this.manager, this.blockBytes, this.counters.hits, this.#driver.flights);
  }

  watchCache({ stored, removed, moved }: CacheListener): void {
    this.#driver.moved = moved ?? null;
    this.manager.listen({ ...this.#wakes, stored: (tier, { key }) => stored(tier, key), removed });
  }

  cachedBlocks(keys: BlockKeys, count: number): number {
    if (this.config.lowerTiers.length === 0) return this.manager.matchLength(keys.words, count);
    return this.manager.lookup(keys.words, count).byTier[TOP];
  }

  cachedByTier(keys: BlockKeys, count: number): readonly number[] {
    return this.manager.lookup(keys.words, count).byTier;
  }

  announce(request: SimRequest, nowUs: number, slackUs: number): void {
    if (!this.#prefetches) return;
    this.changes++;
    this.#findShared(request, nowUs);
    this.#held.announce(request, nowUs, slackUs);
  }

  add(request: SimRequest, nowUs: number): void {
    this.changes++;
    this.#findShared(request, nowUs);
    this.#held.added(request, nowUs);
    this.#asking.set(request.keys, request);
    this.scheduler.add(request, nowUs);
  }

  generatedOf({ id, promptTokens, part }: SimRequest): number {
    const known = this.scheduler.progress(id)?.knownTokens ?? 0;
    // the token of a part that only computes a prompt is another instance's
    return part === 'prefill' ? 0 : Math.max(0, known - promptTokens);
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
    step.transferUs = this.#driver.bill() + this.#loadAdapters(plan.admitted);
    step.admitted = plan.admitted;
    step.leftOut = plan.leftOut;
    const { started, finished, outputTokens } = this.scheduler.stepEnded({}, nowUs);
    step.started = started;
    step.finished = finished;
    step.outputTokens = outputTokens;
    step.thrashedFor = this.#port.takeThrashing();
    return step;
  }

  get adapters(): readonly string[] {
    return this.#adapters?.resident ?? [];
  }

  get adapterLoads(): number {
    return this.#adapters?.loads ?? 0;
  }

  /** Time of the loads that the step waits for, one after the other. */
  #loadAdapters(admitted: readonly SimRequest[]): number {
    if (this.#adapters === null) return 0;
    let us = 0;
    for (const { adapter } of admitted) us += this.#adapters.use(adapter);
    return us;
  }

  hold(request: SimRequest, nowUs: number): void {
    this.changes++;
    this.#held.hold(request, nowUs);
  }

  reserve(request: SimRequest, nowUs: number): boolean {
    this.changes++;
    return this.#held.reserve(request, this.scheduler.runningCount === 0, nowUs);
  }

  foundOf(request: SimRequest): number {
    return this.#held.foundOf(request);
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
    this.#driver.land(flight, this.manager);
  }

  visitState(visitor: StateVisitor, requestOf: (row: number) => SimRequest): void {
    this.manager.visitState(visitor);
    this.#driver.visitState(visitor);
    this.#held.visitState(visitor);
    this.#side?.visitState(visitor);
    this.#adapters?.visitState(visitor);
    this.#port.visitState(visitor, (id) => this.manager.inspect.sequence(id));
    visitor.list(this.#hits);
    visitor.fields(this.#received);
    const sequenceOf = (id: SequenceId): Sequence | undefined => this.manager.inspect.sequence(id);
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

  /** Makes known which blocks of the prompt the shared tier has, behind the ones that the instance has itself. */
  #findShared({ keys, promptBlocks }: SimRequest, nowUs: number): void {
    if (this.#shared === null) return;
    const { manager } = this;
    const { blockTokens } = this.config;
    const { server, space } = this.#shared;
    const { words } = keys;
    const to = Math.min(promptBlocks, keys.length);
    const from = manager.matchLength(words, to);
    if (from >= to) return;
    const position = manager.inspect.tiers.length - 1;
    const found = server.find(space, words, from, to);
    for (let i = from; i < from + found; i++) {
      const key = words.slice(4 * i, 4 * i + 4);
      const parent = i === 0 ? new Uint32Array(4) : words.slice(4 * i - 4, 4 * i);
      const digest = modeledDigest(key);
      manager.adoptFound(
        position,
        { key, parent, digest, tokens: blockTokens, sizeClass: 0, owner: 0 },
        nowUs,
      );
    }
    this.#afterCall(nowUs);
  }

  /** A request asks to join the batch. Blocks that were loaded for it beforehand were found where they lay. */
  #noteFound(keys: BlockKeys, byTier: readonly number[]): void {
    const request = this.#asking.get(keys);
    if (request === undefined) return;
    const found = [...byTier];
    for (const [tier, blocks] of (request.announcedByTier ?? []).entries()) {
      if (tier === TOP) continue;
      const moved = Math.min(blocks, found[TOP]);
      found[TOP] -= moved;
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

  /** Sums the tokens that each decode sees in its window: a walk over the batch, for models that have a window. */
  #sumWindows(plan: StepPlan<SimRequest>): void {
    const { sums } = this.#step;
    let windowTokens = 0;
    for (let seat = plan.first(); seat !== -1; seat = plan.next(seat)) {
      const from = plan.from(seat);
      if (plan.tokensOf(seat) === 1 && plan.knownTokensOf(seat) === from + 1)
        windowTokens += sums.inWindow(from);
    }
    // a prefill of its last token looks the same, and counts elsewhere
    for (let seat = plan.firstPrefill(); seat !== -1; seat = plan.nextPrefill(seat)) {
      const from = plan.from(seat);
      if (plan.tokensOf(seat) === 1 && plan.knownTokensOf(seat) === from + 1)
        windowTokens -= sums.inWindow(from);
    }
    sums.addDecodes(plan.decodes, plan.decodeContextTokens, windowTokens);
  }

  #sumUp(plan: StepPlan<SimRequest>): void {
    const { sums } = this.#step;
    sums.clear();
    this.#leaving.length = 0;
    this.#leavingTokens.length = 0;
    if (sums.windowTokens > 0) this.#sumWindows(plan);
    else sums.addDecodes(plan.decodes, plan.decodeContextTokens);
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

// Blocks pinned outside the scheduler: loaded for a request on its way here, leaving to another instance with their
// prompt, or reserved for KV that another instance sends. Each is a
// sequence of the manager, by the request's row.

/** Share of HBM that stays free for the tokens of decoding requests when blocks come from elsewhere. */
const HEADROOM_SHARE = 1 / 16;

class HeldBlocks {
  readonly #announced = new Map<number, Sequence>();
  readonly #leaving = new Map<number, Sequence>();
  readonly #coming = new Map<number, Sequence>();
  readonly #manager: KVManager;
  readonly #port: ChoosingPort;
  readonly #config: EngineConfig;
  readonly #afterCall: (nowUs: number) => void;

  constructor(
    manager: KVManager,
    port: ChoosingPort,
    config: EngineConfig,
    afterCall: (nowUs: number) => void,
  ) {
    this.#manager = manager;
    this.#port = port;
    this.#config = config;
    this.#afterCall = afterCall;
  }

  /** Whether any is room for blocks from elsewhere. */
  get awaitsAny(): boolean {
    return this.#coming.size > 0;
  }

  /** Requests whose loads began before the scheduler looks for them. */
  get announced(): number {
    return this.#announced.size;
  }

  /** Loads blocks of a request that will be added after `slackUs`, where that is worthwhile. */
  announce(request: SimRequest, nowUs: number, slackUs: number): void {
    const manager = this.#manager;
    const { keys } = request;
    const found = manager.matchLength(keys.words, Math.min(request.promptBlocks, keys.length));
    if (found === 0) return;
    const blocks = this.#port.worthwhile(keys, found, slackUs);
    const { byTier } = manager.lookup(keys.words, blocks);
    if (byTier[TOP] === blocks) return;
    // the sequence keeps the blocks from being evicted until the scheduler looks for them
    const before = this.#port.hitsByTier();
    const sequence = manager.open(keys.words, blocks, nowUs, blocks);
    const byTierFound = this.#port.hitsSince(before);
    const { thrashed } = manager.inspect.counters;
    const fits = manager.load(sequence, nowUs);
    this.#port.noteThrashing(keys, thrashed);
    if (fits) {
      this.#announced.set(request.number, sequence);
      request.announcedByTier = byTierFound;
    } else manager.release(sequence, nowUs);
    this.#afterCall(nowUs);
  }

  /** The scheduler looks for the blocks of the request now. */
  added(request: SimRequest, nowUs: number): void {
    if (this.#announced.size > 0) this.#release(this.#announced, request.number, nowUs);
  }

  /** Keeps the cached blocks of the request's prompt from being evicted. */
  hold(request: SimRequest, nowUs: number): void {
    const { keys } = request;
    const blocks = Math.min(request.promptBlocks, keys.length);
    this.#leaving.set(request.number, this.#manager.open(keys.words, blocks, nowUs, blocks));
  }

  /**
   * Takes room for the request's prompt.
   * @param isIdle whether no request runs, so that no head room is needed
   * @returns false, with nothing taken, when the room is not there
   */
  reserve(request: SimRequest, isIdle: boolean, nowUs: number): boolean {
    const manager = this.#manager;
    const { keys, promptBlocks } = request;
    const blocks = Math.min(promptBlocks, keys.length);
    const here = this.#port.leadingHere(keys, manager.matchLength(keys.words, blocks));
    const spare = Math.ceil(this.#config.topBlocks * HEADROOM_SHARE);
    const isAlone = this.#coming.size === 0 && isIdle;
    if (!manager.canOpen(keys.words, here, blocks + (isAlone ? 0 : spare))) return false;
    const sequence = manager.open(keys.words, blocks, nowUs, here);
    const fits = manager.allocate(sequence, here, blocks, nowUs);
    this.#afterCall(nowUs);
    // a slot whose block is still on its way down is not free yet
    if (!fits || sequence.pending > 0) {
      manager.release(sequence, nowUs);
      this.#afterCall(nowUs);
      return false;
    }
    this.#coming.set(request.number, sequence);
    return true;
  }

  /** Leading blocks of a prompt for which room was taken that were there before. */
  foundOf(request: SimRequest): number {
    return this.#coming.get(request.number)?.matched ?? 0;
  }

  /** The blocks for which room was taken are there. */
  fill(request: SimRequest, nowUs: number): void {
    const sequence = this.#coming.get(request.number);
    if (sequence === undefined) return;
    const { words } = request.keys;
    const { matched, length } = sequence;
    const { blockTokens } = this.#config;
    this.#manager.seal(sequence, matched, length, words, 4 * matched, blockTokens, nowUs);
    this.#afterCall(nowUs);
  }

  /** Ends what `announce`, `hold` or `reserve` began. */
  letGo(request: SimRequest, nowUs: number): void {
    this.added(request, nowUs);
    const held = this.#coming.has(request.number) ? this.#coming : this.#leaving;
    this.#release(held, request.number, nowUs);
  }

  /**
   * Lets the room go that was taken last for a request from elsewhere: it will compute its prompt here.
   * @returns false when no room was taken
   */
  giveUpNewest(nowUs: number): boolean {
    const newest = [...this.#coming.keys()].at(-1);
    if (newest === undefined) return false;
    this.#release(this.#coming, newest, nowUs);
    return true;
  }

  /** The manager's state is brought back before. */
  visitState(visitor: StateVisitor): void {
    for (const held of [this.#announced, this.#leaving, this.#coming]) {
      visitor.value(
        () => [...held].map(([row, { id }]) => [row, id] as const),
        (saved) => {
          held.clear();
          for (const [row, id] of saved)
            held.set(row, this.#manager.inspect.sequence(id as SequenceId) as Sequence);
        },
      );
    }
  }

  #release(held: Map<number, Sequence>, row: number, nowUs: number): void {
    const sequence = held.get(row);
    if (sequence === undefined) return;
    held.delete(row);
    this.#manager.release(sequence, nowUs);
    this.#afterCall(nowUs);
  }
}

// Whether blocks of lower tiers are worth their transfer: a request takes them when that delays all requests
// less than to compute them again. The choice is made when the request asks to join the batch, and
// once before, on its arrival, when its queueing time hides part of the transfer.

/** How long loads and computing take, as far as a request can know before. */
interface LinkLoadEstimate {
  readonly loads: LoadTiming;
  readonly blockBytes: number;
  /** Time of a token, from the engine's configuration. Infinity: every cached block is loaded. */
  readonly computeUsPerToken: number;
  readonly computeUsPerTokenSquared: number;
  /** Null where loads take no time of their own. */
  readonly links: LinkModel | null;
  readonly shared: InstanceShare | null;
  readonly nowUs: () => number;
  /** Requests by what they do: what one of them takes delays others. */
  readonly crowd: () => { readonly waiting: number; readonly loading: number };
}

/** Adapters of an engine, and the one under which a request with these keys runs. */
interface AdapterPort {
  readonly slots: AdapterSlots;
  readonly of: (keys: BlockKeys) => string;
}

class ChoosingPort extends ManagerPort {
  readonly #manager: KVManager;
  readonly #estimate: LinkLoadEstimate;
  readonly #makeRoom: (nowUs: number) => boolean;
  readonly #found: (keys: BlockKeys, byTier: readonly number[]) => void;
  readonly #openedUnder = new WeakMap<Sequence, BlockKeys>();
  /** Null where adapters cost nothing. */
  readonly #adapters: AdapterPort | null;
  readonly #adapterOf = new Map<Sequence, string>();
  /** Null where sequences hold nothing beside the blocks of their tokens. */
  readonly #side: SideSequences | null;
  #thrashing: BlockKeys[] = [];

  /**
   * @param makeRoom lets go of blocks that are held for a request that waits; false when no blocks are held
   * @param found told what a request with these keys found when it asked to join the batch, by tier
   */
  constructor(
    manager: KVManager,
    config: ManagerPortConfig,
    side: SideSequences | null,
    adapters: AdapterPort | null,
    estimate: LinkLoadEstimate,
    makeRoom: (nowUs: number) => boolean,
    found: (keys: BlockKeys, byTier: readonly number[]) => void,
  ) {
    super(manager, config);
    this.#manager = manager;
    this.#side = side;
    this.#adapters = adapters;
    this.#estimate = estimate;
    this.#makeRoom = makeRoom;
    this.#found = found;
  }

  override canOpen(keys: BlockKeys, matched: number, blocks: number, owner?: number): boolean {
    const beside = this.#side?.count(blocks, blocks - matched) ?? 0;
    return super.canOpen(keys, matched, blocks + beside, owner);
  }

  override canAllocate(blocks: number): boolean {
    return super.canAllocate(this.#side === null ? blocks : this.#side.most(blocks));
  }

  /** Who runs goes before who waits. */
  override allocate(sequence: Sequence, from: number, to: number, nowUs: number): boolean {
    while (!this.#fit(sequence, from, to, nowUs)) if (!this.#makeRoom(nowUs)) return false;
    return true;
  }

  /** Opens blocks and what lies beside them; false, with nothing taken, where they do not fit. */
  #fit(sequence: Sequence, from: number, to: number, nowUs: number): boolean {
    const side = this.#side;
    if (side === null) return super.allocate(sequence, from, to, nowUs);
    const before = side.heldBy(sequence);
    if (!side.resize(sequence, side.count(to, to - from), nowUs)) return false;
    if (super.allocate(sequence, from, to, nowUs)) return true;
    side.resize(sequence, Math.min(before, side.heldBy(sequence)), nowUs);
    return false;
  }

  mayJoin(keys: BlockKeys): boolean {
    return this.#adapters === null || this.#adapters.slots.mayJoin(this.#adapters.of(keys));
  }

  /** The sequence is about to end: what lies beside it goes, and its adapter has a user less. */
  #close(sequence: Sequence, nowUs: number): void {
    this.#side?.close(sequence, nowUs);
    const adapter = this.#adapterOf.get(sequence);
    if (adapter === undefined) return;
    this.#adapterOf.delete(sequence);
    this.#adapters?.slots.end(adapter);
  }

  /** The manager's state is brought back before. */
  visitState(visitor: StateVisitor, sequenceOf: (id: SequenceId) => Sequence | undefined): void {
    visitor.value(
      () => [...this.#adapterOf].map(([{ id }, adapter]) => [id, adapter] as const),
      (saved) => {
        this.#adapterOf.clear();
        for (const [id, adapter] of saved)
          this.#adapterOf.set(sequenceOf(id as SequenceId) as Sequence, adapter);
      },
    );
  }

  override release(sequence: Sequence, nowUs: number): void {
    this.#close(sequence, nowUs);
    super.release(sequence, nowUs);
  }

  override cancel(sequence: Sequence, nowUs: number): void {
    this.#close(sequence, nowUs);
    super.cancel(sequence, nowUs);
  }

  override preempt(sequence: Sequence, offload: boolean, nowUs: number): void {
    this.#close(sequence, nowUs);
    super.preempt(sequence, offload, nowUs);
  }

  override open(
    keys: BlockKeys,
    count: number,
    matchLimit: number,
    nowUs: number,
    owner?: number,
    room?: number,
  ): Sequence {
    const before = this.hitsByTier();
    const sequence = super.open(keys, count, matchLimit, nowUs, owner, room);
    this.#found(keys, this.hitsSince(before));
    if (this.hasLowerTier) this.#openedUnder.set(sequence, keys);
    const adapter = this.#adapters?.of(keys) ?? '';
    if (adapter !== '') {
      this.#adapterOf.set(sequence, adapter);
      this.#adapters?.slots.begin(adapter);
    }
    return sequence;
  }

  /** Every matched block so far, by the tier in which it was found, whatever came of it. */
  hitsByTier(): readonly number[] {
    return [...this.#manager.inspect.counters.hits];
  }

  hitsSince(before: readonly number[]): readonly number[] {
    return before.map((count, tier) => this.#manager.inspect.counters.hits[tier] - count);
  }

  override load(sequence: Sequence, nowUs: number): boolean {
    const before = this.#manager.inspect.counters.thrashed;
    const fits = super.load(sequence, nowUs);
    this.noteThrashing(this.#openedUnder.get(sequence), before);
    return fits;
  }

  override loadFromBack(sequence: Sequence, from: number, to: number, nowUs: number): boolean {
    const before = this.#manager.inspect.counters.thrashed;
    const fits = super.loadFromBack(sequence, from, to, nowUs);
    this.noteThrashing(this.#openedUnder.get(sequence), before);
    return fits;
  }

  /** @param before reloads that counted as thrashing before the load for a request with these keys */
  noteThrashing(keys: BlockKeys | undefined, before: number): void {
    if (keys !== undefined && this.#manager.inspect.counters.thrashed > before) this.#thrashing.push(keys);
  }

  /**
   * Keys of the requests whose loads were thrashing since the last call. Told to observers only, so a
   * snapshot leaves them out.
   */
  takeThrashing(): readonly BlockKeys[] {
    const taken = this.#thrashing;
    if (taken.length > 0) this.#thrashing = [];
    return taken;
  }

  override matchLength(keys: BlockKeys, count: number): number {
    const found = super.matchLength(keys, count);
    return this.hasLowerTier && found > 0 ? this.worthwhile(keys, found, 0) : found;
  }

  /**
   * How many of the `found` leading blocks the request should take.
   * @param slackUs time that passes anyway before it can run
   */
  worthwhile(keys: BlockKeys, found: number, slackUs: number): number {
    const { computeUsPerToken, computeUsPerTokenSquared, crowd } = this.#estimate;
    if (computeUsPerToken === Infinity) return found;
    const { byTier, pending } = this.#manager.lookup(keys.words, found);
    const here = byTier[TOP] - Math.min(pending, byTier[TOP]);
    const missing = found - here;
    if (missing === 0) return found;
    const squares = squaresOf(here * this.blockTokens, found * this.blockTokens);
    const computeUs = missing * this.blockTokens * computeUsPerToken + computeUsPerTokenSquared * squares;
    const load = this.#loadUs(byTier, pending);
    const choice = { computeUs, ...load, slackUs, roomShare: found / this.capacityBlocks, ...crowd() };
    return isLoadBetter(choice) ? found : this.leadingHere(keys, found);
  }

  /** From now until the blocks below, and those on their way, are in HBM; and how long the links carry them. */
  #loadUs(byTier: readonly number[], pending: number): { readonly loadUs: number; readonly linkUs: number } {
    const { loads, links, blockBytes, nowUs, shared } = this.#estimate;
    if (loads.kind === 'billed') {
      const below = byTier.reduce((sum, blocks, tier) => sum + (tier === TOP ? 0 : blocks), 0);
      const loadUs = below * Math.trunc(loads.baseUs + loads.usPerBlock);
      return { loadUs, linkUs: loadUs };
    }
    let longestUs = 0;
    let linkUs = 0;
    for (const [position, tier] of this.#manager.inspect.tiers.entries()) {
      if (position === TOP || links === null) continue;
      const blocks = byTier[position];
      if (blocks === 0 && pending === 0) continue;
      const top = this.#manager.inspect.tiers[TOP];
      const ownQueueUs = Math.max(0, links.freeAtUs(linkName(tier, top)) - nowUs());
      let blockUs = links.transferUs(tier as Tier, top, blockBytes);
      let queuedUs = ownQueueUs;
      if (shared !== null && position === this.#manager.inspect.tiers.length - 1) {
        queuedUs = Math.max(ownQueueUs, shared.server.readQueueUs(nowUs()));
        const wholeBytes = shared.ranks * blockBytes;
        blockUs = Math.max(blockUs, Math.ceil((wholeBytes * 1e6) / shared.server.config.readBytesPerS));
      }
      const ownUs = blocks * blockUs;
      longestUs = Math.max(longestUs, queuedUs + ownUs);
      linkUs = Math.max(linkUs, ownUs);
    }
    return { loadUs: longestUs, linkUs };
  }

  /** Leading blocks that lie in HBM and can be read now. */
  leadingHere(keys: BlockKeys, found: number): number {
    let low = 0;
    let high = found;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      const { byTier, pending } = this.#manager.lookup(keys.words, middle);
      if (byTier[TOP] === middle && pending === 0) low = middle;
      else high = middle - 1;
    }
    return low;
  }
}
