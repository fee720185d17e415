/** The parts of one runtime that calls on sequences work with, and the steps that several calls share. */

import type { SharedTier } from '../backends/tierRow.ts';
import type { DevicePool } from '../backends/webgpu/types.ts';
import { OwnerTurns } from '../runtime/batching/ownerTurns.ts';
import {
  BlockKeys,
  BlockTable,
  type ComputePace,
  type KeyElements,
  type KVManager,
  type ReadableBlock,
  requireElements,
  type Sequence,
  TierKVError,
  TOP,
  tierName,
  tierTitle,
} from '../runtime/index.ts';
import type { ValueKind } from '../runtime/kinds.ts';
import * as is from '../runtime/kinds.ts';
import { doubtful } from '../runtime/manager/openings.ts';
import type { DeviceKeeper } from './deviceKeeper.ts';
import type { BlockMoves, RuntimeMigration } from './kvMigrator.ts';
import type { GroupUnits } from './layerGroups.ts';
import { type ManagerLoop, unlessAborted } from './managerLoop.ts';
import type { RequestObservers } from './observability.ts';
import type { ComputingBlocks, SequenceState } from './sequenceState.ts';
import type { OpenStores } from './stores.ts';
import type { SharingGroups, TenantChains, TenantOwners } from './tenancy.ts';

/** A context that the runtime made. */
export const contextKind: ValueKind<RequestContext> = is.fields({
  manager: is.object(),
  units: is.fields({ groups: is.array() }),
});

export interface RequestContext {
  readonly manager: KVManager;
  readonly loop: ManagerLoop;
  readonly keeper: DeviceKeeper;
  readonly chains: TenantChains;
  readonly units: GroupUnits;
  readonly blockTokens: number;
  readonly admission: AdmissionQueue;
  readonly sharing: SharingGroups;
  readonly owners: TenantOwners;
  readonly computing: ComputingBlocks;
  /** The tier that several runtimes share, and its position; undefined where none is on. */
  readonly shared: { readonly tier: SharedTier; readonly position: number } | undefined;
  /** Full blocks of prefixes whose states were stored; undefined where an earlier run may have stored others. */
  readonly stateBlocks: Set<number> | undefined;
  /** How long parts of prefills take. */
  readonly pace: ComputePace;
  readonly stores: OpenStores;
  /** The device's pool: another one after a loss. @throws TKV_STATE without a device */
  pool(): DevicePool;
  /** The device that holds it. @throws TKV_STATE without a device */
  device(): GPUDevice;
  /** Raised when the runtime closes. */
  readonly closing: AbortSignal;
  /** The runtime's clock, in integer microseconds. */
  nowUs(): number;
  /** Moves of single blocks between tiers. */
  readonly moves: BlockMoves;
  /** Moves cached blocks by their temperature; null where that is off. */
  readonly migration: RuntimeMigration | null;
  /** Observers of requests. */
  readonly observers: RequestObservers;
  /** Ends a sequence: its sealed blocks stay cached. */
  release(sequence: SequenceState): void;
}

/**
 * How a step of a sequence ended: `done`, or `interrupted`: some blocks of the sequence are gone, with the device or by an error of
 * it. `recover` brings them back.
 */
export type StepEnd = 'done' | 'interrupted';

/** @throws TKV_UNKNOWN_ID for a sequence that was released or cancelled */
export function requireLive(sequence: SequenceState, field = 'sequence'): void {
  if (!sequence.ended) return;
  throw new TierKVError(
    'TKV_UNKNOWN_ID',
    `${field} has ended: it was released or cancelled. Begin another one.`,
    { field },
  );
}

/** Fulfilled when no block of the sequence waits for a transfer. */
export async function settled({ loop }: RequestContext, sequence: SequenceState): Promise<void> {
  while (sequence.pending > 0) {
    await Promise.all(sequence.groups.map(({ table }) => loop.settled(table)));
  }
}

/** Fulfilled when there is a device and nothing to wait for. @param wait what is still to be waited for */
export async function settledOnDevice(
  { keeper, closing }: RequestContext,
  wait: () => Promise<void> | undefined,
): Promise<void> {
  for (;;) {
    const next = keeper.present ? wait() : keeper.ready();
    if (next === undefined) return;
    await unlessAborted([closing], () => next);
  }
}

