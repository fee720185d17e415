/**
 * A tier store that fails on purpose: it wraps any store and, as its plan says, refuses items, damages their
 * bytes on the way, and holds calls up. `faultKinds.ts` says what each kind is and what must survive it.
 *
 *     engine --> FaultStore --> (delay) --> damage --> the wrapped store
 *
 * What is not hit goes to the wrapped store unchanged, in one call, so order and batches stay what they were.
 * Items end together, when the call does.
 */

import { optionNames, requireOptions } from '../../runtime/options.ts';
import { refused } from '../../runtime/tier/slotLedger.ts';
import type { Tier } from '../../runtime/tier/tier.ts';
import type {
  CopyItem,
  DeviceTierStore,
  HostTierStore,
  ItemEnded,
  SealItem,
  SealResult,
  StoreItem,
  StoreResult,
  TierStore,
} from '../../runtime/tier/tierStore.ts';
import { Outcome } from '../../runtime/transfer/outcome.ts';
import { damageArrived, damaged, flipOneBit } from './damage.ts';
import { type FaultKind, type FaultyOp, reportedKinds, type StoreKind } from './faultKinds.ts';
import type { FaultPlan } from './faultPlan.ts';
import { tellEnds } from './itemEnds.ts';

export interface FiredFault {
  readonly kind: FaultKind;
  readonly tier: Tier;
  readonly op: FaultyOp;
  /** The places that it hit; empty for the loss of a device. */
  readonly places: readonly SealItem[];
}

export interface FaultSurroundings {
  readonly plan: FaultPlan;
  /** Fulfilled after so many microseconds, of a real clock or of a virtual one. */
  readonly wait: (delayUs: number) => Promise<void>;
  /** Told of every fault in the moment in which it happens. */
  readonly onFault?: (fault: FiredFault) => void;
}

export const faultSurroundingsNames: readonly string[] = optionNames<FaultSurroundings>({
  plan: true,
  wait: true,
  onFault: true,
});

/** What a call still has to wait for after its bytes have moved. */
interface Held {
  readonly until: Promise<void> | undefined;
}

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
  /** What was last written to each slot: what a torn write leaves behind its tear. */
  readonly #before: Map<number, Uint8Array> = new Map();

  constructor(inner: Store, surroundings: FaultSurroundings, kind: StoreKind = 'disk') {
    requireOptions(surroundings, faultSurroundingsNames, 'surroundings', 'TKV_CONFIG');
    this.inner = inner;
    this.tier = inner.tier;
    this.capacityBytes = inner.capacityBytes;
    this.verifies = inner.verifies;
    this.plan = surroundings.plan;
    this.#kind = kind;
    this.#wait = surroundings.wait;
    this.#onFault = surroundings.onFault ?? (() => {});
  }

  /** Calls that are stalled now. */
  get stalledCalls(): number {
    return this.#stalled.size;
  }

  /** Lets every stalled call go on, as when a dead disk is given up and its calls fail or end at last. */
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
      } else if ((kind === 'EIO' || kind === 'ENOSPC') && this.plan.chance(0.5)) {
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

  /** Draws the fault of each item and tells of it. */
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
   * Waits before bytes move, or, for every other call that is late or stalled, hands back what to wait for
   * after they moved: a late write that lands in a slot of somebody else, and a late end of one that landed
   * long ago.
   */
  protected async delay(op: FaultyOp, items: readonly SealItem[]): Promise<Held> {
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
    if (this.plan.chance(0.5)) return { until: held };
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
 * A device that can run out of memory, and be lost: then every call, also one under way, ends as refused at
 * once.
 */
export class FaultDevice extends FaultStore<DeviceTierStore> implements DeviceTierStore {
  readonly lost: Promise<string>;
  #lostReason = '';
  #announce: (reason: string) => void = () => {};

  constructor(inner: DeviceTierStore, surroundings: FaultSurroundings) {
    super(inner, surroundings, 'device');
    this.lost = new Promise((resolve) => {
      this.#announce = resolve;
    });
  }

  /**
   * Disposes of the wrapped store too: after a loss nothing may touch the bytes of a call's items any more.
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

/** Host memory in which bits flip once they have been written. */
export class FaultHost extends FaultStore<HostTierStore> implements HostTierStore {
  constructor(inner: HostTierStore, surroundings: FaultSurroundings) {
    super(inner, surroundings, 'host');
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
