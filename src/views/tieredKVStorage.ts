/**
 * The tiered storage of the original notes: the bytes of a pool's blocks in GPU memory, host memory and
 * files. The pool decides where a block lies; here its bytes are written, moved and read, whichever tier they
 * are in. What a read returns was compared with its digest.
 *
 *     const storage = await TieredKVStorage.open({ pool, tiers: [{ tier: 'hbm', ... }, { tier: 'ddr', ... }] });
 *     const blocks = storage.pool.allocate({ sequenceId, requestId, numTokens, layerIds });
 *     await storage.writeBlocks(data, blocks);
 *     await storage.commit(sequenceId, tokenIds);
 *     const [bytes] = await storage.readBlocks(blocks, 'ddr');   // they lie in host memory now
 */

import { type DeviceBlockTable, placesIn, type StepEnd } from '../embed/context.ts';
import { KVMigrator, MigrationLoop, type MigrationResult, type MoveEnd } from '../embed/kvMigrator.ts';
import { processAlarm } from '../embed/managerLoop.ts';
import type { MigrationPlan } from '../embed/migrationPlan.ts';
import { copyOfTokens } from '../embed/tenancy.ts';
import { described, inputError } from '../runtime/errors.ts';
import {
  boxBytes,
  countRuns,
  Entry,
  intersect,
  JobPriority,
  type KeyElements,
  type KVBox,
  type KVLayout,
  requireBox,
  TierKVError,
  valuesPerCopyRun,
  writeCopyRuns,
} from '../runtime/index.ts';
import * as is from '../runtime/kinds.ts';
import { checkInputs } from '../runtime/options.ts';
import type { KVBlockDescriptor, PoolUnit } from './kvBlockDescriptor.ts';
import type { MultiGranularKVPool } from './multiGranularKVPool.ts';
import type { CommitOptions } from './poolBlocks.ts';
import {
  estimatedLatencyUs,
  migratorOptionsOf,
  type OpenTiers,
  openTiers,
  type StorageBackend,
  type StorageTier,
  type StoredUnit,
  storageTiers,
  type TierConfig,
  type TieredStorageConfig,
} from './tieredConfig.ts';

interface StorageTierUsage {
  readonly tier: StorageTier;
  readonly used: number;
  readonly free: number;
  readonly capacity: number;
  /** Units that lie there, or are on their way. */
  readonly numBlocks: number;
  /** Used over capacity. */
  readonly utilization: number;
}

/** A `MultiGranularKVPool` whose bytes lie in real tiers, with its migrator. */
export class TieredKVStorage implements AsyncDisposable {
  readonly pool: MultiGranularKVPool;
  /** Holders of the bytes, by tier, fastest first. */
  readonly backends: readonly StorageBackend[];
  readonly migrator: KVMigrator<KVBlockDescriptor>;
  readonly #config: TieredStorageConfig;
  readonly #open: OpenTiers;
  readonly #units: UnitBytes;
  readonly #migration: MigrationLoop<KVBlockDescriptor> | null;
  #closed: Promise<void> | undefined;