/** @throws TKV_DEVICE while no device is there: places would be of one that was lost */
export function requireDevice({ keeper }: RequestContext): void {
  if (keeper.present) return;
  const problem = 'the device was lost, and another one is not there yet';
  throw new TierKVError('TKV_DEVICE', `${problem}. Await ready, then ask for the places.`);
}

export function isWhole({ keeper }: RequestContext, sequence: SequenceState): boolean {
  return keeper.present && sequence.isWhole;
}

/** Whether the sequence is whole, and its caller was told where the KV of each token goes. */
export function isHandedOver(context: RequestContext, sequence: SequenceState): boolean {
  return !sequence.isRecovering && isWhole(context, sequence) && isTold(context, sequence, 0);
}

/** Whether the caller was told of all tokens in the open blocks from `from` on, and failed to write none of them. */
export function isTold(
  { manager: { openings }, blockTokens }: RequestContext,
  { groups, blocks, length }: SequenceState,
  from: number,
): boolean {
  return groups.every(({ table }) => openings.firstUntold(table, from, blocks, blockTokens, length) === -1);
}

/** The caller learns of the open blocks from `from` on, and of all tokens. */
export function handOver(context: RequestContext, sequence: SequenceState, from = 0): void {
  const { length, blocks, groups } = sequence;
  const { manager, blockTokens } = context;
  for (const { table } of groups) manager.openings.tell(table, from, blocks, blockTokens, length);
}

/**
 * Refuses what would seal blocks whose writing an error of the device may have hit.
 * @throws TKV_DEVICE with the error's own words
 */
export function requireNoErrors(context: RequestContext, sequence: SequenceState, field = 'sequence'): void {
  for (const { table, sealed } of sequence.groups) {
    const block = context.manager.openings.firstDoubtful(table, sealed, sequence.blocks);
    if (block !== -1) throw doubtful(context.keeper, `block ${block} of ${field} was`, field);
  }
}

/** Seals open block `i` of the table, if its owner has written `tokens` tokens of it. @returns whether it did */
export function sealBlock(
  { manager, nowUs }: RequestContext,
  table: Sequence,
  i: number,
  keys: Uint32Array,
  at: number,
  tokens: number,
): boolean {
  if (!manager.openings.maySeal(table, i, tokens)) return false;
  manager.seal(table, i, i + 1, keys, at, tokens, nowUs());
  return true;
}

/** Keys of the sequence's full blocks, in every group, as its tokens are now. */
export function hashFullBlocks(sequence: SequenceState): void {
  const { words, length } = sequence.tokens;
  for (const { chain, keys } of sequence.groups) chain.hashBlocks(words, keys.length, keys, length);
}

/**
 * Upper bound of a match: the tokens that all tiers can hold. Hashing beyond it is wasted.
 */
export function tokensToFind(
  { manager, blockTokens }: Pick<RequestContext, 'manager' | 'blockTokens'>,
  tokens: KeyElements,
): number {
  requireElements(tokens);
  const slots = manager.config.tiers.reduce((sum, { shape }) => sum + shape.slotLimit, 0);
  return Math.min(tokens.length, slots * blockTokens);
}

/** Rejects a request that no release could ever make room for. @throws TKV_CAPACITY */
export function requireFits({ manager, units, stores }: RequestContext, blocks: number): void {
  const bytes = bytesOf(units, blocks);
  const { capacityBytes } = manager.config.tiers[TOP].shape;
  if (bytes <= capacityBytes) return;
  const { sizeField } = stores;
  throw new TierKVError(
    'TKV_CAPACITY',
    `${blocks} blocks take ${bytes} bytes, more than the ${capacityBytes} of ${topTitle(manager)}. ` +
      `Send a shorter request, or raise ${sizeField}.`,
    { field: sizeField },
  );
}

/** No room now: others hold it. */
export function full({ manager, stores }: RequestContext, blocks: number): TierKVError {
  const { residentBytes, cachedBytes, slots } = manager.inspect.usage(TOP);
  const { capacityBytes } = manager.config.tiers[TOP].shape;
  const late =
    manager.inspect.jobsOverdue === 0 ? '' : `, ${slots.draining} slots wait for transfers that are overdue`;
  return new TierKVError(
    'TKV_FULL',
    `${blocks} blocks find no room in ${topTitle(manager)} now: ${residentBytes - cachedBytes} of ${capacityBytes} bytes ` +
      `are in use${late}. ` +
      'Try again when a sequence was released, or let begin wait.',
    { field: stores.sizeField },
  );
}

