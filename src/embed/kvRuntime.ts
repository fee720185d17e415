/**
 * The runtime for embedders: one class in front of a manager, the stores below it and the engine between them.
 *
 *     begin (look up, bring up, make room) -> write the open blocks -> seal -> append or step ... -> release
 *                                                   ^                      | interrupted
 *                                                   +------- recover <-----+
 *
 * A signal ends the waiting of `begin` and `recover`. `cancel` instead of `release` also cancels loads under
 * way.
 *
 * Failures of the stores are outcomes here. A block that cannot be loaded is open, to be computed. When the
 * device is lost, `seal`, `append` and `step` return `interrupted`, and `recover` continues the sequence on
 * the next device: blocks that other tiers hold are loaded, the rest is open.
 */

import { guarded, guardedMethods } from '../backends/guarded.ts';
import type { SlotBuffer } from '../backends/webgpu/types.ts';
import { described, inputError } from '../runtime/errors.ts';
import {
  BlockKeys,
  type BlockTable,
  JobPriority,
  type KeyElements,
  type KVBudget,
  type KVLayout,
  type KVManager,
  type KVMetrics,
  kvBudget,
  kvMetrics,
  type ManagerObserver,
  type Match,
  type OpenBlock,
  type RequestExtras,
  type Sequence,
  TierKVError,
  type TierName,
} from '../runtime/index.ts';
import * as is from '../runtime/kinds.ts';
import { managerObserverNames } from '../runtime/manager/observer.ts';
import { type Kinds, optionTable } from '../runtime/options.ts';
import { assembleRuntime, type RuntimeParts } from './assembly.ts';
import {
  type BeginOptions,
  begin,
  bring,
  checkedPriority,
  type RetentionHint,
  type Room,
  retain,
  roomOf,
  signalsOf,
} from './begin.ts';
import { type BlockFiller, eachBlock, requireOpen, type TopPlace, viewOf, writeBytes } from './blockBytes.ts';
import { BlockPort } from './blockPort.ts';
import { fork, truncate } from './branch.ts';
import type { KVRuntimeConfig } from './config.ts';
import {
  type DeviceBlockTable,
  notOnTop,
  placesIn,
  type RequestContext,
  readableBlocks,
  requireLive,
  type StepEnd,
  tokensToFind,
} from './context.ts';
import type { CrossRequestKVCache } from './crossRequestKVCache.ts';
import { RuntimeExplainer, type TokensToExplain } from './explaining.ts';
import type { CacheExplanation } from './explanation.ts';
import { append, type EntryEnd, type StepEntry, seal, step } from './grow.ts';
import { throwIfAborted, type WaitOptions, waitOptionsTable } from './managerLoop.ts';
import { metricsOf, type RuntimeMetrics } from './metrics.ts';
import {
  type BlockUseEvent,
  type CacheEvent,
  type CacheEvents,
  type DecisionLogFile,
  type EventOptions,
  eventOptionsTable,
  guardedRequests,
  type RequestObserver,
} from './observability.ts';
import { PagedAttentionCache } from './pagedAttentionCache.ts';
import {
  dropTail,
  nextPart,
  PART_TOKENS,
  type ReadyLayers,
  readyLayers,
  releaseSequence,
} from './partialPrefill.ts';
import { type FoundState, getState, putState, type StateOptions } from './prefixStates.ts';
import {
  type CrossRequestOptions,
  crossRequestCache,
  placesOf,
  RequestQueue,
  ready,
  setQuota,
} from './reuse.ts';
import { type SaveOptions, saveDurably } from './saving.ts';
import { KVScheduler, type KVSchedulerConfig } from './scheduler.ts';
import { type KVSequence, type PrefillPart, type SequenceState, stateOf } from './sequenceState.ts';
import type { OpenStores } from './stores.ts';

/** An observer of a runtime. It may read, and makes no call that changes anything. */
interface RuntimeObserver {
  readonly blocks?: ManagerObserver | undefined;
  readonly requests?: RequestObserver | undefined;
}

const observerTable = optionTable({
  blocks: is.optional(is.object()),
  requests: is.optional(is.object()),
} satisfies Kinds<RuntimeObserver>);

export interface OpenUnit {
  /** Block of the sequence, from 0. */
  readonly index: number;
  /** Layer group, from 0. */
  readonly group: number;
  readonly block: OpenBlock;
}