  private constructor(config: TieredStorageConfig, open: OpenTiers) {
    this.#config = config;
    this.#open = open;
    this.pool = open.pool;
    this.backends = open.backends;
    this.#units = new UnitBytes(open);
    const { migration } = config;
    this.migrator = new KVMigrator(open.pool, migratorOptionsOf(config));
    const loop = new MigrationLoop(this.migrator, () => this.#now(), processAlarm);
    this.#migration = migration === false || open.backends.length === 1 ? null : loop;
    open.loop.onRoom(() => this.#migration?.poke());
  }

  /** @throws {TierKVError} naming the field, when a device, the memory or the directory is not to be had */
  static async open(config: TieredStorageConfig): Promise<TieredKVStorage> {
    return openTiers(config, (tiers) => new TieredKVStorage(config, tiers));
  }

  /** The device that holds HBM, for kernels that write blocks themselves. Another one after a loss. */
  get device(): GPUDevice {
    return this.#open.stores.device;
  }

  /**
   * Writes the packed bytes of each block, `[layer][head][K,V][token][headDim]` over its layers, heads and
   * tokens. Blocks are written in HBM, before they are committed.
   * @throws TKV_INPUT for data that does not fit, TKV_UNKNOWN_ID, TKV_STATE for a block that is committed,
   * TKV_FULL for one that got no place, TKV_DEVICE
   */
  async writeBlocks(data: readonly Uint8Array[], blocks: readonly KVBlockDescriptor[]): Promise<void> {
    checkInputs({ data, blocks }, { data: is.list(is.bytes()), blocks: is.list(is.object()) });
    this.#tell();
    if (data.length !== blocks.length) {
      throw inputError('data', `has ${data.length} parts for ${blocks.length} blocks. Give one for each.`);
    }
    blocks.forEach((block, i) => {
      this.pool.requireHeld(block);
      if (data[i].byteLength === block.sizeBytes) return;
      throw inputError(`data[${i}]`, `has ${data[i].byteLength} bytes, and its block ${block.sizeBytes}.`);
    });
    await this.#units.write(takenApart(this.pool.layout, blocks, data));
    for (const block of blocks) block.updateAccess(this.#now());
  }

  /**
   * Where the parts of the blocks lie on the device, for kernels: open parts are the caller's to write from now on.
   * @throws TKV_UNKNOWN_ID, TKV_STATE for a part below HBM or lost, TKV_DEVICE when no device is to be had
   */
  async ready(blocks: readonly KVBlockDescriptor[]): Promise<DeviceBlockTable> {
    checkInputs({ blocks }, { blocks: is.list(is.object()) });
    this.#tell();
    for (const block of blocks) this.pool.requireHeld(block);
    const { keeper, stores, pool } = this.#open;
    const { manager } = pool;
    if (!keeper.present) await keeper.ready();
    await this.#units.placed(blocks);
    const places = blocks.flatMap(({ units }) =>
      units.map(({ track, unit }) => {
        const place = manager.readableBlock(track.table, unit);
        if (place === undefined) throw stateError('have a part that is not in HBM. Read it there first.');
        manager.openings.tell(track.table, unit, unit + 1, track.column.tokensPerUnit, track.tokens);
        return place;
      }),
    );
    return placesIn({ stores, pool: () => stores.pool }, places);
  }

  /**
   * The KV of the sequence's tokens is written: its full units are sealed, behind all work that the device
   * was given so far. @param tokenIds all its tokens; left out, no other sequence can find the blocks
   * @returns `interrupted` when a block is lost: a device or its memory failed
   * @throws TKV_STATE for blocks that were not written since they were opened, TKV_DEVICE for blocks that an error of the device
   * may have hit; nothing is sealed then
   */
  async commit(sequenceId: string, tokenIds?: KeyElements, options: CommitOptions = {}): Promise<StepEnd> {
    is.name('Pass the id that the blocks were allocated for.').read(sequenceId, 'sequenceId');
    const tokens = tokenIds === undefined ? undefined : copyOfTokens(tokenIds);
    this.#tell();
    const blocks = this.pool.getBlocksBySequence(sequenceId);
    await this.#units.placed(blocks);
    this.#tell();
    this.pool.commit(sequenceId, tokens, options);
    await this.#units.settled(blocks);
    return blocks.some((block) => block.isLost) ? 'interrupted' : 'done';
  }

  /**
   * Brings the blocks to a tier, up or down, where they are not there, and reads them. The blocks count as
   * used. Parts that are not committed yet can be read in HBM alone.
   * @returns the packed bytes of each block
   * @throws TKV_UNKNOWN_ID, TKV_FULL when the tier has no room, TKV_STATE for blocks never written, or lost;
   * what could not be moved stays where it was
   */
  async readBlocks(
    blocks: readonly KVBlockDescriptor[],
    targetTier: StorageTier = 'hbm',
  ): Promise<Uint8Array[]> {
    checkInputs({ blocks }, { blocks: is.list(is.object()) });
    const nowUs = this.#tell();
    const { tier } = this.pool.tiers[this.#positionOf(targetTier)];
    for (const block of blocks) this.pool.requireHeld(block);
    const priority = targetTier === 'hbm' ? JobPriority.DEMAND_LOAD : JobPriority.WRITE_THROUGH;
    const away = blocks.filter((block) => block.tier !== tier);
    const ends = await Promise.all(
      away.map(
        (block) =>
          new Promise<MoveEnd>((ended) => {
            this.pool.move(block, tier, priority, nowUs, ended);
          }),
      ),
    );
    ends.forEach(({ success, reason }, i) => {
      if (!success) throw notMoved(away[i], targetTier, reason);
    });
    return this.#read(blocks);
  }

  /**
   * The bytes of any box of the sequence, packed, from whatever blocks hold it, wherever they lie. Nothing
   * moves. @throws TKV_UNKNOWN_ID, TKV_STATE where no block holds a part of it
   */
  async readBox(sequenceId: string, box: KVBox): Promise<Uint8Array> {
    this.#tell();
    const { layout } = this.pool;
    requireBox(layout, box);
    const bytes = bytesOfBox(layout, box);
    const parts = this.pool
      .getBlocksBySequence(sequenceId)
      .flatMap((block) => block.units.map((unit) => ({ unit, has: block.boxOf(unit) })));
    const cells = new CellSet(box);
    const needed = parts.filter(({ has }) => cells.take(has));
    if (!cells.isFull) {
      throw new TierKVError(
        'TKV_STATE',
        `box has layers, heads or tokens that sequence ${sequenceId} has no blocks of. Allocate them first.`,
        { field: 'box' },
      );
    }
    const read = await this.#units.read(needed.map(({ unit }) => unit));
    for (const part of read) copyBox(layout, part, { box, bytes });
    return bytes;
  }

  /** @throws TKV_INPUT for a tier that is not there */
  getTierUsage(tier: StorageTier): StorageTierUsage {
    const position = this.#positionOf(tier);
    const { numBlocks, usedBytes } = this.pool.getTierUsage(this.pool.tiers[position].tier);
    const { capacityBytes, freeBytes } = this.backends[position];
    const utilization = usedBytes / capacityBytes;
    return { tier, used: usedBytes, free: freeBytes, capacity: capacityBytes, numBlocks, utilization };
  }

  /**
   * Microseconds until `bytes` of the tier are in HBM if nothing else moves: latency + bytes /
   * bandwidth, as configured or calibrated; 0 for HBM unless its configuration says otherwise.
   * @throws TKV_CONFIG where nothing says how fast the tier is, TKV_INPUT for a tier that is not there
   */
  getEstimatedLatency(tier: StorageTier, bytes: number): number {
    const config = this.#open.set[storageTiers[this.#indexOf(tier)]] as TierConfig;
    return estimatedLatencyUs(config, bytes, this.#config.links ?? {});
  }

  /** Carries plans out, all at once. As `KVMigrator.executeMigration`. */
  executeMigration(
    plans: readonly MigrationPlan[],
    blocks: readonly KVBlockDescriptor[],
  ): Promise<readonly MigrationResult[]> {
    checkInputs({ plans, blocks }, { plans: is.list(is.object()), blocks: is.list(is.object()) });
    const nowUs = this.#tell();
    return new Promise((ended) => this.migrator.executeMigration(plans, blocks, nowUs, ended));
  }

  /** The same beside compute, in batches at the lowest priority. As `KVMigrator.executeMigrationAsync`. */
  executeMigrationAsync(
    plans: readonly MigrationPlan[],
    blocks: readonly KVBlockDescriptor[],
    overlapCompute = true,
  ): Promise<readonly MigrationResult[]> {
    checkInputs({ plans, blocks }, { plans: is.list(is.object()), blocks: is.list(is.object()) });
    const nowUs = this.#tell();
    return new Promise((ended) =>
      this.migrator.executeMigrationAsync(plans, blocks, nowUs, overlapCompute, ended),
    );
  }

  /** Waits until no transfer is in flight. */
  idle(): Promise<void> {
    return this.#open.loop.idle();
  }

  /** Properties that each tier really got. */
  describe(): Record<string, Record<string, string | number | boolean>> {
    return this.#open.stores.describe();
  }

  /** Transfers under way come to their end, and then the stores are closed. */
  close(): Promise<void> {
    this.#closed ??= this.#close();
    return this.#closed;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #close(): Promise<void> {
    this.#migration?.stop();
    await using stores = this.#open.stores;
    await this.#open.keeper.close();
    await this.idle();
    await stores.nvme?.sync();
  }

  async #read(blocks: readonly KVBlockDescriptor[]): Promise<Uint8Array[]> {
    const parts = partsOf(blocks);
    const read = await this.#units.read(parts.map(({ unit }) => unit));
    const bytes = putTogether(this.pool.layout, blocks, parts, read);
    const nowUs = this.#tell();
    for (const block of blocks) block.updateAccess(nowUs);
    return bytes;
  }

  #now(): number {
    return this.#open.stores.engine.nowUs();
  }

  /** Tells the pool the time. */
  #tell(): number {
    const nowUs = this.#now();
    this.pool.setClock(nowUs);
    return nowUs;
  }

  #positionOf(tier: StorageTier): number {
    const position = this.pool.tiers.findIndex((each) => each.tier === this.#indexOf(tier));
    if (position !== -1) return position;
    throw inputError('targetTier', `is ${tier}, which is not configured. Name it in tiers.`);
  }

  #indexOf(tier: StorageTier): number {
    const index = storageTiers.indexOf(tier);
    if (index !== -1) return index;
    throw inputError('targetTier', `is ${described(tier)}. Use ${storageTiers.join(', ')}.`);
  }
}

function notMoved(block: KVBlockDescriptor, tier: StorageTier, reason: string): TierKVError {
  const code = reason === 'full' ? 'TKV_FULL' : 'TKV_STATE';
  const remedy =
    reason === 'full' ? 'Let blocks go, or move others away first.' : 'Commit it first, or compute it again.';
  const message = `block ${block.blockId} did not come to ${tier}: ${reason}. ${remedy}`;
  return new TierKVError(code, message, { field: 'blocks' });
}

// Bytes of boxes between a block's packed bytes and those of its units: `[layer][head][K,V][token][headDim]`
// over the ranges of each.

/** Copies what both boxes hold. @returns the part that both hold, or undefined */
export function copyBox(
  layout: KVLayout,
  from: { readonly box: KVBox; readonly bytes: Uint8Array },
  to: { readonly box: KVBox; readonly bytes: Uint8Array },
): KVBox | undefined {
  const part = intersect(from.box, to.box);
  if (part === undefined) return undefined;
  const runs = new Float64Array(countRuns(part, from.box, to.box) * valuesPerCopyRun);
  const count = writeCopyRuns(layout, part, from.box, to.box, runs);
  for (let run = 0; run < count; run++) {
    const [source, target, bytes] = runs.subarray(run * valuesPerCopyRun, (run + 1) * valuesPerCopyRun);
    to.bytes.set(from.bytes.subarray(source, source + bytes), target);
  }
  return part;
}

/**
 * A block's layers and heads need not lie side by side in the model, but they do in its packed bytes: there
 * the first layer is 0, and so on.
 */
function packedBox({ layerIds, headIds, tokenRange }: KVBlockDescriptor): KVBox {
  return {
    layerStart: 0,
    layerEnd: layerIds.length,
    headStart: 0,
    headEnd: headIds.length,
    tokenStart: tokenRange[0],
    tokenEnd: tokenRange[1],
  };
}

/** All of a unit, counted as `packedBox` counts. */
function unitInBlock({ layerIds, headIds }: KVBlockDescriptor, { track, unit }: PoolUnit): KVBox {
  const { layerStart, layerEnd, headStart, headEnd, tokensPerUnit } = track.column;
  const layer = layerIds.indexOf(layerStart);
  const head = headIds.indexOf(headStart);
  return {
    layerStart: layer,
    layerEnd: layer + layerEnd - layerStart,
    headStart: head,
    headEnd: head + headEnd - headStart,
    tokenStart: unit * tokensPerUnit,
    tokenEnd: (unit + 1) * tokensPerUnit,
  };
}

function bytesOfBox(layout: KVLayout, box: KVBox): Uint8Array {
  return new Uint8Array(boxBytes(layout, box));
}

// Which cells of a box have been found.

class CellSet {
  readonly #box: KVBox;
  readonly #found: Uint8Array;
  #left: number;

