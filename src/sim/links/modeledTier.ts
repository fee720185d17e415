/**
 * A tier store without bytes: it keeps what lies in each slot (generation, key, digest) and answers as a real
 * store would. It has no clock either: every call ends in the turn in which it was made, and how long the
 * transfer takes is the link model's business. `tierContract` holds for it, but for the comparison of bytes.
 */

import * as is from '../../runtime/kinds.ts';
import { checkInputs } from '../../runtime/options.ts';
import type { PoolShape } from '../../runtime/tables/slotPool.ts';
import type { Tier } from '../../runtime/tier/tier.ts';
import {
  corrupt,
  type ItemEnded,
  loaded,
  refused,
  SlotLedger,
  type StoreItem,
  type StoreResult,
  type TierStore,
} from '../../runtime/tier/tierStore.ts';

/** Words kept for a slot: its key and its digest. */
const IDENTITY_WORDS = 6;

export class ModeledTier implements TierStore {
  readonly tier: Tier;
  readonly capacityBytes: number;
  readonly verifies: TierStore['verifies'] = { onWrite: false, onRead: true };
  readonly #ledger: SlotLedger;
  #identities: Uint32Array = new Uint32Array(0);
  #disposed = false;

  constructor(tier: Tier, shape: PoolShape) {
    checkInputs(
      { tier, shape },
      { tier: is.number(), shape: is.fields({ pageBytes: is.number(), pages: is.number() }) },
    );
    this.tier = tier;
    this.capacityBytes = shape.capacityBytes;
    this.#ledger = new SlotLedger(shape);
  }

  describe(): Record<string, string | number | boolean> {
    return { store: 'modeled', capacityBytes: this.capacityBytes };
  }

  async write(items: readonly StoreItem[], ended?: ItemEnded): Promise<readonly StoreResult[]> {
    return report(
      items.map((item) => this.writeItem(item)),
      ended,
    );
  }

  async read(items: readonly StoreItem[], ended?: ItemEnded): Promise<readonly StoreResult[]> {
    return report(
      items.map((item) => this.readItem(item)),
      ended,
    );
  }

  /** From now on the slot's content has another digest than it was written with, as after a flipped bit. */
  damage(slot: number): void {
    const at = slot * IDENTITY_WORDS + 4;
    if (at < this.#identities.length) this.#identities[at] = this.#identities[at] ^ 1;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#disposed = true;
    this.#identities = new Uint32Array(0);
  }

  /** Writes one item at once; otherwise like `write`. */
  writeItem(item: StoreItem): StoreResult {
    if (this.#disposed) return refused('the store is disposed');
    const refusal = this.#ledger.refuseWrite(item);
    if (refusal !== undefined) return refusal;
    this.#ledger.take(item);
    const at = item.slot * IDENTITY_WORDS;
    if (at >= this.#identities.length) this.#grow(item.slot + 1);
    this.#identities.set(item.key, at);
    this.#identities[at + 4] = item.digest.lo;
    this.#identities[at + 5] = item.digest.hi;
    this.#ledger.fill(item);
    return loaded;
  }

  /** Reads one item at once; otherwise like `read`. */
  readItem(item: StoreItem): StoreResult {
    if (this.#disposed) return refused('the store is disposed');
    const refusal = this.#ledger.refuseRead(item);
    if (refusal !== undefined) return refusal;
    const at = item.slot * IDENTITY_WORDS;
    const identities = this.#identities;
    for (let lane = 0; lane < 4; lane++) {
      if (identities[at + lane] !== item.key[lane]) return corrupt(`slot ${item.slot} holds another key`);
    }
    if (identities[at + 4] !== item.digest.lo || identities[at + 5] !== item.digest.hi) {
      return corrupt(`slot ${item.slot} holds another digest`);
    }
    return loaded;
  }

  #grow(slots: number): void {
    const { slotLimit } = this.#ledger.shape;
    const room = Math.min(slotLimit, Math.max(slots, 1024, (2 * this.#identities.length) / IDENTITY_WORDS));
    const grown = new Uint32Array(room * IDENTITY_WORDS);
    grown.set(this.#identities);
    this.#identities = grown;
  }
}

/** Items end when the call has returned. */
async function report(
  results: readonly StoreResult[],
  ended: ItemEnded | undefined,
): Promise<readonly StoreResult[]> {
  await undefined;
  for (const [index, result] of results.entries()) ended?.(index, result);
  return results;
}