export interface LookupOptions {
  readonly tenant: string;
  /** The same extras as at `begin`. */
  readonly extras?: RequestExtras | undefined;
}

const lookupOptionsTable = optionTable({
  tenant: is.passed(),
  extras: is.optional(is.passed()),
} satisfies Kinds<LookupOptions>);

/** @throws TKV_INPUT for a block that the sequence does not have, TKV_UNKNOWN_ID where it has ended */
function requireBlock(sequence: SequenceState, index: number): void {
  requireLive(sequence);
  const { blocks } = sequence;
  if (Number.isSafeInteger(index) && index >= 0 && index < blocks) return;
  const count = blocks === 0 ? 'no blocks' : `${blocks} ${blocks === 1 ? 'block' : 'blocks'}`;
  const remedy = blocks === 0 ? 'Append tokens first.' : `Name 0 to ${blocks - 1}.`;
  throw inputError('index', `is ${described(index)}, and the sequence has ${count}. ${remedy}`);
}

/** @throws TKV_INPUT for a group that is not there */
function groupOf(context: RequestContext, sequence: KVSequence, group: number): KVSequence['groups'][number] {
  const { groups } = stateOf(context, sequence);
  const found = Number.isSafeInteger(group) ? groups[group] : undefined;
  if (found !== undefined) return found;
  const { length } = groups;
  throw inputError('group', `is ${described(group)}, and there are ${length}. Count them from 0.`);
}

export interface NextPartOptions extends WaitOptions {
  /** Most tokens of the part. Default 512. */
  readonly maxTokens?: number | undefined;
}

const nextPartOptionsTable = optionTable({
  signal: is.optional(is.passed()),
  maxTokens: is.optional(is.integer(1), PART_TOKENS),
} satisfies Kinds<NextPartOptions>);

export interface PrefetchOptions extends LookupOptions {
  readonly priority?: number | undefined;
}

const prefetchOptionsTable = optionTable({
  tenant: is.passed(),
  extras: is.optional(is.passed()),
  priority: is.optional(is.passed(), 0),
} satisfies Kinds<PrefetchOptions>);

const sealOptionsTable = optionTable({ tail: is.optional(is.flag(), false) });
const releaseOptionsTable = optionTable({
  retention: is.optional(is.passed<RetentionHint>()),
});

/** The runtime of one process: the manager, the scheduler and the tiers as one object for a server. */
export class KVRuntime implements AsyncDisposable {
  readonly manager: KVManager;
  /** The stores themselves, for inspection; they belong to the runtime. */
  readonly stores: OpenStores;
  readonly #context: RequestContext;
  readonly #events: CacheEvents;
  readonly #config: KVRuntimeConfig;
  readonly #log: DecisionLogFile | null;
  readonly #restored: Promise<void>;
  readonly #closing: AbortController;
  /** Null unless the runtime was opened with `explain`. */
  readonly #explainer: RuntimeExplainer | null;
  #closed: Promise<void> | undefined;
  #scheduler: KVScheduler | undefined;

  /** @throws {TierKVError} naming the field, when a device, the memory or the directory cannot be had */
  static async open(config: KVRuntimeConfig): Promise<KVRuntime> {
    return assembleRuntime(config, (parts) => new KVRuntime(parts));
  }

  private constructor(parts: RuntimeParts) {
    if (!(parts?.closing instanceof AbortController)) {
      throw new TierKVError(
        'TKV_STATE',
        'new KVRuntime() makes no runtime. Use await KVRuntime.open(config).',
      );
    }
    const { config, stores, context, events, log, restored, closing } = parts;
    this.#restored = restored;
    this.stores = stores;
    this.manager = context.manager;
    this.#config = config;
    this.#context = context;
    this.#events = events;
    this.#log = log;
    this.#closing = closing;
    const { explain = false, model } = config;
    const memory = explain === true ? {} : explain;
    this.#explainer = memory === false ? null : new RuntimeExplainer(context, model, memory);
  }

  // A sequence from `begin` to `release`.

