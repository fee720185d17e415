/**
 * Stores that fail on purpose, stand-ins for stores that need hardware, and virtual time. A stand-in holds
 * real bytes in plain memory, keeps the tier contract and verifies like the real store: a device verifies
 * writes, a disk reads. Its calls end in the turn in which they were made; `FaultStore` adds delays and
 * faults. `verify: false` is for control runs, which must fail.
 */

import { digestBytes } from '../runtime/digest.ts';
import * as is from '../runtime/kinds.ts';
import { checkInputs, type Kinds, type OptionTable, optionTable } from '../runtime/options.ts';
import { type PoolShape, slotOffsetBytes } from '../runtime/tables/slotPool.ts';
import { Outcome, Tier } from '../runtime/tier/tier.ts';
import {
  type CopyItem,
  corrupt,
  type HostTierStore,
  type ItemEnded,
  loaded,
  refused,
  type SealItem,
  type SealResult,
  SlotLedger,
  type SlotPlace,
  type StoreItem,
  type StoreResult,
  type TierStore,
  type TopTierStore,
} from '../runtime/tier/tierStore.ts';
import { SeededRandom } from './patternItems.ts';

/** Shapes that callers must pass, by the names of parameters. */
const inputs = {
  tier: is.number(),
  shape: is.fields({ pageBytes: is.number(), pages: is.number() }),
  verifies: is.fields({ onWrite: is.flag(), onRead: is.flag() }),
  options: is.optional(is.object()),
  surroundings: is.fields({ wait: is.func() }),
  kind: is.optional(is.text()),
};

/** A store in ordinary memory, for tests. */
export class ByteStore implements TierStore {
  readonly tier: Tier;
  readonly capacityBytes: number;
  readonly verifies: TierStore['verifies'];
  protected readonly ledger: SlotLedger;
  readonly #shape: PoolShape;
  readonly #bytes: Uint8Array;
  /** The key of each slot, four words a slot; empty unless reads are verified. */
  readonly #keys: Uint32Array;
  #disposed = false;

  protected constructor(tier: Tier, shape: PoolShape, verifies: TierStore['verifies']) {
    checkInputs({ tier, shape, verifies }, inputs);
    this.tier = tier;
    this.capacityBytes = shape.capacityBytes;
    this.verifies = verifies;
    this.ledger = new SlotLedger(shape);
    this.#shape = shape;
    this.#bytes = new Uint8Array(shape.capacityBytes);
    this.#keys = new Uint32Array(shape.slotLimit * 4);
  }

  describe(): Record<string, string | number | boolean> {
    return { store: 'stand-in', capacityBytes: this.capacityBytes };
  }