  constructor(box: KVBox) {
    this.#box = box;
    const layers = box.layerEnd - box.layerStart;
    const heads = box.headEnd - box.headStart;
    this.#left = layers * heads * (box.tokenEnd - box.tokenStart);
    this.#found = new Uint8Array(this.#left);
  }

  get isFull(): boolean {
    return this.#left === 0;
  }

  /** @returns whether `part` has cells of the box that were not found before */
  take(part: KVBox): boolean {
    const { layerStart, headStart, tokenStart, layerEnd, headEnd, tokenEnd } = this.#box;
    const [heads, tokens] = [headEnd - headStart, tokenEnd - tokenStart];
    const before = this.#left;
    for (let l = Math.max(layerStart, part.layerStart); l < Math.min(layerEnd, part.layerEnd); l++) {
      for (let h = Math.max(headStart, part.headStart); h < Math.min(headEnd, part.headEnd); h++) {
        const row = ((l - layerStart) * heads + (h - headStart)) * tokens - tokenStart;
        for (let t = Math.max(tokenStart, part.tokenStart); t < Math.min(tokenEnd, part.tokenEnd); t++) {
          if (this.#found[row + t] === 1) continue;
          this.#found[row + t] = 1;
          this.#left--;
        }
      }
    }
    return this.#left < before;
  }
}

// Blocks as callers have them, packed, and the units of which a pool makes them: a block's bytes taken apart
// into those of its units, and put together again.

/** @param data packed bytes of each block @returns bytes of each unit, zeros behind a block's last token */
function takenApart(
  layout: KVLayout,
  blocks: readonly KVBlockDescriptor[],
  data: readonly Uint8Array[],
): { unit: PoolUnit; bytes: Uint8Array }[] {
  return blocks.flatMap((block, i) =>
    block.units.map((unit) => {
      const box = unitInBlock(block, unit);
      const bytes = bytesOfBox(layout, box);
      copyBox(layout, { box: packedBox(block), bytes: data[i] }, { box, bytes });
      return { unit, bytes };
    }),
  );
}

/** A unit of a block, as the block was when its bytes were asked for. */
interface PartOfBlock {
  readonly block: KVBlockDescriptor;
  readonly unit: PoolUnit;
}

function partsOf(blocks: readonly KVBlockDescriptor[]): PartOfBlock[] {
  return blocks.flatMap((block) => block.units.map((unit) => ({ block, unit })));
}

/** @param read the units' bytes, in the order of `parts` @returns packed bytes of each block */
function putTogether(
  layout: KVLayout,
  blocks: readonly KVBlockDescriptor[],
  parts: readonly PartOfBlock[],
  read: readonly { readonly bytes: Uint8Array }[],
): Uint8Array[] {
  const packed = new Map(blocks.map((block) => [block, bytesOfBox(layout, packedBox(block))]));
  parts.forEach(({ block, unit }, i) => {
    const bytes = packed.get(block);
    if (bytes === undefined) return;
    const from = { box: unitInBlock(block, unit), bytes: read[i].bytes };
    copyBox(layout, from, { box: packedBox(block), bytes });
  });
  return blocks.map((block) => packed.get(block) ?? new Uint8Array(0));
}

// The bytes of single units: written in HBM, read from wherever they lie. Between looking a place up and
// reading it the unit may have moved on; its old place then refuses, and it is looked up again.

const ATTEMPTS_MAX = 4;
const NO_KEY = new Uint32Array(4);

interface ReadUnit {
  /** Layers, heads and tokens of the whole unit. */
  readonly box: KVBox;
  readonly bytes: Uint8Array;
}

class UnitBytes {
  readonly #open: OpenTiers;