/** How the top tier is called in messages. */
function topTitle(manager: KVManager): string {
  return tierTitle(tierName(manager.inspect.tiers[TOP]));
}

export function bytesOf({ unitBytes, sizeClass }: GroupUnits, blocks: number): number {
  return blocks * sizeClass.reduce((sum, c) => sum + unitBytes[c], 0);
}

export function freshKeys(blocks: number): BlockKeys {
  return new BlockKeys(blocks + 1);
}

// A sequence's blocks as kernels want them. Pools have several slabs, so an entry names the slab (an index
// into `slabs`) and the offset in it: two words a block.

/** The place of each block of a sequence, as kernels and engines read it. */
export interface DeviceBlockTable {
  /** The pool's buffers; STORAGE | COPY_SRC | COPY_DST. Good until the device is lost. Empty without a device. */
  readonly slabs: readonly GPUBuffer[];
  /** Slab and offset in bytes of each block, in order. Empty without a device. */
  readonly entries: Uint32Array;
  readonly blocks: number;
  /** Without a device: the bytes of each block, in order, where they lie. Good while the blocks are held. */
  readonly views?: readonly Uint8Array[];
}

/**
 * The first `blocks` blocks of the sequence: loaded, or its own, open or being sealed.
 * @throws TKV_STATE when one is in another state: a table with a gap would attend over wrong positions
 */
export function readableBlocks(manager: KVManager, table: Sequence, blocks: number): BlockTable {
  const found = new BlockTable();
  for (let i = 0; i < blocks; i++) {
    const block = manager.readableBlock(table, i);
    if (block === undefined) throw notOnTop({ manager }, i);
    found.append(block);
  }
  return found;
}

/** Where blocks lie that are in the top tier, in the order given. */
export function placesIn(
  { stores: { host }, pool: poolOf }: Pick<RequestContext, 'stores' | 'pool'>,
  blocks: readonly Pick<ReadableBlock, 'slot' | 'sizeClass'>[],
): DeviceBlockTable {
  if (host !== undefined) {
    const views = blocks.map(({ slot, sizeClass }) => host.view(slot, sizeClass));
    return { slabs: [], entries: new Uint32Array(0), blocks: blocks.length, views };
  }
  const pool = poolOf();
  const entries = new Uint32Array(blocks.length * 2);
  blocks.forEach(({ slot, sizeClass }, i) => {
    const { slab, offsetBytes } = pool.locate(slot, sizeClass);
    entries[2 * i] = slab;
    entries[2 * i + 1] = offsetBytes;
  });
  return { slabs: pool.slabs, entries, blocks: blocks.length };
}

/** A block of a sequence is not where sequences read. */
export function notOnTop({ manager }: Pick<RequestContext, 'manager'>, index: number | string): TierKVError {
  return new TierKVError(
    'TKV_STATE',
    `block ${index} is not in ${topTitle(manager)}. Await begin, append or step first; recover the sequence when it ` +
      `was interrupted.`,
    { field: 'index' },
  );
}

// Requests that wait for room in the top tier: the most urgent first, then the tenants in turn (ownerTurns.ts). The first one
// looks for room again whenever some came free; the others wait behind it. A request that steps aside keeps its place, and the
// requests behind it go ahead meanwhile. The scheduler's next request stands here too, where it finds no room: neither of the two
// queues takes all room that comes free from the other. Doors that cannot wait, reuse by tables and the paged cache, take room by
// `takeAtOnce`: an owner that was refused has its turn at the first call behind the turns of requests that waited before it.

export interface Ticket {
  readonly owner: number;
  readonly priority: number;
  /** Order of arrival. */
  readonly ticket: number;
  /** It had its turn before, and lost its room: it goes ahead of those of its priority. */
  readonly hadTurn: boolean;
  readonly ofBegin: boolean;
  isAside: boolean;
  /** Called when the ticket is first, or when room came free while it is. */
  wake: () => void;
}

