/**
 * Random operations on a manager with tiers of 4 to 64 slots: open, allocate, extend, seal, copy, truncate,
 * release, lookup, offload, reload, load from the back and compute from the front, move, keep in a tier,
 * quotas, cancel, deadlines, completions late and out of order, faults, whole tiers lost. After each
 * operation the whole state is audited, and every block that a sequence may read is compared with what that
 * sequence's key says. Some worlds are recorded, and their log is run again: it has to come out the same to
 * the byte.
 */

import { evictionPolicyNames } from '../../src/runtime/eviction/registry.ts';
import { LogWriter } from '../../src/runtime/log/decisionLog.ts';
import { replayLog } from '../../src/runtime/log/replayer.ts';
import type { ManagerConfig, TierSize } from '../../src/runtime/manager/config.ts';
import { KVManager } from '../../src/runtime/manager/manager.ts';
import { Entry, type Sequence } from '../../src/runtime/manager/sequence.ts';
import type { JobPriority } from '../../src/runtime/tables/jobTable.ts';
import { Random } from './random.ts';
import { ShadowDriver } from './shadowDriver.ts';

interface Request {
  sequence: Sequence;
  keys: Uint32Array;
  blocks: number;
}

export interface FuzzReport {
  seed: number;
  operations: number;
  worlds: number;
  reads: number;
  counters: Record<string, number>;
}

const OPERATIONS_PER_WORLD = 2_000;

/**
 * Runs `operations` random operations; the first broken rule throws with seed and operation in its message.
 */
export function fuzzManager(
  operations: number,
  seed: number,
  progress: (done: number) => void = () => {},
): FuzzReport {
  const report: FuzzReport = { seed, operations, worlds: 0, reads: 0, counters: {} };
  for (let done = 0; done < operations; ) {
    const count = Math.min(OPERATIONS_PER_WORLD, operations - done);
    runWorld(seed + report.worlds, count, report);
    report.worlds++;
    done += count;
    progress(done);
  }
  return report;
}

function runWorld(seed: number, operations: number, report: FuzzReport): void {
  const world = new World(seed);
  for (let i = 0; i < operations; i++) {
    try {
      world.step();
    } catch (error) {
      throw new Error(`seed ${seed}, operation ${i} (${world.last}): ${String(error)}`, { cause: error });
    }
  }
  try {
    world.end();
  } catch (error) {
    throw new Error(`seed ${seed}, at the end: ${String(error)}`, { cause: error });
  }
  report.reads += world.reads;
  for (const [name, value] of Object.entries(world.totals())) {
    report.counters[name] = (report.counters[name] ?? 0) + value;
  }
}

function randomConfig(random: Random): ManagerConfig {
  const mixed = random.chance(0.3);
  const unitBytes = mixed ? [64, 16] : [64];
  const tier = (): TierSize => ({
    capacityBytes: 64 * random.between(4, 64),
    landingBytes: 64 * random.pick([0, 0, 1, 2, 4]),
  });
  const lower = (): TierSize =>
    random.chance(0.2) ? { ...tier(), writeBudget: { bytesPerByteRead: random.pick([0, 0.5, 2]) } } : tier();
  const config: ManagerConfig = {
    unitBytes,
    hbm: tier(),
    lowerCopy: random.pick(['keep', 'move'] as const),
    whenLowerFull: random.pick(['evict', 'evict', 'refuse'] as const),
    offloadThreshold: random.pick([1, 1, 0.9, 0.5, 0]),
    maxJobs: random.pick([4, 32, 128]),
    eviction: { policy: random.pick(evictionPolicyNames) },
    leavingShare: random.pick([1, 1, 0.3]),
    owners: 3,
    ...(random.chance(0.3) ? { useHalfLifeUs: random.between(1, 100) } : {}),
  };
  if (random.chance(0.3)) config.transferDeadlineUs = random.between(1, 40);
  if (random.chance(0.8)) config.ddr = lower();
  if (random.chance(0.6)) config.nvme = lower();
  if (config.nvme !== undefined && random.chance(0.3)) {
    config.nvme.writeBudget = { bytesPerByteRead: random.below(3), bytesPerSecond: random.below(1e7) };
  }
  return config;
}

