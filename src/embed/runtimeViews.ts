/**
 * What a runtime shows of itself: its device, its room, its figures, and where the blocks of a sequence lie.
 */

import type { SlotBuffer } from '../backends/webgpu/index.ts';
import {
  BlockKeys,
  type BlockTable,
  type KeyElements,
  type KVBudget,
  type KVManager,
  type KVMetrics,
  kvBudget,
  kvMetrics,
  type Match,
  type OpenBlock,
  type RequestExtras,
  type SchedulerCounters,
  type Sequence,
  TierKVError,
} from '../runtime/index.ts';
import { described, optionNames, requireFunction, requireOptions } from '../runtime/options.ts';
import {
  type BlockUse,
  type CacheEvent,
  type CacheEvents,
  type EventOptions,
  eventOptionsNames,
} from './outputs/events.ts';
import { type Metrics, metricsOf } from './outputs/metrics.ts';
import { placesOf } from './prompts/tenantReuse.ts';
import { type DeviceBlockTable, deviceTable, notInHbm, readableBlocks } from './requests/blockTables.ts';
import { type RequestContext, requireLive, tokensToFind } from './requests/context.ts';
import { type KVSequence, type SequenceState, stateOf } from './requests/kvSequence.ts';
import { type Room, roomOf } from './requests/room/admitting.ts';
import type { OpenStores } from './stores/openStores.ts';

export interface OpenUnit {
  /** Block of the sequence, from 0. */
  readonly index: number;
  /** Layer group, from 0. */
  readonly group: number;
  readonly block: OpenBlock;
}

export interface LookupOptions {
  readonly tenant: string;
  /** As at `begin`. */
  readonly extras?: RequestExtras | undefined;
}

export const lookupOptionsNames: readonly string[] = optionNames<LookupOptions>({
  tenant: true,
  extras: true,
});

export abstract class RuntimeViews {
  readonly manager: KVManager;
  /** The stores themselves, for inspection; they belong to the runtime. */
  readonly stores: OpenStores;
  readonly #context: RequestContext;
  readonly #events: CacheEvents;

  protected constructor(stores: OpenStores, context: RequestContext, events: CacheEvents) {
    this.stores = stores;
    this.manager = context.manager;
    this.#context = context;
    this.#events = events;
  }

  /** Counters of the scheduler that is or was open last. */
  protected abstract schedulerCounters(): Readonly<SchedulerCounters> | undefined;

  /** The device that holds HBM, for kernels of your own. Another one after a loss: see `devicesLost`. */
  get device(): GPUDevice {
    return this.stores.device;
  }

  /**
   * Waits for what `start` begins on the device, such as a `mapAsync` of your own, as the runtime waits
   * itself (`wait` of its configuration). A plain wait keeps a core busy until it ends.
   */
  async waitFor<T>(start: () => Promise<T>): Promise<T> {
    requireFunction(start, 'start');
    return this.stores.waitFor(start);
  }

  /**
   * How many devices were lost so far. Kernels and buffers of your own have to be made again whenever it
   * grows.
   */
  get devicesLost(): number {
    return this.#context.keeper.losses;
  }

