import { expect, it } from 'vitest';
import { evictionPolicyNames } from '../../../src/runtime/eviction/registry.ts';
import { type DecisionSink, LogWriter, type OffloadChoice } from '../../../src/runtime/index.ts';
import { replayLog } from '../../../src/runtime/log/replayer.ts';
import type { ManagerConfig } from '../../../src/runtime/manager/config.ts';
import { KVManager } from '../../../src/runtime/manager/manager.ts';
import { Entry, type Sequence } from '../../../src/runtime/manager/sequence.ts';
import type { Transfer } from '../../../src/runtime/tables/jobTable.ts';
import { Outcome } from '../../../src/runtime/tier/tier.ts';
import { Random } from '../../fuzz/random.ts';
import { sized } from '../../sized.ts';

const seed = Number(process.env.TIERKV_POLICY_SEED ?? 27_09);
const OPERATIONS = sized(500, 1_200);

interface Running {
  readonly sequence: Sequence;
  readonly keys: Uint32Array;
  readonly blocks: number;
}

const offloads: readonly OffloadChoice[] = [
  { policy: 'lazy' },
  { policy: 'threshold', share: 0.8 },
  { policy: 'eager' },
  { policy: 'intent', share: 0.6, ahead: 5 },
];

function randomConfig(random: Random, policy: string): ManagerConfig {
  const tier = (): { capacityBytes: number; landingBytes: number } => ({
    capacityBytes: 64 * random.between(8, 40),
    landingBytes: 64 * random.pick([0, 2, 4]),
  });
  return {
    unitBytes: random.chance(0.4) ? [64, 16] : [64],
    hbm: { ...tier(), offload: random.pick(offloads) },
    ...(random.chance(0.8) ? { ddr: { ...tier(), offload: random.pick(offloads) } } : {}),
    ...(random.chance(0.6) ? { nvme: tier() } : {}),
    eviction: policy === 'priority' ? { policy, levels: '1,0' } : { policy },
    owners: 2,
    lowerCopy: random.pick(['keep', 'move'] as const),
    maxJobs: random.pick([8, 64]),
  };
}

/**
 * One number a slot instead of bytes. A job reads and writes when it ends; jobs end in any order, some of
 * them badly.
 */
class NumberDriver {
  readonly slots: Float64Array[] = [];
  readonly #manager: KVManager;
  readonly #random: Random;
  readonly #flights: Transfer[] = [];

  constructor(manager: KVManager, random: Random) {
    this.#manager = manager;
    this.#random = random;
    for (const { tier, shape } of manager.config.tiers) this.slots[tier] = new Float64Array(shape.slotLimit);
  }

  get inFlight(): number {
    return this.#flights.length;
  }

  takeJobs(): void {
    for (let job = this.#manager.nextJob(); job !== 0; job = this.#manager.nextJob()) {
      this.#flights.push(this.#manager.transfer(job));
    }
  }

  completeOne(nowUs: number, faults: number): void {
    const [transfer] = this.#flights.splice(this.#random.below(this.#flights.length), 1);
    if (transfer === undefined) return;
    const { job, source, target } = transfer;
    if (this.#random.chance(faults)) {
      this.#manager.complete(
        job,
        this.#random.pick([Outcome.MISSING, Outcome.CORRUPT, Outcome.REFUSED]),
        nowUs,
      );
      return;
    }
    if (source !== null) this.slots[target.tier][target.slot] = this.slots[source.tier][source.slot];
    this.#manager.complete(job, Outcome.LOADED, nowUs, this.slots[target.tier][target.slot], 0);
  }
}

/** Random requests over a small tree of chains, with jobs that end late, in any order and sometimes badly. */
class World {
  readonly manager: KVManager;
  readonly #random: Random;
  readonly #driver: NumberDriver;
  readonly #running: Running[] = [];
  readonly #faults: number;
  readonly #classes: number;
  #nowUs = 0;