class World {
  last = 'start';
  reads = 0;
  expired = 0;
  tiersLost = 0;
  kept = 0;
  quotas = 0;
  readonly #random: Random;
  readonly #manager: KVManager;
  readonly #driver: ShadowDriver;
  readonly #requests: Request[] = [];
  readonly #faults: number;
  readonly #classes: number;
  readonly #config: ManagerConfig;
  /** Text of the world's log, where it is recorded. */
  readonly #log: string[] = [];
  readonly #writer: LogWriter | null;
  /** Copies under way: what the block has to hold once it is open. */
  readonly #copies: { sequence: Sequence; block: number; value: number }[] = [];
  #nowUs = 0;

  constructor(seed: number) {
    this.#random = new Random(seed);
    const config = randomConfig(this.#random);
    this.#classes = config.unitBytes.length;
    this.#config = config;
    const recorded = this.#random.chance(0.25);
    this.#writer = recorded ? new LogWriter(config, { log: (text) => this.#log.push(text) }) : null;
    this.#manager = new KVManager(config, this.#writer);
    this.#driver = new ShadowDriver(this.#manager, this.#random);
    this.#faults = this.#random.pick([0, 0, 0.05, 0.3]);
    if (this.#manager.config.tiers.length > 1 && this.#random.chance(0.5)) this.#adopt();
  }

  /** Begins with what an earlier run left in a lower tier: chains, in any order, some of them with gaps. */
  #adopt(): void {
    this.last = 'adopt';
    const random = this.#random;
    const position = random.between(1, this.#manager.config.tiers.length - 1);
    const { tier, shape } = this.#manager.config.tiers[position];
    for (let chains = random.between(1, 12); chains > 0; chains--) {
      const blocks = random.between(1, 12);
      const keys = this.#chain(blocks);
      for (let tries = blocks; tries > 0; tries--) {
        const i = random.below(blocks);
        const slot = random.below(shape.slotLimit);
        const value = keys[i * 4] * 16 + i;
        const parent = i === 0 ? new Uint32Array(4) : keys.slice(i * 4 - 4, i * 4);
        const block = {
          slot,
          generation: random.between(1, 5),
          sizeClass: random.below(this.#classes),
          key: keys.slice(i * 4, i * 4 + 4),
          parent: random.chance(0.9) ? parent : undefined,
          digest: { lo: value, hi: 0 },
          tokens: 16,
        };
        if (this.#manager.adopt(position, block, this.#nowUs)) this.#driver.slots[tier][slot] = value;
        this.#manager.checkIntegrity();
      }
    }
  }

  step(): void {
    const random = this.#random;
    this.#nowUs += random.below(3);
    const roll = random.below(100);
    if (roll < 12) this.#open();
    else if (roll < 24) {
      this.#withRequest('load', (r) => this.#manager.load(r.sequence, this.#nowUs, 0, r.sequence.length));
    } else if (roll < 40) this.#withRequest('allocate', (r) => this.#allocate(r));
    else if (roll < 52) this.#withRequest('seal', (r) => this.#seal(r));
    else if (roll < 58) this.#withRequest('release', (r) => this.#drop(r, 'release'));
    else if (roll < 62) this.#withRequest('cancel', (r) => this.#drop(r, 'cancel'));
    else if (roll < 63) this.#withRequest('preempt', (r) => this.#drop(r, 'preempt'));
    else if (roll < 64) this.#withRequest('demote', (r) => this.#drop(r, 'demote'));
    else if (roll < 65) this.#withRequest('releaseRange', (r) => this.#releaseTail(r));
    else if (roll < 66) this.#withRequest('truncate', (r) => this.#truncate(r));
    else if (roll < 69) this.#evict();
    else if (roll < 72) this.#prefetch();
    else if (roll < 74) this.#expire();
    else if (roll < 77) this.#lookup();
    else if (roll < 78) this.#loseTier();
    else if (roll < 80) this.#withRequest('copy', (r) => this.#copy(r));
    else if (roll < 81) this.#move();
    else if (roll < 82) this.#setQuota();
    else if (roll < 84) this.#withRequest('keepIn', (r) => this.#keepIn(r));
    else if (roll < 87) this.#withRequest('meet', (r) => this.#meet(r));
    else this.#complete();
    this.#driver.takeJobs(this.#nowUs);
    this.#write();
    this.#manager.checkIntegrity();
    this.#read();
  }

  /** Quotas of a tier are a third of it at most, so that those of three owners always fit. */
  #setQuota(): void {
    this.last = 'setQuota';
    const random = this.#random;
    const position = random.below(this.#manager.config.tiers.length);
    const third = Math.floor(this.#manager.config.tiers[position].capacityBytes / 3);
    const bytes = random.chance(0.2) ? null : random.below(third + 1);
    this.#manager.setQuota(random.below(3), position, bytes, this.#nowUs);
    this.quotas++;
  }

  end(): void {
    this.last = 'end';
    for (const request of this.#requests.splice(0)) this.#manager.release(request.sequence, this.#nowUs);
    this.#driver.takeJobs(this.#nowUs);
    while (this.#driver.inFlight > 0) {
      this.#driver.completeOne(this.#nowUs, this.#faults);
      this.#driver.takeJobs(this.#nowUs);
    }
    this.#manager.checkIntegrity();
    if (this.#manager.inspect.jobsInFlight !== 0) throw new Error('jobs are left when nothing is in flight');
    for (let tier = 0; tier < this.#manager.config.tiers.length; tier++) {
      const usage = this.#manager.inspect.usage(tier);
      if (usage.heldBytes !== 0) throw new Error(`tier ${tier} has held bytes without a sequence`);
      if (usage.residentBytes !== usage.cachedBytes)
        throw new Error(`tier ${tier} has bytes that cannot be evicted: ${JSON.stringify(usage)}`);
      if (usage.residentBytes > usage.capacityBytes)
        throw new Error(`tier ${tier} holds more than its capacity`);
      if (usage.slots.draining !== 0) throw new Error(`tier ${tier} has draining slots at rest`);
    }
    this.#runAgain();
  }

  #runAgain(): void {
    if (this.#writer === null) return;
    this.#writer.end();
    const text = this.#log.join('');
    const again: string[] = [];
    const writer = new LogWriter(this.#config, { log: (piece) => again.push(piece) });
    replayLog(text.slice(0, -1).split('\n'), 'the log of the world', writer);
    writer.end();
    if (again.join('') !== text) throw new Error('the recorded inputs do not give the same log again');
  }

  totals(): Record<string, number> {
    const c = this.#manager.inspect.counters;
    const sum = (values: Float64Array): number => values.reduce((a, b) => a + b, 0);
    return {
      hits: c.hitBlocks,
      misses: c.misses,
      joined: c.joined,
      demotions: sum(c.demotions),
      reloads: sum(c.reloads),
      evictions: sum(c.evictions),
      dropped: c.dropped,
      demotionsFailed: c.demotionsFailed,
      loadsFailed: sum(c.loadsFailed),
      thrashed: c.thrashed,
      aliases: c.aliases,
      diverged: c.diverged,
      refused: c.refusedAllocations,
      recomputed: c.recomputed,
      preemptions: c.preemptions,
      expired: this.expired,
      tiersLost: this.tiersLost,
      kept: this.kept,
      quotasSet: this.quotas,
      lost: c.lost,
      copies: c.copies,
      promotions: sum(c.promotions),
      skipped: c.demotionsSkipped,
      adopted: c.adopted,
      writesDeclined: c.writesDeclined,
    };
  }

  /** Chains over a small universe: few first blocks, two ways on at each depth. */
  #chain(blocks: number): Uint32Array {
    const keys = new Uint32Array(blocks * 4);
    let parent = this.#random.below(4) + 1;
    for (let i = 0; i < blocks; i++) {
      parent = (parent * 3 + this.#random.below(2)) % 100_003;
      keys.set([parent, i, 7, 9], i * 4);
    }
    return keys;
  }

  #anyChain(): { keys: Uint32Array; blocks: number } {
    const blocks = this.#random.between(1, 12);
    return { keys: this.#chain(blocks), blocks };
  }

  #open(): void {
    this.last = 'open';
    if (this.#requests.length >= 6) return;
    const { keys, blocks } = this.#anyChain();
    const limit = this.#random.chance(0.3) ? blocks - 1 : blocks;
    const owner = this.#random.below(3);
    const sizeClass = this.#random.below(this.#classes);
    const sequence = this.#random.chance(0.8)
      ? this.#manager.open(keys, blocks, this.#nowUs, limit, owner)
      : this.#manager.admit(keys, blocks, this.#nowUs, limit, blocks, sizeClass, owner);
    if (sequence === null) return;
    this.#requests.push({ sequence, keys, blocks });
  }

  #allocate(request: Request): void {
    const from = request.sequence.length;
    const failed = request.sequence.firstFailed();
    const sizeClass = this.#random.below(this.#classes);
    if (failed !== -1) this.#manager.allocate(request.sequence, failed, failed + 1, this.#nowUs, sizeClass);
    else if (from < request.blocks) {
      const to = Math.min(request.blocks, from + this.#random.between(1, 4));
      this.#manager.allocate(request.sequence, from, to, this.#nowUs, sizeClass);
    }
  }

  #seal(request: Request): void {
    const open: number[] = [];
    for (let i = 0; i < request.sequence.length; i++)
      if (request.sequence.state[i] === Entry.OPEN && i < request.blocks) open.push(i);
    if (open.length === 0) return;
    const i = this.#random.pick(open);
    this.#manager.seal(request.sequence, i, i + 1, request.keys, i * 4, 16, this.#nowUs);
  }

  /** Some of what is away is loaded from the back, and some of it computed from the front. */
  #meet(request: Request): void {
    const { sequence } = request;
    const random = this.#random;
    const away = (i: number): boolean =>
      [Entry.NONE, Entry.MATCHED, Entry.LOADING, Entry.FAILED].some((state) => state === sequence.state[i]);
    const back = random.below(sequence.length + 1);
    if (random.chance(0.5)) this.#manager.loadFromBack(sequence, back, sequence.length, this.#nowUs);
    let from = 0;
    while (from < sequence.length && !away(from)) from++;
    let to = from;
    while (to < sequence.length && away(to) && random.chance(0.7)) to++;
    const estimate = this.#manager.inspect.loadEstimate(sequence, from, sequence.length, this.#nowUs);
    if (estimate !== undefined && !(estimate.startUs >= 0 && estimate.bandwidthBytesPerS > 0)) {
      throw new Error(`an estimate is ${JSON.stringify(estimate)}`);
    }
    if (to > from) {
      this.#manager.recompute(sequence, from, to, this.#nowUs, random.below(this.#classes));
    }
  }

  #drop(request: Request, how: 'release' | 'cancel' | 'preempt' | 'demote'): void {
    this.#requests.splice(this.#requests.indexOf(request), 1);
    this.#manager[how](request.sequence, this.#nowUs);
  }

  #releaseTail(request: Request): void {
    const from = this.#random.below(request.sequence.length + 1);
    this.#manager.releaseRange(request.sequence, from, request.sequence.length, this.#nowUs);
  }

  #truncate(request: Request): void {
    this.#manager.truncate(request.sequence, this.#random.below(request.sequence.length + 1), this.#nowUs);
  }

  /** A private copy of a block behind another sequence's table, or in place of the block itself. */
  #copy(request: Request): void {
    const { sequence, keys } = request;
    const readable: number[] = [];
    for (let i = 0; i < Math.min(sequence.length, request.blocks); i++) {
      const state = sequence.state[i];
      if (state === Entry.OPEN || state === Entry.READY) readable.push(i);
    }
    if (readable.length === 0) return;
    const at = this.#random.pick(readable);
    const unshares = this.#random.chance(0.3);
    const to = unshares ? sequence : this.#random.pick(this.#requests).sequence;
    const into = unshares ? at : to.length;
    if (!unshares && into > 16) return;
    const value = keys[at * 4] * 16 + at;
    if (this.#manager.copy(sequence, at, to, into, this.#nowUs)) {
      this.#copies.push({ sequence: to, block: into, value });
    }
  }

  #move(): void {
    this.last = 'move';
    const { keys, blocks } = this.#anyChain();
    // a lower tier has the first blocks of a chain most often
    const at = this.#random.below(this.#random.chance(0.8) ? Math.min(blocks, 2) : blocks) * 4;
    const tier = this.#random.below(this.#manager.config.tiers.length);
    this.#manager.move(keys.slice(at, at + 4), tier, this.#random.below(5) as JobPriority, this.#nowUs);
  }

  /** Holds some of its blocks in another tier, where that has them. */
  #keepIn({ sequence }: Request): void {
    const from = this.#random.below(sequence.length + 1);
    const position = this.#random.below(this.#manager.config.tiers.length);
    this.kept += this.#manager.keepIn(sequence, from, sequence.length, position, this.#nowUs);
  }

