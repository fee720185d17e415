/**
 * The tiered storage of the original notes: the bytes of a pool's blocks in GPU memory, host memory and
 * files. The pool decides where a block lies; here its bytes are written, moved and read, whichever tier they
 * are in. What a read returns was compared with its digest.
 *
 *     const tiers = [{ tier: 'hbm', ... }, { tier: 'ddr', ... }];
 *     const storage = await TieredKVStorage.open({ pool, tiers });
 *     const blocks = storage.pool.allocate({ sequenceId, requestId, numTokens, layerIds });
 *     await storage.writeBlocks(data, blocks);
 *     await storage.commit(sequenceId, tokenIds);
 *     const [bytes] = await storage.readBlocks(blocks, 'ddr');   // they lie in host memory now
 */

import {
  type CommitOptions,
  type KeyElements,
  type KVBlockDescriptor,
  type KVBox,
  KVMigrator,
  type MigrationPlan,
  type MigrationResult,
  type MigratorOptions,
  type MoveEnd,
  type MultiGranularKVPool,
  Priority,
  requireBox,
  TierKVError,
} from '../../runtime/index.ts';
import { classifierOptionsNames } from '../../runtime/migration/classifier.ts';
import { MigrationLoop } from '../migration/migrationLoop.ts';
import type { StepEnd } from '../requests/context.ts';
import { bytesOfBox, copyBox } from './boxCopies.ts';
import { CellSet } from './cellSet.ts';
import { type OpenTiers, openTiers, type TieredStorageConfig } from './openTiers.ts';
import { partsOf, putTogether, takenApart } from './packedBlocks.ts';
import type { StorageBackend } from './storageBackend.ts';
import { estimatedLatencyUs, type StorageTier, storageTiers, type TierConfig } from './tierConfig.ts';
import { UnitBytes } from './unitBytes.ts';

export interface StorageTierUsage {
  readonly tier: StorageTier;
  readonly used: number;
  readonly free: number;
  readonly capacity: number;
  /** Units that lie there, or are on their way. */
  readonly numBlocks: number;
  /** Used over capacity. */
  readonly utilization: number;
}

export class TieredKVStorage implements AsyncDisposable {
  readonly pool: MultiGranularKVPool;
  /** What holds the bytes, by tier, fastest first. */
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
    const loop = new MigrationLoop(this.migrator, () => this.#now());
    this.#migration = migration === false || open.backends.length === 1 ? null : loop;
    open.loop.onRoom(() => this.#migration?.poke());
  }

  /** @throws {TierKVError} naming the field, when a device, the memory or the directory is not to be had */
  static async open(config: TieredStorageConfig): Promise<TieredKVStorage> {
    return new TieredKVStorage(config, await openTiers(config));
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
   * The KV of the sequence's tokens is written: its full units are sealed, behind all work that the device
   * was given so far. @param tokenIds all its tokens; left out, nobody else can find the blocks
   * @returns `interrupted` when a block is lost: a device or its memory failed
   */
  async commit(sequenceId: string, tokenIds?: KeyElements, options: CommitOptions = {}): Promise<StepEnd> {
    this.#tell();
    const blocks = this.pool.getBlocksBySequence(sequenceId);
    await this.#units.placed(blocks);
    this.#tell();
    this.pool.commit(sequenceId, tokenIds, options);
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
    const nowUs = this.#tell();
    const { tier } = this.pool.tiers[this.#positionOf(targetTier)];
    for (const block of blocks) this.pool.requireHeld(block);
    const priority = targetTier === 'hbm' ? Priority.DEMAND_LOAD : Priority.WRITE_THROUGH;
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
   * Microseconds until so many bytes of the tier are in HBM if nothing else moves: latency + bytes /
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
    const nowUs = this.#tell();
    return new Promise((ended) => this.migrator.executeMigration(plans, blocks, nowUs, ended));
  }

  /** The same beside compute, in batches at the lowest priority. As `KVMigrator.executeMigrationAsync`. */
  executeMigrationAsync(
    plans: readonly MigrationPlan[],
    blocks: readonly KVBlockDescriptor[],
    overlapCompute = true,
  ): Promise<readonly MigrationResult[]> {
    const nowUs = this.#tell();
    return new Promise((ended) =>
      this.migrator.executeMigrationAsync(plans, blocks, nowUs, overlapCompute, ended),
    );
  }

  /** Waits until no transfer is in flight. */
  idle(): Promise<void> {
    return this.#open.loop.idle();
  }

  /** What each tier really got. */
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
    await this.#open.keeper.close();
    await this.idle();
    await this.#open.stores.nvme?.sync();
    await this.#open.stores[Symbol.asyncDispose]();
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
    throw inputError('targetTier', `is ${JSON.stringify(tier)}. Use ${storageTiers.join(', ')}.`);
  }
}

function notMoved(block: KVBlockDescriptor, tier: StorageTier, reason: string): TierKVError {
  const code = reason === 'full' ? 'TKV_FULL' : 'TKV_STATE';
  const remedy =
    reason === 'full' ? 'Let blocks go, or move others away first.' : 'Commit it first, or compute it again.';
  const message = `block ${block.blockId} did not come to ${tier}: ${reason}. ${remedy}`;
  return new TierKVError(code, message, { field: 'blocks' });
}

function inputError(field: string, problem: string): TierKVError {
  return new TierKVError('TKV_INPUT', `${field} ${problem}`, { field });
}

/** The thresholds of the pool's classifier, and what the storage says of its migration. */
function migratorOptionsOf({ pool, migration }: TieredStorageConfig): MigratorOptions {
  const thresholds = Object.entries(pool).filter(([name]) => classifierOptionsNames.includes(name));
  return { ...Object.fromEntries(thresholds), ...(migration === false ? {} : migration) };
}
