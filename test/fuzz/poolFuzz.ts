/**
 * Random operations on a multi-granular pool over small tiers: blocks, tokens, heads, layers and layer groups
 * are allocated, written, committed, forked, truncated, let go, moved by hand and by a migrator, evicted,
 * lost with their device; transfers end late, out of order and with faults. After each operation pool and
 * manager are audited, and bytes are read through blocks and through random boxes, wherever they lie: they
 * have to be those of the sequence's tokens. Some worlds are recorded and run again, to the same log.
 */

import { evictionPolicyNames } from '../../src/runtime/eviction/registry.ts';
import { Granularity, rowOffsetBytes } from '../../src/runtime/geometry/box.ts';
import { Entry, type JobPriority, type KVBox, TierKVError } from '../../src/runtime/index.ts';
import { LogWriter } from '../../src/runtime/log/decisionLog.ts';
import { replayLog } from '../../src/runtime/log/replayer.ts';
import { patternWord } from '../../src/runtime/pattern.ts';
import {
  type KVBlockDescriptor,
  KVMigrator,
  type KVPoolConfig,
  MultiGranularKVPool,
} from '../../src/views/index.ts';
import type { PoolUnit } from '../../src/views/kvBlockDescriptor.ts';
import { resolvePoolConfig } from '../../src/views/poolConfig.ts';
import { copyBox } from '../../src/views/tieredKVStorage.ts';
import { ByteDriver } from './byteDriver.ts';
import { Random } from './random.ts';

const LAYERS = 3;
const HEADS = 2;
const BLOCK = 4;
const OPERATIONS_PER_WORLD = 1_500;
/** Refusals that an operation may meet; anything else is a mistake. */
const expectedCodes = new Set(['TKV_FULL', 'TKV_CAPACITY', 'TKV_STATE']);

interface Model {
  readonly id: string;
  /** Whether the pool is told its tokens. */
  readonly told: boolean;
  tokens: number[];
}

export interface PoolFuzzReport {
  readonly seed: number;
  operations: number;
  worlds: number;
  /** Units and boxes whose bytes were compared. */
  reads: number;
  counters: Record<string, number>;
}

export function fuzzPool(
  operations: number,
  seed: number,
  progress: (done: number) => void = () => {},
): PoolFuzzReport {
  const report: PoolFuzzReport = { seed, operations, worlds: 0, reads: 0, counters: {} };
  for (let done = 0; done < operations; ) {
    const count = Math.min(OPERATIONS_PER_WORLD, operations - done);
    const world = new World(seed + report.worlds);
    for (let i = 0; i < count; i++)
      attempt(() => world.step(), `seed ${seed + report.worlds}, operation ${i}`, world);
    attempt(() => world.end(), `seed ${seed + report.worlds}, at the end`, world);
    report.reads += world.reads;
    for (const [name, value] of Object.entries(world.counters)) {
      report.counters[name] = (report.counters[name] ?? 0) + value;
    }
    report.worlds++;
    done += count;
    progress(done);
  }
  return report;
}

function attempt(act: () => void, where: string, world: World): void {
  try {
    act();
  } catch (error) {
    throw new Error(`${where} (${world.last}): ${String(error)}`, { cause: error });
  }
}

function randomConfig(random: Random): KVPoolConfig {
  const layout = { layers: LAYERS, kvHeads: HEADS, headDim: 2, dtype: 'f16' } as const;
  const blockBytes = LAYERS * HEADS * BLOCK * 2 * 4;
  const capacity = (): number => random.between(4, 24) * blockBytes;
  return {
    layout,
    blockSize: BLOCK,
    hbmCapacityBytes: capacity() + 4 * blockBytes,
    ddrCapacityBytes: random.chance(0.85) ? capacity() : 0,
    nvmeCapacityBytes: random.chance(0.6) ? capacity() : 0,
    landingShare: random.pick([0, 0.1]),
    enableSharing: random.chance(0.8),
    enableTiering: random.chance(0.9),
    layerGroups: random.chance(0.4)
      ? [
          { first: 0, end: 2 },
          { first: 2, end: 3 },
        ]
      : [],
    headUnit: random.pick([
      { layers: 1, heads: 1 },
      { layers: 3, heads: 1 },
    ]),
    model: 'fuzz@1',
    maxJobs: random.pick([16, 256]),
    secretKey: new Uint8Array(32).fill(3),
    eviction: { policy: random.pick(evictionPolicyNames) },
    ...(random.chance(0.2) ? { transferDeadlineUs: random.between(20, 200) } : {}),
  };
}