  #evict(): void {
    this.last = 'evict';
    const tier = this.#random.below(this.#manager.config.tiers.length);
    const cachedBefore = this.#manager.inspect.usage(tier).cachedBytes;
    const { evicted, blockers } = this.#manager.evict(tier, this.#random.between(1, 5), this.#nowUs);
    if (evicted === 0 && cachedBefore > 0) throw new Error('evictable blocks were not evicted');
    if (blockers.length > this.#requests.length) throw new Error('a blocker that is not a sequence');
  }

  #prefetch(): void {
    this.last = 'prefetch';
    const blocks = this.#random.between(1, 12);
    this.#manager.prefetch(this.#chain(blocks), blocks, this.#nowUs);
  }

  #expire(): void {
    this.last = 'expire';
    this.expired += this.#manager.tick(this.#nowUs);
  }

  #loseTier(): void {
    this.last = 'loseTier';
    if (!this.#random.chance(0.2)) return;
    const position = this.#random.below(this.#manager.config.tiers.length);
    this.#driver.lose(this.#manager.config.tiers[position].tier);
    this.#manager.loseTier(position, this.#nowUs);
    if (this.#manager.inspect.usage(position).slots.ready !== 0)
      throw new Error('a lost tier has ready blocks');
    this.tiersLost++;
  }

  #lookup(): void {
    this.last = 'lookup';
    const blocks = this.#random.between(1, 12);
    const keys = this.#chain(blocks);
    const before = JSON.stringify(this.totals());
    const found = this.#manager.lookup(keys, blocks);
    if (found.blocks !== this.#manager.matchLength(keys, blocks)) throw new Error('the two lookups disagree');
    const whole = new Uint32Array(2);
    this.#manager.matchLengths(keys, new Uint32Array(2), Uint32Array.of(blocks, blocks >> 1), whole);
    if (whole[0] !== found.blocks || whole[1] !== Math.min(found.blocks, blocks >> 1))
      throw new Error('a lookup of two requests at once disagrees with a lookup of one');
    if (found.byTier.reduce((a, b) => a + b, 0) !== found.blocks)
      throw new Error('a matched block lies in no tier');
    if (JSON.stringify(this.totals()) !== before) throw new Error('a probe was counted');
  }

  #complete(): void {
    this.last = 'complete';
    this.#driver.completeOne(this.#nowUs, this.#faults);
  }

  #withRequest(name: string, act: (request: Request) => void): void {
    this.last = name;
    if (this.#requests.length > 0) act(this.#random.pick(this.#requests));
  }

  /** Sequences write their open blocks as soon as they have a slot. */
  #write(): void {
    const hbm = this.#driver.slots[0];
    this.#checkCopies(hbm);
    for (const { sequence, keys } of this.#requests) {
      for (let i = 0; i < Math.min(sequence.length, keys.length / 4); i++) {
        const block = this.#manager.openBlock(sequence, i);
        if (block !== undefined) hbm[block.slot] = keys[i * 4] * 16 + i;
      }
    }
  }

  /** A copy that has become open holds what its source held. */
  #checkCopies(hbm: Float64Array): void {
    for (const copy of this.#copies.splice(0)) {
      const { sequence, block, value } = copy;
      const live = this.#requests.some((request) => request.sequence === sequence);
      if (!live || block >= sequence.length) continue;
      if (sequence.state[block] === Entry.WAITING) this.#copies.push(copy);
      const open = this.#manager.openBlock(sequence, block);
      if (open !== undefined && hbm[open.slot] !== value) {
        throw new Error(`a copy holds ${hbm[open.slot]}, not ${value}`);
      }
    }
  }

  #read(): void {
    const hbm = this.#driver.slots[0];
    for (const { sequence, keys } of this.#requests) {
      for (let i = 0; i < sequence.length; i++) {
        const block = this.#manager.loadedBlock(sequence, i);
        if (block === undefined) continue;
        this.reads++;
        const found = hbm[block.slot];
        const expected = keys[i * 4] * 16 + i;
        if (found !== expected)
          throw new Error(`block ${i} of sequence ${sequence.id} holds ${found}, not ${expected}`);
      }
    }
  }
}