  constructor(open: OpenTiers) {
    this.#open = open;
  }

  async write(units: readonly { readonly unit: PoolUnit; readonly bytes: Uint8Array }[]): Promise<void> {
    const { keeper } = this.#open;
    const tokens = units.map(({ unit }) => unit.track.tokens);
    if (!keeper.present) await keeper.ready();
    await this.#waitForPlaces(units.map(({ unit }) => unit));
    const stored = units.map(({ unit }): StoredUnit => {
      const state = unit.track.stateOf(unit.unit);
      const place = this.#open.pool.placeOf(unit);
      if (state === Entry.OPEN && place !== undefined) return { place, key: NO_KEY, digest: undefined };
      if (state === Entry.FAILED) {
        throw new TierKVError('TKV_FULL', 'blocks got no place in HBM. Let them go and others first.', {
          field: 'blocks',
        });
      }
      throw stateError('are committed: others may read them. Allocate new ones, or truncate the sequence.');
    });
    await this.#open.backends[0].write(
      stored,
      units.map(({ bytes }) => bytes),
    );
    units.forEach(({ unit: { track, unit } }, i) => {
      const { openings } = this.#open.pool.manager;
      const { slot, generation } = stored[i].place;
      const now = this.#open.pool.placeOf({ track, unit }); // it may be opened anew by now
      if (now?.slot !== slot || now.generation !== generation) return;
      openings.tellAnew(track.table, unit, unit + 1, track.column.tokensPerUnit, tokens[i]);
    });
  }

