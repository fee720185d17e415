/**
 * The runtime for embedders: a manager, the stores under it and the engine between them, behind a few calls.
 *
 *     begin (look up, bring up, make room) -> write the open blocks -> seal -> append ... -> release
 *                                                   ^                      | interrupted
 *                                                   +------- recover <-----+
 *
 * A signal ends the waiting of `begin` and `recover`; `cancel` instead of `release` also calls off what is on its way.
 *
 * What fails below is an outcome here. A block that cannot be brought is open, to be computed. When the device is lost,
 * `seal` and `append` say `interrupted`, and `recover` gives the sequence back on the next device: what other tiers hold is
 * loaded, the rest is open.
 */

import { tableMemory } from '../backends/arena/index.ts';
import type { SlotBuffer } from '../backends/webgpu/index.ts';
import {
  BlockKeys,
  BlockTable,
  Entry,
  type KeyElements,
  KVManager,
  type LoadedBlock,
  type Match,
  type OpenBlock,
  TierKVError,
} from '../runtime/index.ts';
import { throwIfAborted, unlessAborted, type WaitOptions } from './abort.ts';
import { type KVRuntimeConfig, managerConfigOf, transferDeadlineUs } from './config.ts';
import { DeviceKeeper } from './deviceKeeper.ts';
import { KVSequence } from './kvSequence.ts';
import { Pump } from './pump.ts';
import { RequestQueue } from './requestQueue.ts';
import { type OpenStores, openStores } from './stores.ts';
import { TenantChains } from './tenantChains.ts';
import { adoptRecovered, warmNvme } from './warm.ts';

/** Blocks that `save` sends down at a time: few enough that all of them find jobs. */
const SAVE_BLOCKS = 256;

/** Loads and openings of one sequence before it is given up: each can be undone by a loss or refused once more. */
const ATTEMPTS_MAX = 8;

/** `interrupted`: some blocks of the sequence are gone, with the device or by an error of it. `recover` brings them back. */
export type StepEnd = 'done' | 'interrupted';

export class KVRuntime implements AsyncDisposable {
  readonly manager: KVManager;
  /** The stores themselves, for inspection; they belong to the runtime. */
  readonly stores: OpenStores;
  readonly #config: KVRuntimeConfig;
  readonly #pump: Pump;
  readonly #keeper: DeviceKeeper;
  readonly #chains: TenantChains;
  readonly #closing: AbortController = new AbortController();

  private constructor(config: KVRuntimeConfig, manager: KVManager, stores: OpenStores, chains: TenantChains) {
    this.#config = config;
    this.manager = manager;
    this.#chains = chains;
    this.stores = stores;
    this.#pump = new Pump(manager, stores.engine, transferDeadlineUs(config));
    this.#keeper = new DeviceKeeper(manager, stores, this.#pump, config.notice ?? (() => {}));
  }

  /** @throws {TierKVError} naming the field, when a device, the memory or the directory is not to be had */
  static async open(config: KVRuntimeConfig): Promise<KVRuntime> {
    const manager = new KVManager({ ...managerConfigOf(config), tableMemory: await tableMemory() });
    transferDeadlineUs(config);
    const chains = new TenantChains(config);
    chains.of('any tenant'); // a bad key or model name is found before anything is opened
    const stores = await openStores({ ...config, nvme: warmNvme(config) }, manager);
    const runtime = new KVRuntime(config, manager, stores, chains);
    if (stores.nvme !== undefined) adoptRecovered(manager, stores.nvme, runtime.nowUs());
    return runtime;
  }

  /** The device that holds HBM, for kernels of your own. Another one after a loss: see `devicesLost`. */
  get device(): GPUDevice {
    return this.stores.device;
  }

  /** How many devices were lost so far. Kernels and buffers of your own have to be made again whenever it grows. */
  get devicesLost(): number {
    return this.#keeper.losses;
  }

  /** What a request would find: leading blocks by tier. Changes nothing, counts nothing. */
  lookup(tokens: KeyElements, tenant: string): Match {
    const keys = new BlockKeys();
    this.#chains.of(tenant).hashBlocks(tokens, 0, keys);
    return this.manager.lookup(keys.words, keys.length);
  }