  /** The slot's own bytes, for a kernel to write and a test to check. */
  bytesAt(slot: number, sizeClass = 0): Uint8Array {
    const offset = slotOffsetBytes(this.#shape, slot, sizeClass);
    return this.#bytes.subarray(offset, offset + this.#shape.slotBytes[sizeClass]);
  }

  async write(items: readonly StoreItem[], ended?: ItemEnded): Promise<readonly StoreResult[]> {
    return tellEnds(
      items.map((item) => this.#write(item)),
      ended,
    );
  }

  async read(items: readonly StoreItem[], ended?: ItemEnded): Promise<readonly StoreResult[]> {
    return tellEnds(
      items.map((item) => this.#read(item)),
      ended,
    );
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#disposed = true;
  }

  protected refusal(place: SlotPlace): StoreResult | undefined {
    return this.#disposed ? refused('the store is disposed') : this.ledger.refuseWrite(place);
  }

  #write(item: StoreItem): StoreResult {
    const refusal = this.refusal(item) ?? this.#oddLength(item);
    if (refusal !== undefined) return refusal;
    this.ledger.take(item);
    this.bytesAt(item.slot, item.sizeClass).set(item.bytes);
    this.#keys.set(item.key, item.slot * 4);
    const end = this.verifies.onWrite ? this.#verify(item) : loaded;
    if (end.outcome === Outcome.LOADED) this.ledger.fill(item);
    return end;
  }

  #read(item: StoreItem): StoreResult {
    const refusal = this.#disposed ? refused('the store is disposed') : this.ledger.refuseRead(item);
    const stop = refusal ?? this.#oddLength(item);
    if (stop !== undefined) return stop;
    if (this.verifies.onRead) {
      for (let word = 0; word < 4; word++) {
        if (this.#keys[item.slot * 4 + word] !== item.key[word])
          return corrupt(`slot ${item.slot} holds another key`);
      }
      const end = item.checkedLater === true ? loaded : this.#verify(item);
      if (end.outcome !== Outcome.LOADED) return end;
    }
    item.bytes.set(this.bytesAt(item.slot, item.sizeClass));
    return loaded;
  }

  #verify({ slot, sizeClass, digest }: StoreItem): StoreResult {
    const found = digestBytes(this.bytesAt(slot, sizeClass));
    if (found.lo === digest.lo && found.hi === digest.hi) return loaded;
    return corrupt(`slot ${slot} holds other bytes than its digest says`);
  }

  #oddLength({ sizeClass, bytes }: StoreItem): StoreResult | undefined {
    const slotBytes = this.#shape.slotBytes[sizeClass];
    return bytes.byteLength === slotBytes
      ? undefined
      : refused(`${bytes.byteLength} bytes for a slot of ${slotBytes}`);
  }
}

interface StandInOptions {
  /** Whether bytes are compared with their digest when they move. Default true. */
  readonly verify?: boolean;
}

const standInOptionsTable = optionTable(
  { verify: is.optional(is.flag()) } satisfies Kinds<StandInOptions>,
  'TKV_CONFIG',
);

/** Stands in for a disk. */
export class StandInDisk extends ByteStore {
  constructor(shape: PoolShape, options: StandInOptions = {}) {
    standInOptionsTable.read(options);
    super(Tier.NVME, shape, { onWrite: false, onRead: options.verify ?? true });
    checkInputs({ shape, options }, inputs);
  }
}

/** Stands in for a GPU's memory. Writes to `bytesAt` stand in for kernels. */
export class StandInDevice extends ByteStore implements TopTierStore {
  constructor(shape: PoolShape, options: StandInOptions = {}) {
    standInOptionsTable.read(options);
    super(Tier.HBM, shape, { onWrite: options.verify ?? true, onRead: false });
    checkInputs({ shape, options }, inputs);
  }

  async seal(items: readonly SealItem[]): Promise<readonly SealResult[]> {
    return items.map((item) => {
      const refusal = this.refusal(item);
      if (refusal !== undefined) return { ...refusal, digest: { lo: 0, hi: 0 } };
      this.ledger.take(item);
      this.ledger.fill(item);
      return { ...loaded, digest: digestBytes(this.bytesAt(item.slot, item.sizeClass)) };
    });
  }

  async copy(items: readonly CopyItem[]): Promise<readonly StoreResult[]> {
    return items.map(({ sizeClass, fromSlot, fromGeneration, toSlot, toGeneration, unsealed }) => {
      const from = { slot: fromSlot, sizeClass, generation: fromGeneration };
      const to = { slot: toSlot, sizeClass, generation: toGeneration };
      const unreadable = unsealed === true ? undefined : this.ledger.refuseRead(from);
      const refusal = this.refusal(to) ?? unreadable;
      if (refusal !== undefined) return refusal;
      this.ledger.take(to);
      this.bytesAt(toSlot, sizeClass).set(this.bytesAt(fromSlot, sizeClass));
      this.ledger.fill(to);
      return loaded;
    });
  }

  async clear(items: readonly SealItem[]): Promise<readonly StoreResult[]> {
    return items.map((item) => {
      const refusal = this.refusal(item);
      if (refusal !== undefined) return refusal;
      this.ledger.take(item);
      this.bytesAt(item.slot, item.sizeClass).fill(0);
      return loaded;
    });
  }
}