  /** @throws TKV_STATE for a unit that was never written, or is lost */
  async read(units: readonly PoolUnit[]): Promise<ReadUnit[]> {
    const found = new Array<Uint8Array | undefined>(units.length).fill(undefined);
    for (let attempt = 1; ; attempt++) {
      try {
        await this.#readMissing(units, found);
        break;
      } catch (error) {
        if (attempt === ATTEMPTS_MAX || !(error instanceof TierKVError) || error.code !== 'TKV_STALE')
          throw error;
      }
    }
    return units.map((unit, i) => {
      const { layerStart, layerEnd, headStart, headEnd, tokensPerUnit } = unit.track.column;
      const tokenStart = unit.unit * tokensPerUnit;
      const box = {
        layerStart,
        layerEnd,
        headStart,
        headEnd,
        tokenStart,
        tokenEnd: tokenStart + tokensPerUnit,
      };
      return { box, bytes: found[i] ?? new Uint8Array(0) };
    });
  }

  async #readMissing(units: readonly PoolUnit[], found: (Uint8Array | undefined)[]): Promise<void> {
    const { pool, backends } = this.#open;
    const byTier = backends.map((): { at: number; unit: StoredUnit }[] => []);
    units.forEach((unit, at) => {
      if (found[at] !== undefined) return;
      const place = pool.placeOf(unit);
      const state = unit.track.stateOf(unit.unit);
      if (place === undefined || state === Entry.FAILED || state === Entry.WAITING) {
        throw stateError(
          `have a part that is ${state === Entry.FAILED ? 'lost' : 'not there yet'}. Compute it.`,
        );
      }
      const { table, column } = unit.track;
      const start = unit.unit * column.tokensPerUnit;
      const { openings } = pool.manager;
      if (openings.firstUntold(table, unit.unit, unit.unit + 1, column.tokensPerUnit, start + 1) !== -1) {
        throw stateError('have a part that is not written yet. Write it first.');
      }
      const key = unit.track.keyOf(unit.unit);
      const own = key === undefined || state === Entry.OPEN || place.diverged;
      const digest = own ? undefined : pool.manager.inspect.digestOf(key);
      byTier[place.position].push({ at, unit: { place, key: key ?? NO_KEY, digest } });
    });
    await Promise.all(
      byTier.map(async (wanted, position) => {
        if (wanted.length === 0) return;
        const bytes = await backends[position].read(wanted.map(({ unit }) => unit));
        wanted.forEach(({ at }, i) => {
          found[at] = bytes[i];
        });
      }),
    );
  }

  /** Waits until no unit of the blocks waits for a place. */
  placed(blocks: readonly KVBlockDescriptor[]): Promise<void> {
    return this.#waitForPlaces(blocks.flatMap((block) => block.units));
  }

  /** Waits until no unit of the blocks waits for a transfer. */
  async settled(blocks: readonly KVBlockDescriptor[]): Promise<void> {
    const tables = new Set(blocks.flatMap((block) => block.units.map(({ track }) => track.table)));
    await Promise.all([...tables].map((table) => this.#open.loop.settled(table)));
  }

  async #waitForPlaces(units: readonly PoolUnit[]): Promise<void> {
    for (;;) {
      const waiting = units.filter(({ track, unit }) => track.stateOf(unit) === Entry.WAITING);
      if (waiting.length === 0) return;
      await Promise.all(
        [...new Set(waiting.map(({ track }) => track.table))].map((t) => this.#open.loop.settled(t)),
      );
    }
  }
}

function stateError(problem: string): TierKVError {
  return new TierKVError('TKV_STATE', `blocks ${problem}`, { field: 'blocks' });
}