  constructor(
    policy: string,
    seed: number,
    sinkFor: (config: ManagerConfig) => DecisionSink | null = () => null,
  ) {
    this.#random = new Random(seed);
    const config = randomConfig(this.#random, policy);
    this.#classes = config.unitBytes.length;
    this.manager = new KVManager(config, sinkFor(config));
    this.#driver = new NumberDriver(this.manager, this.#random);
    this.#faults = this.#random.pick([0, 0.1]);
  }

  step(): void {
    const random = this.#random;
    this.#nowUs += random.below(400_000);
    const roll = random.below(100);
    if (roll < 18) this.#open();
    else if (roll < 60) this.#goOn();
    else if (roll < 68) this.#end();
    else if (roll < 72) this.#evict();
    else if (roll < 76) this.#wish();
    else this.#driver.completeOne(this.#nowUs, this.#faults);
    this.#driver.takeJobs();
    this.#writeAndRead();
    this.manager.checkIntegrity();
  }

  /** Nothing runs and nothing is in flight: all that is resident can be evicted, down to the last byte. */
  finish(): void {
    for (const { sequence } of this.#running.splice(0)) this.manager.release(sequence, this.#nowUs);
    for (this.#driver.takeJobs(); this.#driver.inFlight > 0; this.#driver.takeJobs()) {
      this.#driver.completeOne(this.#nowUs, this.#faults);
    }
    const { tiers } = this.manager.config;
    for (let tier = 0; tier < tiers.length; tier++) {
      for (let left = 1; left > 0; this.#driver.takeJobs()) {
        this.manager.evict(tier, 1_000, this.#nowUs);
        this.#driver.takeJobs();
        while (this.#driver.inFlight > 0) this.#driver.completeOne(this.#nowUs, 0);
        left = this.manager.inspect.usage(tier).residentBytes;
      }
    }
    this.manager.checkIntegrity();
  }

  #open(): void {
    if (this.#running.length >= 5) return;
    const blocks = this.#random.between(1, 10);
    const keys = new Uint32Array(blocks * 4);
    let chain = this.#random.below(5) + 1;
    for (let i = 0; i < blocks; i++) {
      chain = (chain * 3 + this.#random.below(2)) % 100_003;
      keys.set([chain, i, 7, 9], i * 4);
    }
    const owner = this.#random.below(2);
    const sequence = this.manager.open(keys, blocks, this.#nowUs, blocks, owner);
    this.#running.push({ sequence, keys, blocks });
  }

  #wish(): void {
    if (this.#running.length === 0) return;
    const { sequence } = this.#random.pick(this.#running);
    const keepUntilUs = this.#random.chance(0.5) ? 0 : this.#nowUs + this.#random.below(60_000_000);
    this.manager.retain(sequence, { priority: this.#random.between(-100, 100), keepUntilUs }, this.#nowUs);
  }

  #goOn(): void {
    if (this.#running.length === 0) return;
    const { sequence, keys, blocks } = this.#random.pick(this.#running);
    const now = this.#nowUs;
    this.manager.load(sequence, now, 0, sequence.length);
    const failed = sequence.firstFailed();
    const sizeClass = this.#random.below(this.#classes);
    if (failed !== -1) this.manager.allocate(sequence, failed, failed + 1, now, sizeClass);
    else if (sequence.length < blocks)
      this.manager.allocate(sequence, sequence.length, blocks, now, sizeClass);
    this.#driver.takeJobs();
    for (let i = 0; i < sequence.length; i++) {
      this.#writeAndRead();
      if (sequence.state[i] === Entry.OPEN) this.manager.seal(sequence, i, i + 1, keys, i * 4, 16, now);
    }
  }

  #end(): void {
    if (this.#running.length === 0) return;
    const [{ sequence }] = this.#running.splice(this.#random.below(this.#running.length), 1);
    if (this.#random.chance(0.3))
      this.manager.releaseRange(sequence, sequence.length >> 1, sequence.length, this.#nowUs);
    this.manager[this.#random.pick(['release', 'cancel', 'preempt'] as const)](sequence, this.#nowUs);
  }

  #evict(): void {
    const tier = this.#random.below(this.manager.config.tiers.length);
    const { cachedBytes } = this.manager.inspect.usage(tier);
    const { evicted } = this.manager.evict(tier, 1, this.#nowUs);
    if (evicted === 0 && cachedBytes > 0) throw new Error('a cached block was not evicted');
  }

  #writeAndRead(): void {
    const hbm = this.#driver.slots[0];
    for (const { sequence, keys } of this.#running) {
      for (let i = 0; i < sequence.length; i++) {
        const value = keys[i * 4] * 16 + i;
        const open = this.manager.openBlock(sequence, i);
        if (open !== undefined) hbm[open.slot] = value;
        const loaded = this.manager.loadedBlock(sequence, i);
        if (loaded !== undefined && hbm[loaded.slot] !== value)
          throw new Error(`block ${i} has foreign bytes`);
      }
    }
  }
}

it.each(evictionPolicyNames)(
  `under %s every table stays consistent and all that is cached can be evicted (seed ${seed})`,
  (policy) => {
    let evictions = 0;
    for (let round = 0; round < 3; round++) {
      const world = new World(policy, seed + round);
      for (let i = 0; i < OPERATIONS; i++) {
        try {
          world.step();
        } catch (error) {
          throw new Error(`${policy}, seed ${seed + round}, operation ${i}: ${String(error)}`, {
            cause: error,
          });
        }
      }
      world.finish();
      evictions += world.manager.inspect.counters.evictions.reduce((a, b) => a + b, 0);
    }
    expect(evictions).toBeGreaterThan(100);
  },
);

it.each(evictionPolicyNames)(`under %s equal inputs give equal decisions (seed ${seed})`, (policy) => {
  const runs = [0, 1].map(() => {
    const decisions: string[] = [];
    const world = new World(policy, seed + 50, () => ({
      input: () => {},
      decision: (...words) => decisions.push(words.join(' ')),
    }));
    for (let i = 0; i < OPERATIONS; i++) world.step();
    return decisions;
  });
  expect(runs[0].length).toBeGreaterThan(OPERATIONS);
  expect(runs[1]).toEqual(runs[0]);
});

it.each(evictionPolicyNames)(
  `under %s the recorded inputs give the same log again, byte for byte (seed ${seed})`,
  (policy) => {
    for (let round = 0; round < 2; round++) {
      const what = `${policy}, seed ${seed + 90 + round}`;
      const texts = ['', ''];
      const writers: LogWriter[] = [];
      const record = (config: ManagerConfig): LogWriter => {
        const run = writers.length;
        const writer = new LogWriter(config, { log: (text) => void (texts[run] += text) });
        writers.push(writer);
        return writer;
      };
      let given: ManagerConfig | undefined;
      const world = new World(policy, seed + 90 + round, (config) => {
        given = config;
        return record(config);
      });
      for (let i = 0; i < OPERATIONS; i++) world.step();
      writers[0].end();
      if (given === undefined) throw new Error('no manager was made');
      replayLog(texts[0].trimEnd().split('\n'), what, record(given)).checkIntegrity();
      writers[1].end();
      expect(texts[0].split('\n').length, what).toBeGreaterThan(OPERATIONS);
      expect(texts[1] === texts[0], what).toBe(true);
    }
  },
);