// ---- silent damage to bytes; the result always differs from the input

const SECTOR_BYTES = 512;

function flipOneBit(bytes: Uint8Array, plan: FaultPlan): void {
  const at = plan.random.below(bytes.byteLength);
  bytes[at] = bytes[at] ^ (1 << plan.random.below(8));
}

/** The bytes that arrive after a silent fault on a write. @param before bytes that the slot held */
function damaged(
  bytes: Uint8Array,
  kind: FaultKind,
  before: Uint8Array | undefined,
  plan: FaultPlan,
): Uint8Array {
  const copy = bytes.slice();
  if (kind === 'flipped') flipOneBit(copy, plan);
  else tear(copy, kind === 'torn' ? before : undefined, plan);
  if (Buffer.compare(copy, bytes) === 0) flipOneBit(copy, plan);
  return copy;
}

/**
 * Damages bytes that a read has filled. @param before bytes that the destination held, which a short read
 * leaves
 */
function damageArrived(
  bytes: Uint8Array,
  kind: FaultKind,
  before: Uint8Array | undefined,
  plan: FaultPlan,
): void {
  if (kind === 'flipped') flipOneBit(bytes, plan);
  else {
    const right = bytes.slice();
    tear(bytes, before, plan);
    if (Buffer.compare(bytes, right) === 0) flipOneBit(bytes, plan);
  }
}

/** Replaces the bytes from a sector boundary on by the former bytes, or zeros. */
function tear(bytes: Uint8Array, before: Uint8Array | undefined, plan: FaultPlan): void {
  const sectors = Math.ceil(bytes.byteLength / SECTOR_BYTES);
  const at = plan.random.below(sectors) * SECTOR_BYTES;
  if (before?.byteLength === bytes.byteLength) bytes.set(before.subarray(at), at);
  else bytes.fill(0, at);
}

// ---- kinds of faults, and what must hold in spite of them
//
// A cache may forget. It must not lie, hang or leak. Faults are injected between store and engine, so
// everything above is the code that serves requests: manager, job carrier, engine.
//
// | kind            | what the store does                                  | noticed by                  |
// |-----------------|------------------------------------------------------|-----------------------------|
// | EIO             | fails a read or write, perhaps after a part of it    | outcome `refused`           |
// | ENOSPC          | fails a write, perhaps after a part of it            | outcome `refused`           |
// | EMFILE          | fails a read or write before it begins               | outcome `refused`           |
// | short           | moves the first part of a block, reports success     | digest, where it next lands |
// | torn            | puts the first part of a block over an old one       | digest, where it next lands |
// | flipped         | flips one bit on the way, or afterwards              | digest, where it next lands |
// | stalled         | never ends (until the store is given up)             | deadline                    |
// | lateAfterCancel | moves bytes after the job was given up               | the slot that is still held |
// | deviceLost      | ends every call of the device for good               | the device's `lost`         |
// | outOfMemory     | refuses device work for lack of memory               | outcome `refused`           |
//
// After a fault the waiting request goes on, with the block from another tier or with a block to compute. The
// slot is free again as soon as the store says that the last job on it has retired. A later request finds
// right bytes or none. For every mixture of these faults:
//
// 1. A sequence only reads bytes that its own tenant computed for its own tokens. 2. A call of the runtime
// ends at the latest one deadline later. 3. When the stores are idle every slot is free or cached. A stalled
// job costs its slots while it is stalled.
//
// Not covered: bits that flip in HBM after the block was verified there, since attention reads them in place;
// bytes that were wrong before they were sealed; a store that reports a running job as retired.

/** Names of all faults. */
export const faultKinds = [
  'EIO',
  'ENOSPC',
  'EMFILE',
  'short',
  'torn',
  'flipped',
  'stalled',
  'lateAfterCancel',
  'deviceLost',
  'outOfMemory',
] as const;
/** A fault that a `FaultPlan` can draw. */
export type FaultKind = (typeof faultKinds)[number];