class World {
  last = 'start';
  reads = 0;
  readonly counters: Record<string, number> = {};
  readonly #random: Random;
  readonly #config: KVPoolConfig;
  readonly #pool: MultiGranularKVPool;
  readonly #driver: ByteDriver;
  readonly #migrator: KVMigrator<KVBlockDescriptor>;
  readonly #models: Model[] = [];
  readonly #faults: number;
  readonly #log: string[] = [];
  readonly #writer: LogWriter | null;
  #nowUs = 0;
  #made = 0;

  constructor(seed: number) {
    this.#random = new Random(seed);
    this.#config = randomConfig(this.#random);
    const { manager } = resolvePoolConfig(this.#config);
    const recorded = this.#random.chance(0.25);
    this.#writer = recorded ? new LogWriter(manager, { log: (text) => this.#log.push(text) }) : null;
    this.#pool = new MultiGranularKVPool(this.#config, this.#writer);
    this.#driver = new ByteDriver(this.#pool.manager, this.#random);
    this.#migrator = new KVMigrator(this.#pool, {
      intervalUs: 5,
      hotFrequencyThreshold: 1000,
      coldTimeoutS: 1e-3,
    });
    this.#faults = this.#random.pick([0, 0, 0.05, 0.2]);
  }

  step(): void {
    const random = this.#random;
    this.#nowUs += random.below(3) * random.pick([1, 1, 100]);
    this.#pool.setClock(this.#nowUs);
    const roll = random.below(100);
    if (roll < 16) this.#allocate();
    else if (roll < 30) this.#with('commit', (m) => this.#commit(m));
    else if (roll < 36) this.#with('fork', (m) => this.#fork(m));
    else if (roll < 42) this.#with('truncate', (m) => this.#truncate(m));
    else if (roll < 48) this.#with('deallocate', (m) => this.#deallocate(m));
    else if (roll < 62) this.#with('move', (m) => this.#move(m));
    else if (roll < 65) this.#tick();
    else if (roll < 67) this.#evict();
    else if (roll < 68) this.#loseTier();
    else if (roll < 71) this.#with('query', (m) => this.#query(m));
    else if (roll < 74) this.#with('use', (m) => random.pick(this.#blocks(m)).updateAccess());
    else {
      this.last = 'complete';
      this.#driver.completeOne(this.#nowUs, this.#faults);
    }
    this.#driver.takeJobs();
    this.#dropLost();
    this.#write();
    this.#pool.checkIntegrity();
    this.#read(random.chance(0.1));
  }

  end(): void {
    this.last = 'end';
    this.#settle(this.#faults);
    this.#dropLost();
    this.#write();
    this.#read(true);
    for (const model of this.#models.splice(0)) this.#pool.deallocate(this.#blocks(model));
    this.#settle(0);
    this.#pool.checkIntegrity();
    const { manager } = this.#pool;
    if (manager.inspect.jobsInFlight !== 0) throw new Error('jobs are left when nothing is in flight');
    for (let tier = 0; tier < manager.config.tiers.length; tier++) {
      const { heldBytes, residentBytes, cachedBytes } = manager.inspect.usage(tier);
      if (heldBytes !== 0 || residentBytes !== cachedBytes)
        throw new Error(`tier ${tier} holds bytes at rest`);
    }
    this.#runAgain();
  }

  #settle(faults: number): void {
    this.#driver.takeJobs();
    while (this.#driver.inFlight > 0) {
      this.#driver.completeOne(this.#nowUs, faults);
      this.#driver.takeJobs();
    }
  }

  #runAgain(): void {
    if (this.#writer === null) return;
    this.#writer.end();
    const text = this.#log.join('');
    const again: string[] = [];
    const writer = new LogWriter(resolvePoolConfig(this.#config).manager, {
      log: (piece) => again.push(piece),
    });
    replayLog(text.slice(0, -1).split('\n'), 'the log of the world', writer);
    writer.end();
    if (again.join('') !== text) throw new Error('the recorded inputs do not give the same log again');
    this.#count('replayed');
  }

  #allocate(): void {
    this.last = 'allocate';
    const random = this.#random;
    const isNew = this.#models.length === 0 || (this.#models.length < 6 && random.chance(0.4));
    const told = random.chance(0.6);
    const model: Model = isNew ? { id: `s${++this.#made}`, told, tokens: [] } : random.pick(this.#models);
    const region = this.#region();
    const numTokens = random.between(1, 11);
    const before = model.tokens.length;
    const from = isNew ? 0 : this.#tokensOf(model, region);
    if (from === undefined) return;
    while (model.tokens.length < from + numTokens) model.tokens.push(this.#token(model));
    const tokenIds = model.told && random.chance(0.8) ? { tokenIds: model.tokens } : {};
    const blocks = this.#try(() =>
      this.#pool.allocate({ ...region, ...tokenIds, sequenceId: model.id, requestId: 'r', numTokens }),
    );
    if (blocks === undefined) {
      model.tokens.length = before;
      return;
    }
    if (isNew) this.#models.push(model);
    this.#count(`allocated ${region.granularity}`);
    if (blocks.some(({ isShared }) => isShared)) this.#count('shared');
  }

  /** A token of a small universe, so that sequences have prefixes in common; private ones have their own. */
  #token({ told }: Model): number {
    return told ? Number(this.#random.chance(0.15)) : 1000 + this.#random.below(1e6);
  }

  #region(): { granularity: Granularity; layerIds: number[]; headIds?: number[] } {
    const random = this.#random;
    const all = Array.from({ length: LAYERS }, (_, i) => i);
    const granularity = random.below(4) as Granularity;
    if (granularity === Granularity.TOKEN) return { granularity, layerIds: all };
    if (granularity === Granularity.BLOCK) {
      const groups = this.#config.layerGroups ?? [];
      if (groups.length === 0 || random.chance(0.5)) return { granularity, layerIds: all };
      const { first, end } = random.pick(groups);
      return { granularity, layerIds: all.slice(first, end) };
    }
    const some = all.filter(() => random.chance(0.6));
    const layerIds = some.length === 0 ? [random.below(LAYERS)] : some;
    if (granularity === Granularity.LAYER) return { granularity, layerIds };
    const headIds = random.chance(0.5) ? [random.below(HEADS)] : [0, 1];
    return { granularity, layerIds: this.#config.headUnit?.layers === LAYERS ? all : layerIds, headIds };
  }

  /** Tokens that the sequence has in the region, or undefined where its layers have not equally many. */
  #tokensOf(
    model: Model,
    region: { granularity: Granularity; layerIds: number[]; headIds?: number[] },
  ): number | undefined {
    const counts = new Map<string, number>();
    for (const { units } of this.#blocks(model)) {
      for (const { track } of units) counts.set(track.column.id, track.tokens);
    }
    const tracks = new Map(
      this.#blocks(model).flatMap(({ units }) =>
        units.map(({ track }) => [track.column.id, track.column] as const),
      ),
    );
    const found = [...tracks.values()].filter(
      (column) =>
        column.granularity === region.granularity &&
        region.layerIds.some((layer) => layer >= column.layerStart && layer < column.layerEnd) &&
        (region.headIds ?? [0, 1]).some((head) => head >= column.headStart && head < column.headEnd),
    );
    const tokens = found.map(({ id }) => counts.get(id) ?? 0);
    return tokens.length === 0 ? 0 : Math.max(...tokens);
  }

  #commit(model: Model): void {
    const tail = this.#random.chance(0.3);
    this.#try(() => this.#pool.commit(model.id, model.told ? model.tokens : undefined, { tail }));
  }

  #fork(model: Model): void {
    if (this.#models.length >= 8) return;
    const longest = Math.max(...this.#blocks(model).map(({ tokenRange }) => tokenRange[1]));
    const tokens = this.#random.between(1, longest);
    const id = `s${++this.#made}`;
    const made = this.#try(() => this.#pool.fork(model.id, id, 'r', tokens));
    if (made === undefined) return;
    this.#count('forked');
    if (made.length > 0) this.#models.push({ id, told: model.told, tokens: model.tokens.slice(0, tokens) });
  }

  #truncate(model: Model): void {
    const tokens = this.#random.below(model.tokens.length + 1);
    this.#pool.truncate(model.id, tokens);
    model.tokens.length = Math.min(model.tokens.length, tokens);
    this.#forgetEnded(model);
    this.#count('truncated');
  }

  #deallocate(model: Model): void {
    const blocks = this.#blocks(model);
    const some = this.#random.chance(0.3) ? blocks : blocks.filter(() => this.#random.chance(0.3));
    this.#pool.deallocate(some);
    this.#forgetEnded(model);
    this.#count('deallocated', some.length);
  }

  #forgetEnded(model: Model): void {
    try {
      this.#pool.getBlocksBySequence(model.id);
    } catch {
      this.#models.splice(this.#models.indexOf(model), 1);
    }
  }

  #move(model: Model): void {
    const block = this.#random.pick(this.#blocks(model));
    const { tier } = this.#random.pick(this.#pool.tiers);
    const priority = this.#random.pick([0, 0, 3, 4]) as JobPriority;
    this.#pool.move(block, tier, priority, this.#nowUs, ({ success, reason }) => {
      this.#count(success ? 'moved' : `not moved: ${reason.split(' ')[0]}`);
    });
  }

  #tick(): void {
    this.last = 'tick';
    this.#pool.manager.tick(this.#nowUs);
    this.#count('migrations', this.#migrator.tick(this.#nowUs));
  }

  #evict(): void {
    this.last = 'evict';
    const position = this.#random.below(this.#pool.tiers.length);
    this.#count(
      'evicted',
      this.#pool.manager.evict(position, this.#random.between(1, 4), this.#nowUs).evicted,
    );
  }

  #loseTier(): void {
    this.last = 'loseTier';
    if (!this.#random.chance(0.15)) return;
    const position = this.#random.below(this.#pool.tiers.length);
    this.#driver.lose(this.#pool.tiers[position].tier);
    this.#pool.manager.loseTier(position, this.#nowUs);
    this.#count('tiers lost');
  }

  #query(model: Model): void {
    const before = JSON.stringify(this.#pool.getStats());
    const found = this.#pool.queryByPrefix(model.tokens, this.#random.below(8));
    if (JSON.stringify(this.#pool.getStats()) !== before) throw new Error('a query changed something');
    this.#count('found', found.length);
  }

  /** Gives up blocks that lost a part, as an embedder would that computes them again. */
  #dropLost(): void {
    for (const model of [...this.#models]) {
      const lost = this.#blocks(model).filter(({ isLost }) => isLost);
      if (lost.length === 0) continue;
      this.#pool.deallocate(this.#blocks(model));
      this.#models.splice(this.#models.indexOf(model), 1);
      this.#count('lost', lost.length);
    }
  }

  /** Sequences write their open units as soon as they have a place. */
  #write(): void {
    for (const model of this.#models) {
      for (const { unit, place } of this.#placed(model)) {
        if (unit.track.stateOf(unit.unit) !== Entry.OPEN) continue;
        const bytes = this.#driver.bytes(place.tier, place.slot, this.#unitBytes(place.sizeClass));
        bytes.set(this.#expected(model, unit));
      }
    }
  }

  #read(everything: boolean): void {
    for (const model of this.#models) {
      if (!everything && !this.#random.chance(0.3)) continue;
      for (const { unit, place } of this.#placed(model)) {
        const bytes = this.#driver.bytes(place.tier, place.slot, this.#unitBytes(place.sizeClass));
        this.#compare(bytes, this.#expected(model, unit), this.#written(model, unit), `${model.id}`);
      }
      this.#readBox(model);
    }
  }

  /** A random box, gathered from whatever units hold parts of it. */
  #readBox(model: Model): void {
    const { layout } = this.#pool;
    const random = this.#random;
    const longest = Math.max(...this.#blocks(model).map(({ tokenRange }) => tokenRange[1]));
    const [layerStart, headStart, tokenStart] = [
      random.below(LAYERS),
      random.below(HEADS),
      random.below(longest),
    ];
    const box: KVBox = {
      layerStart,
      layerEnd: random.between(layerStart + 1, LAYERS),
      headStart,
      headEnd: random.between(headStart + 1, HEADS),
      tokenStart,
      tokenEnd: random.between(tokenStart + 1, longest),
    };
    const size = (box.layerEnd - layerStart) * (box.headEnd - headStart) * (box.tokenEnd - tokenStart) * 2;
    const gathered = new Uint8Array(size * layout.rowBytes);
    const expected = new Uint8Array(size * layout.rowBytes);
    for (const block of this.#blocks(model)) {
      for (const unit of block.units) {
        const place = this.#pool.placeOf(unit);
        if (place === undefined || isChanging(unit)) continue;
        const whole = unitBox(unit);
        const bytes = this.#driver.bytes(place.tier, place.slot, this.#unitBytes(place.sizeClass));
        const has = block.boxOf(unit);
        const own = { ...whole, tokenEnd: Math.min(whole.tokenEnd, has.tokenEnd) };
        const cut = new Uint8Array(bytes.length);
        copyBox(layout, { box: whole, bytes }, { box: own, bytes: cut });
        const part = { box: own, bytes: cut };
        copyBox(layout, part, { box, bytes: gathered });
        const right = new Uint8Array(bytes.length);
        copyBox(layout, { box: whole, bytes: this.#expected(model, unit) }, { box: own, bytes: right });
        copyBox(layout, { box: own, bytes: right }, { box, bytes: expected });
      }
    }
    this.reads++;
    if (Buffer.compare(gathered, expected) !== 0) throw new Error(`a box of ${model.id} has other bytes`);
  }

  /** Compares the rows of tokens that the unit's block has. */
  #compare(found: Uint8Array, expected: Uint8Array, rows: readonly boolean[], name: string): void {
    const { rowBytes } = this.#pool.layout;
    this.reads++;
    for (let at = 0, row = 0; at < expected.length; at += rowBytes, row++) {
      if (!rows[row % rows.length]) continue;
      for (let i = at; i < at + rowBytes; i++) {
        if (found[i] !== expected[i]) throw new Error(`a unit of ${name} has other bytes at ${i}`);
      }
    }
  }

  /** The tokens of the unit that the sequence has; bytes behind them are not compared. */
  #written({ tokens }: Model, { track, unit }: PoolUnit): boolean[] {
    const { tokensPerUnit } = track.column;
    const end = Math.min(track.tokens, tokens.length);
    return Array.from({ length: tokensPerUnit }, (_, i) => unit * tokensPerUnit + i < end);
  }

  /** What the unit has to hold: rows that follow from all tokens up to each, zeros behind the last one. */
  #expected(model: Model, { track, unit }: PoolUnit): Uint8Array {
    const { layout } = this.#pool;
    const box = unitBox({ track, unit });
    const { layerStart, layerEnd, headStart, headEnd, tokenStart, tokenEnd } = box;
    const cells = (layerEnd - layerStart) * (headEnd - headStart) * (tokenEnd - tokenStart) * 2;
    const words = new Uint32Array(cells * (layout.rowBytes / 4));
    const end = Math.min(tokenEnd, track.tokens, model.tokens.length);
    for (let token = tokenStart, chain = this.#chain(model, tokenStart); token < end; token++) {
      chain = patternWord(chain, model.tokens[token], 1);
      for (let layer = layerStart; layer < layerEnd; layer++) {
        for (let head = headStart; head < headEnd; head++) {
          for (const kv of [0, 1] as const) {
            const at = rowOffsetBytes(layout, box, layer, head, kv, token) / 4;
            words[at] = patternWord(chain, (layer * HEADS + head) * 2 + kv, 2);
          }
        }
      }
    }
    return new Uint8Array(words.buffer);
  }

  #chain({ tokens }: Model, upTo: number): number {
    let chain = 17;
    for (let i = 0; i < upTo; i++) chain = patternWord(chain, tokens[i], 1);
    return chain;
  }

  #placed(model: Model) {
    return this.#blocks(model).flatMap(({ units }) =>
      units.flatMap((unit) => {
        const place = this.#pool.placeOf(unit);
        return place === undefined || isChanging(unit) ? [] : [{ unit, place }];
      }),
    );
  }

  #unitBytes(sizeClass: number): number {
    return this.#pool.manager.config.unitBytes[sizeClass];
  }

  #blocks(model: Model): KVBlockDescriptor[] {
    return this.#pool.getBlocksBySequence(model.id);
  }

  #with(name: string, act: (model: Model) => void): void {
    this.last = name;
    if (this.#models.length > 0) act(this.#random.pick(this.#models));
  }

  #try<T>(act: () => T): T | undefined {
    try {
      return act();
    } catch (error) {
      if (!(error instanceof TierKVError) || !expectedCodes.has(error.code)) throw error;
      this.#count(error.code);
      return undefined;
    }
  }

  #count(name: string, by = 1): void {
    this.counters[name] = (this.counters[name] ?? 0) + by;
  }
}

/** Whether a transfer is at work on the unit's place, so that its bytes are undefined. */
function isChanging({ track, unit }: PoolUnit): boolean {
  const state = track.stateOf(unit);
  return state === Entry.WAITING || state === Entry.FAILED || state === Entry.NONE;
}

function unitBox({ track, unit }: PoolUnit): KVBox {
  const { layerStart, layerEnd, headStart, headEnd, tokensPerUnit } = track.column;
  const tokenStart = unit * tokensPerUnit;
  return { layerStart, layerEnd, headStart, headEnd, tokenStart, tokenEnd: tokenStart + tokensPerUnit };
}