export class AdmissionQueue {
  readonly #turns: OwnerTurns<Ticket> = new OwnerTurns();
  /** Tickets that had their turn, the one that came last first. */
  readonly #returned: Ticket[] = [];
  /** Owners that were refused by `takeAtOnce`: aside, since they may not ask again. */
  readonly #refused: Map<number, Ticket> = new Map();
  #tickets = 0;
  #waiting = 0;
  /** The first ticket; null where it must be looked for. */
  #found: Ticket | undefined | null;

  /** Requests of `begin` that wait; what the scheduler has waiting it counts itself. */
  get waiting(): number {
    return this.#waiting;
  }

  /** Whether a request of this priority or a more urgent one waits already. */
  isBehindOthers(priority: number): boolean {
    const first = this.#first;
    return first !== undefined && first.priority <= priority;
  }

  /**
   * @param hadTurn it was admitted before, and lost its room
   * @param scheduler wakes the scheduler, where the request is its next one
   */
  join(owner: number, priority: number, hadTurn = false, scheduler?: () => void): Ticket {
    const ofBegin = scheduler === undefined;
    const wake = scheduler ?? (() => {});
    const ticket: Ticket = {
      owner,
      priority,
      ticket: ++this.#tickets,
      hadTurn,
      ofBegin,
      isAside: false,
      wake,
    };
    if (ofBegin) this.#waiting++;
    if (hadTurn) this.#returned.unshift(ticket);
    else this.#turns.add(ticket);
    this.#found = null;
    return ticket;
  }

  isFirst(ticket: Ticket): boolean {
    return this.#first === ticket;
  }

  /**
   * Takes room in a call that cannot wait, unless others that wait have their turns before its owner.
   * @param take takes the room, or returns false where it does not fit
   * @returns whether the room was taken
   */
  takeAtOnce(owner: number, take: () => boolean): boolean {
    const refused = this.#refused.get(owner);
    if (refused === undefined && this.#first === undefined) return take();
    const ticket = refused ?? this.join(owner, 0, false, () => {});
    ticket.isAside = false;
    this.#found = null;
    let taken = false;
    try {
      taken = this.isFirst(ticket) && take();
    } finally {
      ticket.isAside = true;
      this.#found = null;
      if (!taken) this.#refused.set(owner, ticket);
    }
    if (!taken) return false;
    this.#refused.delete(owner);
    this.take(ticket);
    return true;
  }

  /** The request has its room: its tenant has had a turn. */
  take(ticket: Ticket): void {
    this.#remove(ticket, true);
  }

  /** The request waits no more, without its room. */
  leave(ticket: Ticket): void {
    this.#remove(ticket, false);
  }

  #remove(ticket: Ticket, hasRoom: boolean): void {
    const wasFirst = this.isFirst(ticket);
    if (ticket.ofBegin) this.#waiting--;
    if (ticket.hadTurn) this.#returned.splice(this.#returned.indexOf(ticket), 1);
    else this.#turns.remove(ticket, hasRoom);
    this.#found = null;
    if (wasFirst) this.roomFreed();
  }

  /** Those behind the ticket go ahead while `work` is under way. */
  async aside(ticket: Ticket, work: () => Promise<void>): Promise<void> {
    const wasFirst = this.isFirst(ticket);
    ticket.isAside = true;
    this.#found = null;
    if (wasFirst) this.roomFreed();
    try {
      await work();
    } finally {
      ticket.isAside = false;
      this.#found = null;
    }
  }

  /** Fulfilled when it is worth another look. */
  turn(ticket: Ticket): Promise<void> {
    return new Promise((resolve) => {
      ticket.wake = resolve;
    });
  }

  roomFreed(): void {
    this.#first?.wake();
  }

  get #first(): Ticket | undefined {
    if (this.#found !== null) return this.#found;
    const present = (ticket: Ticket): boolean => !ticket.isAside;
    let most = Number.POSITIVE_INFINITY;
    const look = (ticket: Ticket): boolean => {
      if (present(ticket)) most = Math.min(most, ticket.priority);
      return false;
    };
    this.#returned.forEach(look);
    this.#turns.first(look);
    const mayGo = (ticket: Ticket): boolean => present(ticket) && ticket.priority === most;
    this.#found = this.#returned.find(mayGo) ?? this.#turns.first(mayGo);
    return this.#found;
  }
}