/** Operations of a store; `memory` stands for bytes at rest in host memory. */
type FaultyOp = 'read' | 'write' | 'seal' | 'memory';

type StoreKind = 'device' | 'host' | 'disk';

/** Kinds that the store reports as errors. */
export const reportedKinds: readonly FaultKind[] = ['EIO', 'ENOSPC', 'EMFILE', 'outOfMemory'];
/** Kinds that the store reports as success. */
export const silentKinds: readonly FaultKind[] = ['short', 'torn', 'flipped'];

/** Kinds that can hit one item of a call, by store and operation. */
const itemKinds: Readonly<Record<StoreKind, Readonly<Partial<Record<FaultyOp, readonly FaultKind[]>>>>> = {
  disk: {
    read: ['EIO', 'EMFILE', 'short', 'flipped'],
    write: ['EIO', 'ENOSPC', 'EMFILE', 'short', 'torn', 'flipped'],
  },
  device: {
    read: ['flipped', 'short', 'outOfMemory'],
    write: ['flipped', 'torn', 'outOfMemory'],
    seal: ['outOfMemory'],
  },
  host: { memory: ['flipped'] },
};

// ---- the plan: which fault happens when
//
// The same seed and the same calls give the same faults. A rate is the chance of a kind at each item, or at
// each call for kinds that delay whole calls.

/** Seed, rates and delays of a `FaultPlan`. */
export interface FaultPlanOptions {
  readonly seed: number;
  /**
   * Chance by kind; kinds left out never happen. `deviceLost` is not drawn: call `FaultDevice.lose`.
   */
  readonly rates: Readonly<Partial<Record<FaultKind, number>>>;
  /** Least and greatest delay of a call, in microseconds. Default 0: only the store's own time. */
  readonly latencyUs?: readonly [number, number];
  /** Least and greatest delay of a `lateAfterCancel` call, in microseconds. */
  readonly lateUs?: readonly [number, number];
  /** Most calls stalled at the same time, since each costs its slots. Default 2. */
  readonly stalledMax?: number;
}

const ratesTable: OptionTable<FaultPlanOptions['rates']> = optionTable(
  Object.fromEntries(faultKinds.map((kind) => [kind, is.optional(is.fraction())])),
  'TKV_CONFIG',
);
const faultPlanOptionsTable = optionTable(
  {
    seed: is.passed(),
    rates: ratesTable,
    latencyUs: is.optional(is.passed()),
    lateUs: is.optional(is.passed()),
    stalledMax: is.optional(is.passed()),
  } satisfies Kinds<FaultPlanOptions>,
  'TKV_CONFIG',
);

/** Draws faults from a seed, in one order. */
export class FaultPlan {
  readonly stalledMax: number;
  /** The numbers from which everything is drawn, in one order. */
  readonly random: SeededRandom;
  readonly #rates: ReadonlyMap<FaultKind, number>;
  readonly #latencyUs: readonly [number, number];
  readonly #lateUs: readonly [number, number];
  #paused = false;

  /** @throws TKV_CONFIG for a rate outside [0, 1] */
  constructor(options: FaultPlanOptions) {
    const { rates } = faultPlanOptionsTable.read(options);
    this.random = new SeededRandom(options.seed);
    this.#rates = new Map(faultKinds.map((kind) => [kind, rates[kind] ?? 0]));
    this.#latencyUs = options.latencyUs ?? [0, 0];
    this.#lateUs = options.lateUs ?? [0, 0];
    this.stalledMax = options.stalledMax ?? 2;
  }

  /** Stops faults until `resume`. Delays go on. */
  pause(): void {
    this.#paused = true;
  }

  resume(): void {
    this.#paused = false;
  }