  /** How much of HBM a request could take now, and who waits for it. */
  get room(): Room {
    return roomOf(this.#context);
  }

  /** What the tenant may still use of each tier. */
  budget(tenant: string): KVBudget {
    return kvBudget(this.manager, this.#context.owners.of(tenant));
  }

  /** Hit rates, traffic between tiers, thrashing and preemptions so far. */
  kvMetrics(): KVMetrics {
    return kvMetrics(this.manager, this.schedulerCounters());
  }

  /** Counters and gauges as plain data. */
  metrics(): Metrics {
    return metricsOf(this.#context, this.stores);
  }

  /**
   * Which block was stored in which tier, and removed from it, from now on.
   * @throws TKV_CONFIG for a capacity that is no number of events
   */
  events(options?: EventOptions & { readonly uses?: false }): AsyncIterableIterator<CacheEvent>;
  events(options: EventOptions): AsyncIterableIterator<CacheEvent | BlockUse>;
  events(options: EventOptions = {}): AsyncIterableIterator<CacheEvent | BlockUse> {
    return this.#events.read(requireOptions(options, eventOptionsNames));
  }

  /** What a request would find: leading blocks by tier. Changes nothing, counts nothing. */
  lookup(tokens: KeyElements, options: LookupOptions): Match {
    const { tenant, extras } = requireOptions(options, lookupOptionsNames);
    const [chain] = this.#context.chains.of(tenant, extras);
    const keys = new BlockKeys();
    chain.hashBlocks(tokens, 0, keys, tokensToFind(this.#context, tokens));
    return this.manager.lookup(keys.words, keys.length);
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
   * @throws TKV_STATE when it is none of these
   */
  slot(sequence: KVSequence, index: number, group = 0): SlotBuffer {
    const { table } = groupOf(this.#context, sequence, group);
    requireBlock(stateOf(this.#context, sequence), index);
    const block = this.manager.readableBlock(table, index);
    if (block === undefined) throw notInHbm(index);
    return this.stores.hbm.buffer(block.slot, block.sizeClass);
  }

  /**
   * The sequence's blocks in order, for attention: as they lie now, so take it anew for each step.
   * @throws TKV_STATE when one of them is neither loaded, open nor being sealed: a table with a gap would
   * attend over wrong positions
   */
  blockTable(sequence: KVSequence, group = 0): BlockTable {
    return readableBlocks(this.manager, groupOf(this.#context, sequence, group).table, sequence.blocks);
  }

  /** The same as slab and offset of each block, for kernels. @throws TKV_STATE as `blockTable` */
  deviceBlockTable(sequence: KVSequence, group = 0): DeviceBlockTable {
    return deviceTable(this.stores.hbm, this.blockTable(sequence, group).blocks);
  }

  /** Slab and offset of the table's blocks. @throws TKV_STATE when one of them is not in HBM */
  places(table: Sequence): DeviceBlockTable {
    return placesOf(this.#context, table);
  }

  /** The runtime's clock, in microseconds since it was opened: what calls of the manager want. */
  nowUs(): number {
    return this.#context.nowUs();
  }

  /**
   * What each tier really got, and how well the whole is: `overdueTransfers` never ended and keep their slots
   * until they do, `devicesLost` counts, and `devicePresent` says whether there is one now.
   */
  describe(): Record<string, Record<string, string | number | boolean>> {
    const { keeper } = this.#context;
    return {
      ...this.stores.describe(),
      runtime: {
        overdueTransfers: this.manager.jobsOverdue,
        devicesLost: keeper.losses,
        devicePresent: keeper.present,
      },
    };
  }
}

/** @throws TKV_INPUT for a block that the sequence does not have, TKV_UNKNOWN_ID where it has ended */
function requireBlock(sequence: SequenceState, index: number): void {
  requireLive(sequence);
  const { blocks } = sequence;
  if (Number.isSafeInteger(index) && index >= 0 && index < blocks) return;
  const problem = `index is ${described(index)}, and the sequence has ${blocks} ${blocks === 1 ? 'block' : 'blocks'}`;
  throw new TierKVError('TKV_INPUT', `${problem}. Name 0 to ${blocks - 1}.`, { field: 'index' });
}

/** @throws TKV_INPUT for a group that is not there */
export function groupOf(
  context: RequestContext,
  sequence: KVSequence,
  group: number,
): KVSequence['groups'][number] {
  const { groups } = stateOf(context, sequence);
  const found = Number.isSafeInteger(group) ? groups[group] : undefined;
  if (found !== undefined) return found;
  const { length } = groups;
  throw new TierKVError(
    'TKV_INPUT',
    `group is ${described(group)}, and there are ${length}. Count them from 0.`,
    {
      field: 'group',
    },
  );
}
