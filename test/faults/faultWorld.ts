/**
 * One world of the campaign: requests of three tenants over tiers of a few slots, through the real manager,
 * loop and engine, on stores that fail. Time is virtual. Each request writes bytes that only its tenant's
 * block can have; after every step the manager is audited and every block that a sequence may read is
 * compared with what its tenant wrote.
 */

import { StagingSlots } from '../../src/backends/engine/stagedBatch.ts';
import { MemoryStore } from '../../src/backends/host/memoryStore.ts';
import { ManagerLoop } from '../../src/embed/managerLoop.ts';
import {
  KVManager,
  type Sequence,
  Tier,
  type TierName,
  type TierStore,
  TOP,
  type Transfer,
  tierName,
  tierNames,
} from '../../src/runtime/index.ts';
import type { PoolShape } from '../../src/runtime/tables/slotPool.ts';
import {
  FaultClock,
  FaultDevice,
  FaultHost,
  FaultPlan,
  FaultStore,
  type FaultSurroundings,
  StandInDevice,
  StandInDisk,
} from '../../src/testing/faults.ts';
import { SeededRandom } from '../../src/testing/patternItems.ts';
import { type FaultAccounts, WorldAccounts } from './accounts.ts';
import { Blocks } from './blocks.ts';
import { ObservedEngine } from './observedEngine.ts';
import { Request } from './request.ts';
import { blockBytes, deadlineUs, type WorldConfig, worldConfig } from './worldConfig.ts';

const STEPS_MAX = 200_000;

export interface WorldReport {
  steps: number;
  requests: number;
  reads: number;
  wrongBlocks: number;
  leakedSlots: number;
  losses: number;
}

/** What holds the bytes of a lower tier, under the faults. */
export interface WorldStore extends TierStore {
  /** Undefined where nothing was written. */
  bytesAt(slot: number): Uint8Array | undefined;
}

/** A tier behind all others, which is not one of the package's. */
export interface WorldTier {
  readonly name: TierName;
  open(shape: PoolShape): WorldStore;
}

export class FaultWorld {
  readonly report: WorldReport = {
    steps: 0,
    requests: 0,
    reads: 0,
    wrongBlocks: 0,
    leakedSlots: 0,
    losses: 0,
  };
  readonly clock: FaultClock = new FaultClock();
  readonly random: SeededRandom;
  readonly config: WorldConfig;
  readonly manager: KVManager;
  readonly blocks: Blocks;
  readonly live: Set<Request> = new Set();
  readonly #plan: FaultPlan;
  readonly #verify: boolean;
  readonly #accounts: WorldAccounts;
  #device: { bytes: StandInDevice; store: FaultDevice };
  /** The tiers below the device, by number. */
  readonly #lower: Map<Tier, { bytesAt(slot: number): Uint8Array | undefined; store: FaultStore }> =
    new Map();
  readonly #below: WorldTier | undefined;
  #engine!: ObservedEngine;
  #loop!: ManagerLoop;
  /** Called when there is a device again. */
  #onDevice: (() => void)[] = [];
  #stopping = false;
  #deviceless = false;
  #unfinished = 0;
  #failure: unknown;

  private constructor(seed: number, accounts: FaultAccounts, verify: boolean, below?: WorldTier) {
    this.random = new SeededRandom(seed);
    this.#below = below;
    this.config = worldConfig(this.random, seed, below?.name);
    this.manager = new KVManager({ ...this.config.manager, transferDeadlineUs: deadlineUs });
    this.blocks = new Blocks();
    this.#plan = new FaultPlan(this.config.plan);
    this.#verify = verify;
    this.#accounts = new WorldAccounts(accounts, (transfer) => this.#isRight(transfer));
    this.#device = this.#newDevice();
  }

  /**
   * Runs until `enough` says so, then lets everything come to rest. @throws when it hangs or an invariant
   * breaks
   */
  static async run(
    seed: number,
    accounts: FaultAccounts,
    verify: boolean,
    enough: () => boolean,
    below?: WorldTier,
  ): Promise<WorldReport> {
    const world = new FaultWorld(seed, accounts, verify, below);
    await using stack = new AsyncDisposableStack();
    try {
      await world.#build(stack);
      await world.#drive(enough);
      await world.#rest();
    } catch (error) {
      throw new Error(`world ${seed}, step ${world.report.steps}: ${String(error)}`, { cause: error });
    }
    return world.report;
  }

  get nowUs(): number {
    return this.#engine.nowUs();
  }

  /** Where the sequence's kernels write. */
  get device(): StandInDevice {
    return this.#device.bytes;
  }

  get stopping(): boolean {
    return this.#stopping;
  }

  /**
   * Waits until no block of the sequence is on its way, and for a device: what is written to a lost one is
   * gone.
   */
  async settled(sequence: Sequence): Promise<void> {
    while (sequence.pending > 0 || this.#deviceless) {
      await this.#loop.settled(sequence);
      if (this.#deviceless) await new Promise<void>((wake) => this.#onDevice.push(wake));
    }
  }

  #shape(tier: Tier) {
    return this.manager.config.tiers.find((each) => each.tier === tier)?.shape;
  }