  /** Draws the fault of the next item, or null. */
  itemFault(store: StoreKind, op: FaultyOp): FaultKind | null {
    for (const kind of itemKinds[store][op] ?? []) if (this.#happens(kind)) return kind;
    return null;
  }

  /** Draws the fault that delays the next call, or null. */
  callFault(): 'stalled' | 'lateAfterCancel' | null {
    if (this.#happens('stalled')) return 'stalled';
    return this.#happens('lateAfterCancel') ? 'lateAfterCancel' : null;
  }

  latencyUs(): number {
    return this.#between(this.#latencyUs);
  }

  lateUs(): number {
    return this.#between(this.#lateUs);
  }

  #happens(kind: FaultKind): boolean {
    const rate = this.#paused ? 0 : this.#rates.get(kind)!;
    return rate > 0 && this.random.chance(rate);
  }

  #between([min, max]: readonly [number, number]): number {
    return max === 0 ? 0 : min + this.random.below(max - min + 1);
  }
}

// ---- stores that fail on purpose
//
// A `FaultStore` wraps any store. As its plan says, it refuses items, damages their bytes on the way, and
// delays calls.
//
//     engine --> FaultStore --> (delay) --> damage --> the wrapped store
//
// Items that are not hit go to the wrapped store unchanged, in one call, so order and batches stay the same.
// Items end together, at the end of the call.

export interface FiredFault {
  readonly kind: FaultKind;
  readonly tier: Tier;
  readonly op: FaultyOp;
  /** The places that the fault hit; empty for the loss of a device. */
  readonly places: readonly SealItem[];
}

export interface FaultSurroundings {
  readonly plan: FaultPlan;
  /** Fulfilled after `delayUs` microseconds of a real or virtual clock. */
  readonly wait: (delayUs: number) => Promise<void>;
  /** Called for every fault at the moment when it happens. */
  readonly onFault?: (fault: FiredFault) => void;
}

const faultSurroundingsTable = optionTable(
  { plan: is.passed(), wait: is.func(), onFault: is.optional(is.func()) } satisfies Kinds<FaultSurroundings>,
  'TKV_CONFIG',
);

/** The delay of a call after its bytes have moved. */
interface HeldTransfer {
  readonly until: Promise<void> | undefined;
}

/** A store that fails as its plan says, before a real one. */
export class FaultStore<Store extends TierStore = TierStore> implements TierStore {
  readonly tier: Tier;
  readonly capacityBytes: number;
  readonly verifies: TierStore['verifies'];
  protected readonly inner: Store;
  protected readonly plan: FaultPlan;
  readonly #kind: StoreKind;
  readonly #wait: (delayUs: number) => Promise<void>;
  readonly #onFault: (fault: FiredFault) => void;
  readonly #stalled: Set<() => void> = new Set();
  /** The bytes last written to each slot, which a torn write leaves behind its tear. */
  readonly #before: Map<number, Uint8Array> = new Map();

  constructor(inner: Store, surroundings: FaultSurroundings, kind: StoreKind = 'disk') {
    checkInputs({ surroundings, kind }, inputs);
    faultSurroundingsTable.read(surroundings, 'surroundings');
    this.inner = inner;
    this.tier = inner.tier;
    this.capacityBytes = inner.capacityBytes;
    this.verifies = inner.verifies;
    this.plan = surroundings.plan;
    this.#kind = kind;
    this.#wait = surroundings.wait;
    this.#onFault = surroundings.onFault ?? (() => {});
  }

  /** Number of calls that are stalled now. */
  get stalledCalls(): number {
    return this.#stalled.size;
  }