  /** A new, empty queue for prompts that wait: how much of each is cached is one call for all of them. */
  requestQueue(): RequestQueue {
    return new RequestQueue(this.manager, this.#chains, this.#config.layout.blockTokens);
  }

  /**
   * Begins a sequence: its cached blocks are pinned, those in lower tiers are brought up and verified, and the rest get
   * open blocks to write. What cannot be brought is among the open blocks. The last token is always left to compute.
   * When `signal` is raised, nothing of the call stays: loads that nobody else waits for are called off, and slots on the
   * way are free again when their last transfer has ended.
   * @param tenant who may share this KV: from your own authentication, never from the request's body
   * @throws TKV_CAPACITY when the blocks in use leave no room for it, TKV_DEVICE when the device is lost and no other is to
   * be had, TKV_STATE when the runtime is closed, and the reason of `signal`
   */
  async begin(tokens: KeyElements, tenant: string, options: WaitOptions = {}): Promise<KVSequence> {
    const signals = this.#signals(options);
    throwIfAborted(signals);
    const { blockTokens } = this.#config.layout;
    const source = this.#chains.of(tenant);
    const keys = new BlockKeys(Math.ceil(tokens.length / blockTokens) + 1);
    source.hashBlocks(tokens, 0, keys);
    const blocks = Math.ceil(tokens.length / blockTokens);
    const limit = Math.min(keys.length, Math.floor(Math.max(tokens.length - 1, 0) / blockTokens));
    if (!this.#keeper.present) await unlessAborted(signals, () => this.#keeper.ready());
    const matched = this.manager.matchLength(keys.words, limit);
    if (!this.manager.canOpen(keys.words, matched, blocks)) throw this.#full(blocks);

    const table = this.manager.open(keys.words, keys.length, this.nowUs(), limit);
    try {
      await this.#bring(table, blocks, signals);
    } catch (error) {
      if (signals.some(({ aborted }) => aborted)) this.manager.cancel(table, this.nowUs());
      else this.manager.release(table, this.nowUs());
      this.#pump.poke();
      throw error;
    }
    const cachedTokens = table.readyPrefix() * blockTokens;
    return new KVSequence({ table, tenant, keys, source, cachedTokens, tokens: tokens.length });
  }

  /**
   * Room for tokens up to `tokens.length`, as a decode appends them.
   * @throws TKV_CAPACITY when there is none
   */
  async append(sequence: KVSequence, tokens: KeyElements): Promise<StepEnd> {
    const { blockTokens } = this.#config.layout;
    const blocks = Math.ceil(tokens.length / blockTokens);
    const { table, keys, source } = sequence;
    if (!this.#isWhole(table, table.length)) return 'interrupted';
    if (!this.manager.allocate(table, table.length, blocks, this.nowUs())) throw this.#full(blocks);
    await this.#pump.until(() => table.pending === 0);
    source.hashBlocks(tokens, keys.length, keys);
    sequence.tokens = tokens.length;
    return this.#isWhole(table, blocks) ? 'done' : 'interrupted';
  }

  /**
   * Gives an interrupted sequence back: blocks that other tiers hold are loaded, all others are open. Waits for a device.
   * After an error the sequence stays interrupted and is still to be released or cancelled.
   * @returns the open blocks, by number in the sequence: each has to be written again, also if it was before
   * @throws TKV_DEVICE when no device is to be had, TKV_CAPACITY when the blocks find no room, TKV_UNKNOWN_ID when the
   * sequence has ended, TKV_STATE when the runtime is closed, and the reason of `signal`
   */
  async recover(sequence: KVSequence, options: WaitOptions = {}): Promise<number[]> {
    const signals = this.#signals(options);
    throwIfAborted(signals);
    await this.#bring(sequence.table, Math.ceil(sequence.tokens / this.#config.layout.blockTokens), signals);
    sequence.cachedTokens = sequence.table.readyPrefix() * this.#config.layout.blockTokens;
    return this.openBlocks(sequence).map(({ index }) => index);
  }

  /** Blocks that wait to be written, by number in the sequence. */
  openBlocks(sequence: KVSequence): { index: number; block: OpenBlock }[] {
    const open: { index: number; block: OpenBlock }[] = [];
    for (let index = 0; index < sequence.blocks; index++) {
      const block = this.manager.openBlock(sequence.table, index);
      if (block !== undefined) open.push({ index, block });
    }
    return open;
  }

  /**
   * Where block `index` lies, for kernels that write it (open) or attend over it (loaded).
   * @throws TKV_STATE when it is neither
   */
  slot(sequence: KVSequence, index: number): SlotBuffer {
    const block = this.#block(sequence, index);
    return this.stores.hbm.buffer(block.slot, block.sizeClass);
  }

  /**
   * The sequence's blocks in order, for attention.
   * @throws TKV_STATE when one of them is neither loaded nor open: a table with a gap would attend over wrong positions
   */
  blockTable(sequence: KVSequence): BlockTable {
    const table = new BlockTable();
    for (let i = 0; i < sequence.blocks; i++) table.append(this.#block(sequence, i));
    return table;
  }

  #block(sequence: KVSequence, index: number): LoadedBlock | OpenBlock {
    const block =
      this.manager.loadedBlock(sequence.table, index) ?? this.manager.openBlock(sequence.table, index);
    if (block === undefined) {
      throw new TierKVError(
        'TKV_STATE',
        `block ${index} is not in HBM. Await begin, append or seal first; recover the sequence when it was interrupted.`,
        {
          field: 'index',
        },
      );
    }
    return block;
  }

  /**
   * The device work submitted so far has written all full open blocks: their digests are taken behind it, and from then on
   * others find them.
   */
  async seal(sequence: KVSequence): Promise<StepEnd> {
    const { table, keys } = sequence;
    const { blockTokens } = this.#config.layout;
    for (let i = 0; i < keys.length; i++) {
      if (table.state[i] === Entry.OPEN) {
        this.manager.seal(table, i, i + 1, keys.words, i * 4, blockTokens, this.nowUs());
      }
    }
    await this.#pump.until(() => table.pending === 0);
    return this.#isWhole(table, table.length) ? 'done' : 'interrupted';
  }

  /** Ends the sequence. Its sealed blocks stay cached, here and below; blocks never sealed are gone. */
  release(sequence: KVSequence): void {
    this.manager.release(sequence.table, this.nowUs());
    this.#pump.poke();
  }

  /**
   * Ends the sequence of a request that nobody wants any more: as `release`, and loads of a `recover` under way that no
   * other sequence waits for are called off. Calls that wait for the sequence end too: `seal` and `append` say
   * `interrupted`, `recover` rejects with TKV_UNKNOWN_ID.
   */
  cancel(sequence: KVSequence): void {
    this.manager.cancel(sequence.table, this.nowUs());
    this.#pump.poke();
  }

  /** Waits until no transfer is in flight, those given up at their deadline apart. */
  async idle(): Promise<void> {
    await this.#pump.until(() => this.manager.jobsInFlight === this.manager.jobsOverdue);
  }

  /**
   * Sends what is cached in HBM and DDR down to the files and makes it durable, so that the next start finds it: call it
   * before a planned end. Where the files have no room for all, the blocks used last are kept.
   * @returns blocks that the files hold then; 0 without files
   * @throws TKV_IO when the disk refuses to make it durable
   */
  async save(): Promise<number> {
    const { nvme } = this.stores;
    if (nvme === undefined) return 0;
    const last = this.manager.tiers.length - 1;
    for (let position = 0; position < last; position++) {
      while (this.manager.evict(position, SAVE_BLOCKS, this.nowUs()).evicted > 0) await this.idle();
    }
    await nvme.sync();
    return this.manager.usage(last).slots.ready;
  }

  /** The runtime's clock, in microseconds since it was opened: what calls of the manager want. */
  nowUs(): number {
    return this.stores.engine.nowUs();
  }

  /**
   * What each tier really got, and how well the whole is: `overdueTransfers` never ended and keep their slots until they do,
   * `devicesLost` counts, and `devicePresent` says whether there is one now.
   */
  describe(): Record<string, Record<string, string | number | boolean>> {
    return {
      ...this.stores.describe(),
      runtime: {
        overdueTransfers: this.manager.jobsOverdue,
        devicesLost: this.#keeper.losses,
        devicePresent: this.#keeper.present,
      },
    };
  }

  /**
   * Closes the runtime: `begin` and `recover` reject with TKV_STATE from now on, also those that wait, transfers under way
   * come to their end or their deadline, and then the stores are closed. Nothing else may be called any more.
   */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#closing.abort(new TierKVError('TKV_STATE', 'the runtime is closed. Open another one.'));
    await this.#keeper.close();
    await this.idle();
    await this.stores[Symbol.asyncDispose]();
  }

  /**
   * Every block of the table is brought to HBM or opened to be computed: once, and again for as long as losses and errors
   * undo it.
   */
  async #bring(table: KVSequence['table'], blocks: number, signals: readonly AbortSignal[]): Promise<void> {
    for (let attempt = 0; attempt < ATTEMPTS_MAX; attempt++) {
      if (!this.#keeper.present) await unlessAborted(signals, () => this.#keeper.ready());
      if (!this.manager.load(table, this.nowUs(), 0, table.length)) break;
      if (!this.manager.allocate(table, 0, blocks, this.nowUs())) break;
      await unlessAborted(signals, () => this.#pump.until(() => table.pending === 0));
      if (this.#isWhole(table, blocks)) return;
    }
    throw this.#full(blocks);
  }

  /** Whether all blocks are in HBM, to be read or written. */
  #isWhole(table: KVSequence['table'], blocks: number): boolean {
    if (!this.#keeper.present || table.length < blocks) return false;
    for (let i = 0; i < blocks; i++) {
      if (table.state[i] !== Entry.READY && table.state[i] !== Entry.OPEN) return false;
    }
    return true;
  }

  /** What ends a wait: the end of the runtime, and the caller's signal where there is one. */
  #signals({ signal }: WaitOptions): AbortSignal[] {
    return signal === undefined ? [this.#closing.signal] : [this.#closing.signal, signal];
  }

  #full(blocks: number): TierKVError {
    const { heldBytes, capacityBytes, slots } = this.manager.usage(0);
    const late =
      this.manager.jobsOverdue === 0 ? '' : `, ${slots.draining} slots wait for transfers that are overdue`;
    return new TierKVError(
      'TKV_CAPACITY',
      `${blocks} blocks do not fit HBM: ${heldBytes} of ${capacityBytes} bytes are in use${late}. Release a sequence, or raise hbmBytes.`,
      { field: 'hbmBytes' },
    );
  }
}