  /**
   * Begins a sequence: its cached blocks are pinned, those in lower tiers are brought up and verified, and
   * the rest get open blocks to write. What cannot be brought is among the open blocks. The last token is
   * always left to compute. When `signal` is raised, nothing of the call stays: loads without another waiter
   * are cancelled, and slots on the way are free again when their last transfer has ended.
   * @throws TKV_INPUT for invalid tokens or an invalid tenant, TKV_CAPACITY for a request that can never fit,
   * TKV_FULL when the blocks in use leave no room now and `wait` is not set, TKV_DEVICE when the device is
   * lost without a replacement, or undoes its blocks every time, TKV_STATE when the runtime is closed,
   * and the reason of `signal`
   */
  begin(tokens: KeyElements, options: BeginOptions): Promise<KVSequence> {
    return begin(this.#context, tokens, options);
  }

  /**
   * The next tokens to compute of a sequence that was begun with `arriving`, as soon as there are some; call
   * it when the kernels of the part before are submitted.
   * @param options.maxTokens of the part (512)
   * @returns null when nothing is left to compute, and for a sequence that was begun otherwise. `interrupted`
   * when blocks were lost: `recover` it, or release it
   * @throws TKV_CONFIG for a part without a token, TKV_FULL when its blocks find no room, TKV_UNKNOWN_ID,
   * TKV_STATE, and the reason of `signal`
   */
  async nextPart(
    sequence: KVSequence,
    options: NextPartOptions = {},
  ): Promise<PrefillPart | null | 'interrupted'> {
    const read = nextPartOptionsTable.read(options);
    const signals = signalsOf(this.#context, read);
    throwIfAborted(signals);
    const state = stateOf(this.#context, sequence);
    requireLive(state);
    return nextPart(this.#context, state, read.maxTokens, signals);
  }

  /**
   * Waits until a layer group of a sequence that was begun with `arriving` is in HBM, all of it verified.
   * Groups come in their order, so compute one while the next is on its way.
   * @returns `interrupted` when some of it failed to come: `recover` the sequence, and compute all layers of
   * what is open then
   * @throws TKV_INPUT for a group that is not there, TKV_UNKNOWN_ID, TKV_STATE, and the reason of `signal`
   */
  async readyLayers(
    sequence: KVSequence,
    group: number,
    options: WaitOptions = {},
  ): Promise<ReadyLayers | 'interrupted'> {
    const signals = signalsOf(this.#context, waitOptionsTable.read(options));
    throwIfAborted(signals);
    const state = stateOf(this.#context, sequence);
    requireLive(state);
    groupOf(this.#context, state, group);
    return readyLayers(this.#context, state, group, signals);
  }

  /**
   * Room for tokens up to `tokens.length`, as a decode appends them. `tokens` are all tokens of the sequence
   * and the new ones behind them. Seals nothing.
   * @throws TKV_FULL without room, TKV_INPUT when a token of the sequence is another one in
   * `tokens`, TKV_UNKNOWN_ID when the sequence has ended; so do the calls below
   */
  async append(sequence: KVSequence, tokens: KeyElements): Promise<StepEnd> {
    return append(this.#context, stateOf(this.#context, sequence), tokens);
  }

  /**
   * A decode step of a batch, after the device was given the work that writes the KV of all tokens so far:
   * blocks that are full are sealed behind that work, and each sequence gets room for its new tokens.
   * @returns the end of each entry, in order
   * @throws TKV_INPUT for an invalid token id, TKV_CAPACITY for a sequence that HBM cannot hold,
   * TKV_UNKNOWN_ID for one that has ended; no sequence has grown then
   */
  step(entries: readonly StepEntry[]): Promise<EntryEnd[]> {
    return step(this.#context, entries);
  }

  /**
   * The device work submitted so far has written all full open blocks: their digests are taken behind it, and
   * from then on others find them.
   * @param options.tail seals the partial last block too, under the tokens that it has: for prompts that go
   * on from there
   */
  async seal(sequence: KVSequence, options: { readonly tail?: boolean } = {}): Promise<StepEnd> {
    const { tail } = sealOptionsTable.read(options);
    return seal(this.#context, stateOf(this.#context, sequence), tail);
  }

  /**
   * Another sequence with the first `atToken` tokens of this one: full blocks are shared, the partial one is
   * copied.
   * @returns `interrupted` when the sequence is to be recovered first
   * @throws TKV_FULL when the copy finds no room
   */
  async fork(sequence: KVSequence, atToken?: number): Promise<KVSequence | 'interrupted'> {
    const state = stateOf(this.#context, sequence);
    return fork(this.#context, state, atToken === undefined ? state.length : atToken);
  }

  /**
   * Takes tokens back, such as drafts that were not accepted: the sequence ends after `tokens` of them.
   * @throws TKV_FULL when a sealed last block has to be copied and finds no room
   */
  async truncate(sequence: KVSequence, tokens: number): Promise<StepEnd> {
    return truncate(this.#context, stateOf(this.#context, sequence), tokens);
  }

  /**
   * Gives an interrupted sequence back: blocks that other tiers hold are loaded, all others are open. Waits
   * for a device. After an error the sequence stays interrupted and is still to be released or cancelled.
   * @returns the open blocks, by number in the sequence: each has to be written again, also if it was before
   * @throws TKV_DEVICE without a device, TKV_FULL when the blocks find no room, TKV_UNKNOWN_ID
   * when the sequence has ended, TKV_STATE when the runtime is closed, and the reason of `signal`
   */
  async recover(sequence: KVSequence, options: WaitOptions = {}): Promise<number[]> {
    const signals = signalsOf(this.#context, waitOptionsTable.read(options));
    throwIfAborted(signals);
    const state = stateOf(this.#context, sequence);
    requireLive(state);
    dropTail(this.#context, state);
    state.isRecovering = true;
    await bring(this.#context, state, signals, false);
    state.cachedTokens = state.readyTokens;
    state.arriving = undefined;
    state.isComing = false;
    for (const group of state.groups) group.sealed = Math.min(group.sealed, group.table.readyPrefix());
    const { openings } = this.manager;
    const { blockTokens } = this.#config.layout;
    for (const { table } of state.groups)
      openings.tellAnew(table, 0, state.blocks, blockTokens, state.length);
    state.isRecovering = false;
    return [...new Set(this.openBlocks(sequence).map(({ index }) => index))];
  }

  /**
   * Ends the sequence. Its sealed blocks stay cached, here and below; blocks never sealed are gone.
   * @param options.retention how its blocks should be kept; a hint to the eviction policy
   */
  release(sequence: KVSequence, options: { readonly retention?: RetentionHint } = {}): void {
    const { retention } = releaseOptionsTable.read(options);
    const state = stateOf(this.#context, sequence);
    if (retention !== undefined) retain(this.#context, state, retention);
    releaseSequence(this.#context, state);
  }

  /**
   * Ends the sequence of an abandoned request: as `release`, and cancels loads of a `recover` under way that
   * no other sequence waits for. Calls that wait for the sequence end too: `seal` and `append` return
   * `interrupted`, `recover` rejects with TKV_UNKNOWN_ID.
   */
  cancel(sequence: KVSequence): void {
    releaseSequence(this.#context, stateOf(this.#context, sequence), 'cancelled');
  }

  // The bytes of a sequence's blocks, for a process that computes KV itself.

  /**
   * The bytes of block `index` where they lie: a view of host memory, good while the sequence is held and its tokens are
   * not taken back. Nothing is copied. Others read the same bytes: change them only in open blocks.
   * @throws TKV_STATE for a block that is not in place, and in a runtime with a device
   */
  read(sequence: KVSequence, index: number, group = 0): Uint8Array {
    return viewOf(this.#context, this.#readable(sequence, index, group), 'read');
  }

  /**
   * Fills open block `index`, whole. A block whose writing failed is not sealed until it is written.
   * @param bytes all its bytes, or a function that fills them in place before it returns
   * @throws TKV_INPUT for bytes of another length, TKV_STATE for a block that is not open, and in a runtime with a device
   */
  write(sequence: KVSequence, index: number, bytes: BlockFiller, group = 0): void {
    viewOf(this.#context, this.#writable(sequence, index, group), 'write');
    this.#write(sequence, index, bytes, group);
  }

  /**
   * A copy of the bytes of block `index`, from a device or from host memory.
   * @throws TKV_STATE for a block that is not in place, TKV_DEVICE when the device is lost meanwhile
   */
  async readBlock(sequence: KVSequence, index: number, group = 0): Promise<Uint8Array> {
    let copy = new Uint8Array(0);
    await eachBlock(this.#context, [this.#readable(sequence, index, group)], (bytes) => {
      copy = bytes.slice();
    });
    return copy;
  }

  /**
   * Hands the bytes of the first `blocks` blocks to `take`, in order; from a device many are copied at a time. The bytes
   * are valid during the call of `take` alone.
   * @throws TKV_STATE for a block that is not in place, TKV_DEVICE when the device is lost meanwhile
   */
  async readBlocks(
    sequence: KVSequence,
    blocks: number,
    take: (bytes: Uint8Array, index: number) => void,
    group = 0,
  ): Promise<void> {
    is.func().read(take, 'take');
    const places = Array.from({ length: blocks }, (_, index) => this.#readable(sequence, index, group));
    await eachBlock(this.#context, places, take);
  }

  /**
   * Copies the bytes into open block `index`. On a device that happens ahead of all work that is submitted later, so
   * `seal` may follow at once.
   * @param bytes all its bytes, or a function that is called with a block to fill before `writeBlock` returns
   * @throws TKV_INPUT for bytes of another length, TKV_STATE for a block that is not open
   */
  writeBlock(sequence: KVSequence, index: number, bytes: BlockFiller, group = 0): void {
    this.#write(sequence, index, bytes, group);
  }

  #write(sequence: KVSequence, index: number, bytes: BlockFiller, group: number): void {
    const place = this.#writable(sequence, index, group);
    const { table } = groupOf(this.#context, sequence, group);
    this.manager.openings.written(table, index, false); // until all of it is
    writeBytes(this.#context, place, bytes);
    this.manager.openings.written(table, index, true);
  }

  #readable(sequence: KVSequence, index: number, group: number): TopPlace {
    const { table } = groupOf(this.#context, sequence, group);
    requireBlock(stateOf(this.#context, sequence), index);
    const block = this.manager.readableBlock(table, index);
    if (block === undefined) throw notOnTop(this.#context, index);
    return block;
  }

  #writable(sequence: KVSequence, index: number, group: number): TopPlace {
    const place = this.#readable(sequence, index, group);
    requireOpen(groupOf(this.#context, sequence, group).table.state[index], index);
    return place;
  }

  // Opaque states of whole prefixes.

  /**
   * Stores the state of a prefix as one piece, such as what llama.cpp writes of a sequence; see `getState`. A whole state
   * that the prefix has already stays, whatever its bytes.
   * @param state of any size up to what the tiers hold together
   * @returns whether the prefix has a whole state now; false where its first parts had to leave for the last ones
   * @throws TKV_INPUT for malformed tokens, state or options, TKV_CAPACITY for a state that the tiers can never hold,
   * TKV_FULL when its blocks find no room now and `wait` is not set, TKV_DEVICE when the device is lost meanwhile,
   * TKV_STATE when the runtime is closed, and the reason of `signal`
   */
  async putState(tokens: KeyElements, state: Uint8Array, options: StateOptions): Promise<boolean> {
    return putState(this.#context, tokens, state, options);
  }

  /**
   * A copy of the state of the longest prefix of `tokens` that has one. Its blocks are verified as all blocks are. With a
   * tier that several runtimes share, what another one stored is found under the same `tokens` alone.
   * @returns undefined where no prefix has a whole state
   * @throws as `putState`
   */
  async getState(tokens: KeyElements, options: StateOptions): Promise<FoundState | undefined> {
    return getState(this.#context, tokens, options);
  }

  // Where the blocks of a sequence lie, for kernels.

  /** How the bytes of a block lie. */
  get layout(): KVLayout {
    return this.#config.layout;
  }

  /** Units that wait to be written, in order of their blocks. */
  openBlocks(sequence: KVSequence): OpenUnit[] {
    const open: OpenUnit[] = [];
    const { blocks, groups } = stateOf(this.#context, sequence);
    for (let index = 0; index < blocks; index++) {
      groups.forEach(({ table }, group) => {
        const block = this.manager.openBlock(table, index);
        if (block !== undefined) open.push({ index, group, block });
      });
    }
    return open;
  }

  /**
   * Where block `index` lies, for kernels that write it (open) or attend over it (loaded, or being sealed).
   * @throws TKV_STATE for a block in another state
   */
  slot(sequence: KVSequence, index: number, group = 0): SlotBuffer {
    const { slot, sizeClass } = this.#readable(sequence, index, group);
    return this.#context.pool().buffer(slot, sizeClass);
  }

  /**
   * The sequence's blocks in order, for attention: as they lie now, so take it anew for each step.
   * @throws TKV_STATE when one of them is neither loaded, open nor being sealed: a table with a gap would
   * attend over wrong positions
   */
  blockTable(sequence: KVSequence, group = 0): BlockTable {
    return readableBlocks(this.manager, groupOf(this.#context, sequence, group).table, sequence.blocks);
  }

  /** `blockTable` as slab and offset of each block, for kernels. @throws TKV_STATE as `blockTable` */
  deviceBlockTable(sequence: KVSequence, group = 0): DeviceBlockTable {
    return placesIn(this.#context, this.blockTable(sequence, group).blocks);
  }

  /** Slab and offset of the table's blocks. @throws TKV_STATE when one of them is not in HBM */
  places(table: Sequence): DeviceBlockTable {
    return placesOf(this.#context, table);
  }

  /**
   * Fulfilled when no block of the table waits for a transfer; slots of other tenants are cleared by then.
   */
  async ready(table: Sequence): Promise<void> {
    return ready(this.#context, table);
  }

  // The device.

  /** The device that holds HBM, for kernels of your own. Another one after a loss: see `devicesLost`. */
  get device(): GPUDevice {
    return this.stores.device;
  }

  /**
   * Waits for what `start` begins on the device, such as a `mapAsync` of your own, as the runtime waits
   * itself (`wait` of its configuration). A plain wait keeps a core busy until it ends.
   */
  async waitFor<T>(start: () => Promise<T>): Promise<T> {
    is.func().read(start, 'start');
    return this.stores.waitFor(start);
  }

  /**
   * How many devices were lost so far. Kernels and buffers of your own have to be made again whenever it
   * grows.
   */
  get devicesLost(): number {
    return this.#context.keeper.losses;
  }

  /** Whether there is a device now: false without one, and while another one is looked for. */
  get devicePresent(): boolean {
    return this.stores.hasDevice && this.#context.keeper.present;
  }

  /** The runtime's clock, in microseconds since it was opened: what calls of the manager want. */
  nowUs(): number {
    return this.#context.nowUs();
  }

  // The cache: what is in it, what is expected, what each tenant may have.

  /** The leading blocks that a request would find, by tier. Changes nothing, counts nothing. */
  lookup(tokens: KeyElements, options: LookupOptions): Match {
    this.#requireOpen();
    const { tenant, extras } = lookupOptionsTable.read(options);
    const [chain] = this.#context.chains.of(tenant, extras);
    const keys = new BlockKeys();
    chain.hashBlocks(tokens, 0, keys, tokensToFind(this.#context, tokens));
    return this.manager.lookup(keys.words, keys.length);
  }

  /**
   * Brings what lower tiers hold of these tokens up to HBM, for a request that is expected.
   * @param options.priority 0 (default): behind the loads that requests wait for. Below 0: with them.
   * Above 0: behind what leaves HBM too
   * @returns loads started
   */
  prefetch(tokens: KeyElements, options: PrefetchOptions): number {
    this.#requireOpen();
    const { tenant, extras, priority } = prefetchOptionsTable.read(options);
    const urgency = urgencyOf(priority);
    let started = 0;
    for (const chain of this.#context.chains.of(tenant, extras)) {
      const keys = new BlockKeys();
      chain.hashBlocks(tokens, 0, keys, tokensToFind(this.#context, tokens));
      started += this.manager.prefetch(keys.words, keys.length, this.nowUs(), urgency);
    }
    return started;
  }

  /** A new, empty queue for prompts that wait: how much of each is cached is one call for all of them. */
  requestQueue(): RequestQueue {
    this.#requireOpen();
    return new RequestQueue(this.manager, this.#context.chains, this.#config.layout.blockTokens);
  }

  /** The room that the tenant may still use in each tier. */
  budget(tenant: string): KVBudget {
    return kvBudget(this.manager, this.#context.owners.of(tenant));
  }

  /**
   * Room of a tier that is the tenant's own, or its group's: while it takes no more there, none of its blocks
   * is evicted for others, and what it takes beyond goes first.
   * @param bytes null for no quota, as at the beginning
   * @throws TKV_CONFIG for a tier that is not there, or quotas over its capacity
   */
  setQuota(tenant: string, tier: TierName, bytes: number | null): void {
    this.#requireOpen();
    setQuota(this.#context, tenant, tier, bytes);
  }

  /** How much of HBM a request could take now, and how many requests wait for room. */
  get room(): Room {
    return roomOf(this.#context);
  }

  // Parts that work on this runtime.

  /**
   * Continuous batching on this runtime: which requests run in each step, with how many tokens, in which
   * blocks. There is one at a time.
   * @throws TKV_CONFIG for a setting that is wrong or that a runtime cannot keep, TKV_STATE while another one
   * is open, and when the runtime is closed
   */
  scheduler(config: KVSchedulerConfig = {}): KVScheduler {
    this.#requireOpen();
    if (this.#scheduler !== undefined && !this.#scheduler.isClosed) {
      throw new TierKVError('TKV_STATE', 'the runtime has a scheduler. Close it before you open another.');
    }
    this.#scheduler = new KVScheduler(this.#context, config, this.#log?.sink ?? null);
    return this.#scheduler;
  }

  /** Reuse of one request's KV by another, in tables of the manager. Await `ready` before kernels use them. */
  crossRequestCache(options: CrossRequestOptions = {}): CrossRequestKVCache {
    this.#requireOpen();
    return crossRequestCache(this.#context, options);
  }

  /**
   * Private blocks by number, for a batch that keeps its own tables. Dispose of it before the runtime closes.
   * @throws TKV_CONFIG for a runtime with layer groups
   */
  pagedCache(): PagedAttentionCache {
    this.#requireOpen();
    return new PagedAttentionCache(this.#context, this.#config.layout);
  }

  /**
   * The port that hands blocks over to other runtimes, and takes theirs: for `tierkv/serve`. @throws TKV_STATE when
   * closed
   */
  blockPort(): BlockPort {
    this.#requireOpen();
    return new BlockPort(this.#context, this.stores, this.#config);
  }

  // Reports of the runtime.

  /**
   * Tells of every block and job, and of every request, from now on. What is watched so stands in `tierkv/observe`. What
   * an observer throws hurts no request: `notice` is told the first time.
   * @returns unsubscribe
   * @throws TKV_STATE when the runtime is closed, since nothing more happens then
   */
  observe(observer: RuntimeObserver): () => void {
    this.#requireOpen();
    const { blocks, requests } = observerTable.read(observer, 'observer');
    let isTold = false;
    const threw = (error: unknown): void => {
      if (!isTold) guarded(this.#config.notice)(`tierkv: an observer threw: ${String(error)}`);
      isTold = true;
    };
    const stops = [
      blocks === undefined
        ? undefined
        : this.manager.observe(guardedMethods(blocks, managerObserverNames, threw)),
      requests === undefined ? undefined : this.#context.observers.add(guardedRequests(requests, threw)),
    ];
    return () => {
      for (const stop of stops) stop?.();
    };
  }

  /**
   * Explains what a request found, block by block, and why the rest was missing. It names other tenants: it is for
   * operators.
   * @param request the id of a request of the scheduler, a sequence, or its number
   * @throws TKV_STATE unless the runtime was opened with `explain`, TKV_UNKNOWN_ID for a request that is not remembered
   */
  explain(request: string | number | KVSequence): CacheExplanation;

  /**
   * Explains what a request for these tokens would find now.
   * @param options.others other runtimes of this process, where the tokens may lie under another model
   * @throws TKV_INPUT for invalid tokens or an invalid tenant
   */
  explain(
    tokens: KeyElements,
    options: TokensToExplain & { readonly others?: readonly KVRuntime[] | undefined },
  ): CacheExplanation;

  explain(
    asked: string | number | KVSequence | KeyElements,
    options?: TokensToExplain & { readonly others?: readonly KVRuntime[] | undefined },
  ): CacheExplanation {
    const explainer = this.#requireExplainer();
    if (typeof asked === 'string' || typeof asked === 'number') return explainer.request(asked);
    if (typeof asked !== 'object' || asked === null) {
      const problem = `request must be an id, a sequence or tokens, and it is ${described(asked)}`;
      throw new TierKVError('TKV_INPUT', `${problem}. Pass one of them.`, { field: 'request' });
    }
    if ('groups' in asked) return explainer.request(stateOf(this.#context, asked).groups[0].table.id);
    const { others = [], ...rest } = options ?? ({} as TokensToExplain & { others?: readonly KVRuntime[] });
    return explainer.tokens(
      asked,
      rest,
      others.map((other) => other.#requireExplainer()),
    );
  }

  #requireExplainer(): RuntimeExplainer {
    if (this.#explainer !== null) return this.#explainer;
    throw new TierKVError(
      'TKV_STATE',
      'the runtime remembers nothing to explain by. Open it with explain: true.',
      { field: 'explain' },
    );
  }

  /** The open scheduler, or the one that was closed last. */
  get lastScheduler(): KVScheduler | undefined {
    return this.#scheduler;
  }

  /** The numbers by which the manager knows tenants and their groups, in the order in which they came. */
  get tenantOwners(): ReadonlyMap<string, number> {
    return this.#context.owners.numbers;
  }

  /** Counters and gauges as plain data. */
  metrics(): RuntimeMetrics {
    return metricsOf(this.#context, this.stores);
  }

  /** Hit rates, traffic between tiers, thrashing and preemptions so far. */
  kvMetrics(): KVMetrics {
    return kvMetrics(this.manager, this.#scheduler?.counters);
  }

  /**
   * Which block was stored in which tier, and removed from it, from now on.
   * @throws TKV_CONFIG for a capacity that is not a number of events
   */
  events(options?: EventOptions & { readonly uses?: false }): AsyncIterableIterator<CacheEvent>;

  events(options: EventOptions): AsyncIterableIterator<CacheEvent | BlockUseEvent>;

  events(options: EventOptions = {}): AsyncIterableIterator<CacheEvent | BlockUseEvent> {
    return this.#events.read(eventOptionsTable.read(options));
  }

  /**
   * Properties that each tier really got, and the health of the runtime: `overdueTransfers` are past their deadline and
   * keep their slots until they end, `devicesLost` counts, `devicePresent` says whether there is a device now.
   */
  describe(): Record<string, Record<string, string | number | boolean>> {
    return {
      ...this.stores.describe(),
      runtime: {
        overdueTransfers: this.manager.inspect.jobsOverdue,
        devicesLost: this.devicesLost,
        devicePresent: this.devicePresent,
      },
    };
  }

  // Rest, durability and the end.

  /**
   * Waits until no transfer is in flight, those given up at their deadline apart, and the token ids of an earlier
   * run's blocks are read.
   */
  async idle(): Promise<void> {
    await this.#restored;
    await this.#context.loop.idle();
  }

  /**
   * Copies what HBM and DDR cache into the files, block by block, and makes it durable, so that the next start finds it:
   * call it before a planned end, and whenever you like. Nothing moves: every block stays where it is, held ones too.
   * @returns blocks that the files hold then; 0 without files
   * @throws TKV_IO when blocks could not be written, or the files have no room for them: it says how many are durable and
   * how many are not, and these are still where they were. Also when the disk refuses to make it durable, or a file of the
   * directory was removed or replaced
   */
  async save(options?: SaveOptions): Promise<number> {
    return saveDurably(this.#context, this.stores, options);
  }

  /** Whether `close` was called. */
  get isClosed(): boolean {
    return this.#closing.signal.aborted;
  }

  /**
   * Closes the runtime: every `begin` and `recover`, new or waiting, rejects with TKV_STATE, transfers under
   * way come to their end or their deadline, and then the stores are closed. Make no other call after it.
   */
  close(): Promise<void> {
    this.#closed ??= this.#close();
    return this.#closed;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  /** For calls that open a part of the runtime. @throws TKV_STATE when it is closed */
  #requireOpen(): void {
    this.#closing.signal.throwIfAborted();
  }

  async #close(): Promise<void> {
    this.#closing.abort(new TierKVError('TKV_STATE', 'the runtime is closed. Open another one.'));
    this.#scheduler?.close();
    this.#context.migration?.stop();
    try {
      await this.#context.keeper.close();
      await this.idle();
      await this.stores[Symbol.asyncDispose]();
    } finally {
      this.#events.close();
      this.#log?.close();
    }
  }
}

function urgencyOf(priority: number): JobPriority {
  const checked = checkedPriority(priority);
  if (checked === 0) return JobPriority.PREFETCH;
  return checked < 0 ? JobPriority.DEMAND_LOAD : JobPriority.SCRUB;
}