  #surroundings(): FaultSurroundings {
    return {
      plan: this.#plan,
      wait: (delayUs) => this.clock.wait(delayUs),
      onFault: (fault) => this.#accounts.fired(fault),
    };
  }

  #newDevice(): { bytes: StandInDevice; store: FaultDevice } {
    const bytes = new StandInDevice(this.#shape(Tier.HBM)!, { verify: this.#verify });
    return { bytes, store: new FaultDevice(bytes, this.#surroundings()) };
  }

  async #build(stack: AsyncDisposableStack): Promise<void> {
    const hostShape = this.#shape(Tier.DDR);
    const diskShape = this.#shape(Tier.NVME);
    const stores: Record<string, TierStore> = { [tierNames[TOP]]: this.#device.store };
    if (hostShape !== undefined) {
      const host = stack.use(await MemoryStore.open(hostShape, { native: false }));
      const store = new FaultHost(host, this.#surroundings());
      this.#lower.set(Tier.DDR, { bytesAt: (slot) => host.view(slot, 0), store });
    }
    if (diskShape !== undefined) {
      this.#add(Tier.NVME, new StandInDisk(diskShape, { verify: this.#verify }));
    }
    if (this.#below !== undefined) {
      const tier = tierNames.indexOf(this.#below.name);
      this.#add(tier, this.#below.open(this.#shape(tier)!));
    }
    for (const [tier, { store }] of this.#lower) stores[tierName(tier)] = store;
    const staging = stack.use(await StagingSlots.open(blockBytes, this.config.stagingSlots));
    this.#engine = new ObservedEngine(stores, staging, () => this.clock.nowUs / 1000, this.#accounts);
    this.#loop = new ManagerLoop(this.manager, this.#engine, {
      alarm: (delayUs, ring) => this.clock.after(delayUs, ring),
    });
  }

  #add(tier: Tier, bytes: WorldStore): void {
    const store = new FaultStore(bytes, this.#surroundings());
    this.#lower.set(tier, { bytesAt: (slot) => bytes.bytesAt(slot), store });
  }

  async #drive(enough: () => boolean): Promise<void> {
    for (let actor = 0; actor < this.config.actors; actor++) this.#start(() => this.#tenant());
    this.#start(() => this.#operator());
    while (this.#unfinished > 0) {
      if (enough()) this.#stopping = true;
      await this.#step(`${this.#unfinished} actors wait`);
    }
  }

  #start(actor: () => Promise<void>): void {
    this.#unfinished++;
    void actor()
      .catch((error: unknown) => {
        this.#failure ??= error;
      })
      .finally(() => {
        this.#unfinished--;
      });
  }

  async #step(waiting: string): Promise<void> {
    this.report.steps++;
    if (this.report.steps > STEPS_MAX) throw new Error(`hang: ${waiting} after ${STEPS_MAX} steps`);
    if (!(await this.clock.step())) throw new Error(`hang: ${waiting}, and nothing will ever happen`);
    if (this.#failure !== undefined) throw this.#failure;
    this.manager.checkIntegrity();
    for (const request of this.live) this.report.wrongBlocks += request.countWrongBlocks();
  }

  /** One request after the other. */
  async #tenant(): Promise<void> {
    await this.clock.wait(this.random.below(200));
    while (!this.#stopping) {
      this.report.requests++;
      await new Request(this).run();
      await this.clock.wait(this.random.below(100));
    }
  }

  /** Loses the device now and then, gives stalled I/O up, evicts and prefetches. */
  async #operator(): Promise<void> {
    while (!this.#stopping) {
      await this.clock.wait(300 + this.random.below(1500));
      if (this.random.chance(this.config.lossRate)) await this.#loseDevice();
      if (this.random.chance(0.2)) this.#releaseStalled();
      if (this.random.chance(0.3)) {
        const position = this.random.below(this.manager.config.tiers.length);
        this.manager.evict(position, 1 + this.random.below(3), this.nowUs);
      }
      if (this.random.chance(0.3)) {
        const chain = this.blocks.chain(this.random, this.config.blocksMax);
        this.manager.prefetch(chain.keys, chain.blocks, this.nowUs);
      }
    }
  }

  /** What the runtime does when its device is gone: tell the manager, get another one, go on. */
  async #loseDevice(): Promise<void> {
    this.report.losses++;
    this.#device.store.lose();
    this.#deviceless = true;
    this.#loop.carrier.hold();
    this.manager.loseTier(0, this.nowUs);
    this.#accounts.lossNoticed();
    await this.clock.wait(this.random.below(2 * deadlineUs));
    this.#device = this.#newDevice();
    this.#engine.replaceStore('hbm', this.#device.store);
    this.#deviceless = false;
    this.#loop.carrier.resume();
    for (const wake of this.#onDevice.splice(0)) wake();
  }

  #releaseStalled(): void {
    this.#device.store.releaseStalled();
    for (const { store } of this.#lower.values()) store.releaseStalled();
  }

  /** After the last request: when the stores are idle, nothing may be left behind. */
  async #rest(): Promise<void> {
    this.#plan.pause();
    this.#releaseStalled();
    for (this.clock.after(0, () => {}); this.clock.pending > 0; ) await this.#step('at rest');
    const { manager } = this;
    if (manager.inspect.jobsInFlight + manager.inspect.jobsOverdue + this.#engine.inFlight !== 0) {
      throw new Error(`hang: ${manager.inspect.jobsInFlight} jobs never ended`);
    }
    if (manager.inspect.openSequences !== 0) throw new Error('a sequence was left open');
    for (let tier = 0; tier < manager.config.tiers.length; tier++) {
      const { slots, residentBytes, cachedBytes, heldBytes } = manager.inspect.usage(tier);
      this.report.leakedSlots += slots.reserved + slots.filling + slots.open + slots.draining;
      if (heldBytes !== 0 || residentBytes !== cachedBytes) this.report.leakedSlots++;
    }
  }

  #isRight(transfer: Transfer): boolean {
    const { tier, slot } = transfer.target;
    const holder = tier === Tier.HBM ? this.#device.bytes : this.#lower.get(tier);
    const bytes = holder?.bytesAt(slot);
    return bytes !== undefined && this.blocks.isRight(transfer.key, bytes);
  }
}