  /** Lets every stalled call go on, as when the calls to a dead disk end at last. */
  releaseStalled(): void {
    for (const release of this.#stalled) release();
    this.#stalled.clear();
  }

  describe(): Record<string, string | number | boolean> {
    return { ...this.inner.describe(), faults: true };
  }

  async write(items: readonly StoreItem[], ended?: ItemEnded): Promise<readonly StoreResult[]> {
    return tellEnds(await this.#write(items), ended);
  }

  async read(items: readonly StoreItem[], ended?: ItemEnded): Promise<readonly StoreResult[]> {
    return tellEnds(await this.#read(items), ended);
  }

  async #write(items: readonly StoreItem[]): Promise<readonly StoreResult[]> {
    const kinds = this.drawItems('write', items);
    const held = await this.delay('write', items);
    const sent: StoreItem[] = [];
    const sentAt: number[] = [];
    for (const [i, item] of items.entries()) {
      sentAt.push(sent.length);
      const kind = kinds[i];
      if (kind === null) sent.push(item);
      else if (!reportedKinds.includes(kind)) {
        sent.push({ ...item, bytes: damaged(item.bytes, kind, this.#before.get(item.slot), this.plan) });
      } else if ((kind === 'EIO' || kind === 'ENOSPC') && this.plan.random.chance(0.5)) {
        sent.push({ ...item, bytes: damaged(item.bytes, 'torn', this.#before.get(item.slot), this.plan) });
      }
      this.#before.set(item.slot, item.bytes.slice());
    }
    const ends = sent.length === 0 ? [] : await this.inner.write(sent);
    await held.until;
    return items.map((item, i) => this.#reported(kinds[i], 'write', item) ?? ends[sentAt[i]]);
  }

  async #read(items: readonly StoreItem[]): Promise<readonly StoreResult[]> {
    const kinds = this.drawItems('read', items);
    const held = await this.delay('read', items);
    const asked: StoreItem[] = [];
    const askedAt: number[] = [];
    for (const [i, item] of items.entries()) {
      askedAt.push(asked.length);
      if (kinds[i] === null || !reportedKinds.includes(kinds[i])) asked.push(item);
    }
    const before = items.map((item, i) => (kinds[i] === 'short' ? item.bytes.slice() : undefined));
    const ends = asked.length === 0 ? [] : await this.inner.read(asked);
    const results = items.map((item, i) => {
      const kind = kinds[i];
      const end = this.#reported(kind, 'read', item) ?? ends[askedAt[i]];
      if (kind !== null && end.outcome === Outcome.LOADED) {
        damageArrived(item.bytes, kind, before[i], this.plan);
      }
      return end;
    });
    await held.until;
    return results;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.releaseStalled();
    await this.inner[Symbol.asyncDispose]();
  }

  /** Draws and reports the fault of each item. */
  protected drawItems(op: FaultyOp, items: readonly SealItem[]): (FaultKind | null)[] {
    return items.map((item) => {
      const kind = this.plan.itemFault(this.#kind, op);
      if (kind !== null) this.tell(kind, op, [item]);
      return kind;
    });
  }

  protected tell(kind: FaultKind, op: FaultyOp, items: readonly SealItem[]): void {
    const places = items.map(({ slot, sizeClass, generation }) => ({ slot, sizeClass, generation }));
    this.#onFault({ kind, tier: this.tier, op, places });
  }

  /**
   * Delays a call before its bytes move or, for half of the late and stalled calls, after that. So both
   * happen: a late write that lands in a slot with a new owner, and a late end of a write that landed long
   * ago.
   * @returns the delay that is left for after the bytes have moved
   */
  protected async delay(op: FaultyOp, items: readonly SealItem[]): Promise<HeldTransfer> {
    const latencyUs = this.plan.latencyUs();
    if (latencyUs > 0) await this.#wait(latencyUs);
    const kind = items.length === 0 ? null : this.plan.callFault();
    const full = kind === 'stalled' && this.#stalled.size >= this.plan.stalledMax;
    if (kind === null || full) return { until: undefined };
    this.tell(kind, op, items);
    const held =
      kind === 'lateAfterCancel'
        ? this.#wait(this.plan.lateUs())
        : new Promise<void>((release) => {
            this.#stalled.add(release);
          });
    if (this.plan.random.chance(0.5)) return { until: held };
    await held;
    return { until: undefined };
  }

  #reported(kind: FaultKind | null, op: FaultyOp, item: SealItem): StoreResult | undefined {
    if (kind === null || !reportedKinds.includes(kind)) return undefined;
    return refused(`${kind} on ${op} of slot ${item.slot} (injected)`);
  }
}

const sameEnd = (end: StoreResult): StoreResult => end;

/**
 * A device that can run out of memory and be lost. After the loss every call, also one under way, ends as
 * refused.
 */
export class FaultDevice extends FaultStore<TopTierStore> implements TopTierStore {
  readonly lost: Promise<string>;
  #lostReason = '';
  #announce: (reason: string) => void = () => {};

  constructor(inner: TopTierStore, surroundings: FaultSurroundings) {
    super(inner, surroundings, 'device');
    checkInputs(
      { inner, surroundings },
      { inner: is.fields({ seal: is.func() }), surroundings: is.fields({ wait: is.func() }) },
    );
    this.lost = new Promise((resolve) => {
      this.#announce = resolve;
    });
  }

  /**
   * Loses the device. Also disposes of the wrapped store, which must no longer touch the bytes of any item.
   */
  lose(): void {
    if (this.#lostReason !== '') return;
    this.#lostReason = 'device lost (injected)';
    this.tell('deviceLost', 'write', []);
    this.#announce(this.#lostReason);
    void this[Symbol.asyncDispose]();
  }

  override async write(items: readonly StoreItem[], ended?: ItemEnded): Promise<readonly StoreResult[]> {
    const act = (): Promise<readonly StoreResult[]> => super.write(items);
    return tellEnds(await this.#unlessLost(items, act, sameEnd), ended);
  }

  override async read(items: readonly StoreItem[], ended?: ItemEnded): Promise<readonly StoreResult[]> {
    const act = (): Promise<readonly StoreResult[]> => super.read(items);
    return tellEnds(await this.#unlessLost(items, act, sameEnd), ended);
  }

  copy(items: readonly CopyItem[]): Promise<readonly StoreResult[]> {
    return this.#unlessLost(items, () => this.inner.copy(items), sameEnd);
  }

  clear(items: readonly SealItem[]): Promise<readonly StoreResult[]> {
    return this.#unlessLost(items, () => this.inner.clear(items), sameEnd);
  }

  seal(items: readonly SealItem[]): Promise<readonly SealResult[]> {
    const refuse = (end: StoreResult): SealResult => ({ ...end, digest: { lo: 0, hi: 0 } });
    return this.#unlessLost(
      items,
      async () => {
        const kinds = this.drawItems('seal', items);
        const held = await this.delay('seal', items);
        const ends = await this.inner.seal(items);
        await held.until;
        return ends.map((end, i) =>
          kinds[i] === null ? end : refuse(refused(`${kinds[i]} on seal (injected)`)),
        );
      },
      refuse,
    );
  }

  async #unlessLost<Result extends StoreResult>(
    items: readonly unknown[],
    act: () => Promise<readonly Result[]>,
    refuse: (end: StoreResult) => Result,
  ): Promise<readonly Result[]> {
    const gone = (): readonly Result[] => items.map(() => refuse(refused(this.#lostReason)));
    if (this.#lostReason !== '') return gone();
    const ends = await Promise.race([act(), this.lost.then(() => null)]);
    return ends === null || this.#lostReason !== '' ? gone() : ends;
  }
}

/** Host memory in which bits flip after they were written. */
export class FaultHost
  extends FaultStore<HostTierStore & TopTierStore>
  implements HostTierStore, TopTierStore
{
  constructor(inner: HostTierStore & TopTierStore, surroundings: FaultSurroundings) {
    super(inner, surroundings, 'host');
    checkInputs(
      { inner, surroundings },
      { inner: is.fields({ view: is.func() }), surroundings: is.fields({ wait: is.func() }) },
    );
  }

  seal(items: readonly SealItem[]): Promise<readonly SealResult[]> {
    return this.inner.seal(items);
  }

  copy(items: readonly CopyItem[]): Promise<readonly StoreResult[]> {
    return this.inner.copy(items);
  }

  clear(items: readonly SealItem[]): Promise<readonly StoreResult[]> {
    return this.inner.clear(items);
  }

  view(slot: number, sizeClass: number): Uint8Array {
    return this.inner.view(slot, sizeClass);
  }

  generationOf(slot: number): number {
    return this.inner.generationOf(slot);
  }

  markWritten(slot: number, generation: number): void {
    this.inner.markWritten(slot, generation);
    if (this.plan.itemFault('host', 'memory') === null) return;
    flipOneBit(this.inner.view(slot, 0), this.plan);
    this.tell('flipped', 'memory', [{ slot, sizeClass: 0, generation }]);
  }
}

// ---- reports of results that are all known, each once, after the call has returned

async function tellEnds(
  results: readonly StoreResult[],
  ended: ItemEnded | undefined,
): Promise<readonly StoreResult[]> {
  await undefined;
  results.forEach((result, index) => {
    ended?.(index, result);
  });
  return results;
}

// ---- virtual time
//
// Time passes only when nothing else can happen. Timers ring in order of their time, then of their making. A
// step runs one timer and everything that follows from it, so every run is the same.

interface Timer {
  readonly atUs: number;
  readonly order: number;
  readonly ring: () => void;
}

/** A clock of virtual time, on which faults delay calls. */
export class FaultClock {
  #nowUs = 0;
  #made = 0;
  /** A binary heap: no timer is due earlier than its parent. */
  readonly #heap: Timer[] = [];

  get nowUs(): number {
    return this.#nowUs;
  }

  /** Number of timers that have not rung. */
  get pending(): number {
    return this.#heap.length;
  }

  /** Calls `ring` once, `delayUs` microseconds from now. @returns a function that cancels it; its time passes all the same */
  after(delayUs: number, ring: () => void): () => void {
    let isOff = false;
    const timer: Timer = {
      atUs: this.#nowUs + Math.max(0, Math.ceil(delayUs)),
      order: this.#made++,
      ring: () => {
        if (!isOff) ring();
      },
    };
    let at = this.#heap.push(timer) - 1;
    while (at > 0 && isBefore(timer, this.#heap[(at - 1) >> 1])) {
      this.#heap[at] = this.#heap[(at - 1) >> 1];
      at = (at - 1) >> 1;
    }
    this.#heap[at] = timer;
    return () => {
      isOff = true;
    };
  }

  wait(delayUs: number): Promise<void> {
    return new Promise((resolve) => this.after(delayUs, resolve));
  }

  /** Runs the next timer, and then every promise that can go on. @returns false without a timer */
  async step(): Promise<boolean> {
    const timer = this.#takeFirst();
    if (timer === undefined) return false;
    this.#nowUs = timer.atUs;
    timer.ring();
    await settled();
    return true;
  }

  #takeFirst(): Timer | undefined {
    const first = this.#heap[0];
    const last = this.#heap.pop();
    if (first === undefined || last === undefined || this.#heap.length === 0) return first;
    let at = 0;
    for (;;) {
      let child = 2 * at + 1;
      if (child >= this.#heap.length) break;
      if (child + 1 < this.#heap.length && isBefore(this.#heap[child + 1], this.#heap[child])) child++;
      if (!isBefore(this.#heap[child], last)) break;
      this.#heap[at] = this.#heap[child];
      at = child;
    }
    this.#heap[at] = last;
    return first;
  }
}

function isBefore(a: Timer, b: Timer): boolean {
  return a.atUs < b.atUs || (a.atUs === b.atUs && a.order < b.order);
}

/** Fulfilled when every promise waits for a timer or I/O. */
export function settled(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
