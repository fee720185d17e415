/**
 * Requests that touch HBM and DDR alone take as long over a disk whose every write takes half a second as
 * without a disk, and a demand load overtakes write-backs. The real manager, loop and engine in virtual time.
 */

import { describe, expect, it } from 'vitest';
import { StagingSlots } from '../../../src/backends/engine/stagedBatch.ts';
import { TransferEngine } from '../../../src/backends/engine/transferEngine.ts';
import { MemoryStore } from '../../../src/backends/host/memoryStore.ts';
import { ManagerLoop } from '../../../src/embed/managerLoop.ts';
import { KVManager, type ManagerConfig, type Sequence, type TierStore } from '../../../src/runtime/index.ts';
import type { TopTierStore } from '../../../src/runtime/tier/tierStore.ts';
import { FaultClock, StandInDevice, StandInDisk, settled } from '../../../src/testing/faults.ts';

const BLOCK = 64;
const WRITE_US = 500_000;
const MOVE_US = 200;

/** The store with calls that take their time. */
function slowed<Store extends TierStore>(
  store: Store,
  clock: FaultClock,
  writeUs: number,
  readUs: number,
): Store {
  return new Proxy(store, {
    get(target, name) {
      const value: unknown = Reflect.get(target, name, target);
      if (typeof value !== 'function') return value;
      const delayUs = name === 'write' ? writeUs : name === 'read' || name === 'seal' ? readUs : 0;
      return async (...args: unknown[]) => {
        if (delayUs > 0) await clock.wait(delayUs);
        return value.apply(target, args);
      };
    },
  });
}

class World implements AsyncDisposable {
  readonly clock: FaultClock = new FaultClock();
  readonly manager: KVManager;
  readonly loop: ManagerLoop;
  readonly engine: TransferEngine;
  readonly #closing: AsyncDisposable[];

  private constructor(
    manager: KVManager,
    hbm: TopTierStore,
    rest: AsyncDisposable[],
    make: (world: World) => TransferEngine,
  ) {
    this.manager = manager;
    this.#closing = [hbm, ...rest];
    this.engine = make(this);
    this.loop = new ManagerLoop(manager, this.engine, {
      alarm: (delayUs, ring) => this.clock.after(delayUs, ring),
    });
  }

  static async open(withDisk: boolean): Promise<World> {
    const size = (blocks: number, landing: number) => ({
      capacityBytes: BLOCK * blocks,
      landingBytes: BLOCK * landing,
    });
    const config: ManagerConfig = {
      unitBytes: [BLOCK],
      hbm: size(24, 4),
      ddr: size(64, 8),
      ...(withDisk ? { nvme: size(4000, 16) } : {}),
      leavingShare: 0.5,
    };
    const manager = new KVManager(config);
    const [hbmShape, ddrShape, nvmeShape] = manager.config.tiers.map(({ shape }) => shape);
    const device = new StandInDevice(hbmShape);
    const ddr = await MemoryStore.open(ddrShape, { native: false });
    const staging = await StagingSlots.open(BLOCK, 8);
    const disk = nvmeShape === undefined ? undefined : new StandInDisk(nvmeShape);
    return new World(manager, device, [ddr], ({ clock }) => {
      const stores = {
        hbm: slowed(device, clock, MOVE_US, MOVE_US),
        ddr,
        ...(disk === undefined ? {} : { nvme: slowed(disk, clock, WRITE_US, MOVE_US) }),
      };
      return new TransferEngine(stores, staging, () => clock.nowUs / 1000);
    });
  }

  get nowUs(): number {
    return this.engine.nowUs();
  }

  /**
   * Serves a prompt of four blocks. @returns how long its blocks took to come, and to be sealed, in
   * microseconds
   */
  async serve(prompt: number): Promise<{ beginUs: number; sealUs: number }> {
    const { manager } = this;
    const keys = new Uint32Array(16);
    for (let i = 0; i < 4; i++) keys.set([prompt, i, 1, 2], i * 4);
    const startUs = this.nowUs;
    const sequence: Sequence = manager.open(keys, 4, this.nowUs);
    expect(manager.load(sequence, this.nowUs)).toBe(true);
    expect(manager.allocate(sequence, 0, 4, this.nowUs)).toBe(true);
    await this.loop.settled(sequence);
    const beginUs = this.nowUs - startUs;
    const sealingUs = this.nowUs;
    for (let i = 0; i < 4; i++) {
      if (manager.openBlock(sequence, i) !== undefined)
        manager.seal(sequence, i, i + 1, keys, i * 4, 16, this.nowUs);
    }
    await this.loop.settled(sequence);
    const sealUs = this.nowUs - sealingUs;
    manager.release(sequence, this.nowUs);
    manager.checkIntegrity();
    return { beginUs, sealUs };
  }

  /** Runs the work with the clock. */
  async run<T>(work: Promise<T>): Promise<T> {
    let over = false;
    const end = work.finally(() => {
      over = true;
    });
    await settled();
    for (let steps = 0; !over; steps++) {
      if (steps > 500_000) throw new Error('the work never ends');
      await this.clock.step();
    }
    return end;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    while (this.clock.pending > 0) await this.clock.step();
    for (const each of this.#closing) await each[Symbol.asyncDispose]();
  }
}

/** A hot set that stays in HBM and DDR, beside prompts that are used once and pushed down. */
async function traffic(world: World): Promise<{ hot: number[]; seals: number[] }> {
  const hot: number[] = [];
  const seals: number[] = [];
  for (let round = 0; round < 100; round++) {
    const warm = await world.serve(1 + (round % 8));
    const cold = await world.serve(1000 + round);
    if (round >= 16) hot.push(warm.beginUs);
    seals.push(warm.sealUs, cold.sealUs);
  }
  return { hot, seals };
}

describe('over a disk whose every write takes half a second', () => {
  it('begin and seal of requests in HBM and DDR end as fast as without the disk', async () => {
    await using fast = await World.open(false);
    await using slow = await World.open(true);
    const without = await fast.run(traffic(fast));
    const over = await slow.run(traffic(slow));
    expect(slow.manager.inspect.counters.demotions[1], 'the disk is written to').toBeGreaterThan(0);
    expect(slow.manager.inspect.counters.hits[1], 'DDR is hit').toBeGreaterThan(50);
    expect(Math.max(...over.hot)).toBeLessThanOrEqual(Math.max(...without.hot));
    expect(Math.max(...over.seals)).toBeLessThanOrEqual(Math.max(...without.seals));
  });

  it('a demand load from the disk overtakes write-backs, and its end does not wait for theirs', async () => {
    await using world = await World.open(true);
    await world.run(world.serve(1));
    for (const position of [0, 1]) {
      world.manager.evict(position, 4, world.nowUs);
      await world.run(world.loop.idle());
    }
    expect(world.manager.inspect.usage(2).slots.ready).toBe(4);
    await world.run(world.serve(2));
    world.manager.evict(0, 4, world.nowUs);
    await world.run(world.loop.idle());
    world.manager.evict(1, 4, world.nowUs);
    const { beginUs } = await world.run(world.serve(1));
    expect(beginUs).toBeLessThan(WRITE_US / 100);
    expect(world.engine.inFlight, 'the write-backs are still under way').toBeGreaterThan(0);
  });
});
