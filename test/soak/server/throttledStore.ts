/**
 * A disk of a fixed speed in bytes a second, which moves one block after the other, reads and writes alike.
 * What it moves is right; it is only late.
 */

import type { StoreResult, Tier, TierStore } from '../../../src/runtime/index.ts';
import type { ItemEnded, StoreItem } from '../../../src/runtime/tier/tierStore.ts';

export class ThrottledStore implements TierStore {
  readonly tier: Tier;
  readonly capacityBytes: number;
  readonly verifies: TierStore['verifies'];
  readonly #inner: TierStore;
  readonly #bytesPerMs: number;
  /** When what was asked for so far has passed, in milliseconds. */
  #freeAtMs = 0;

  constructor(inner: TierStore, bytesPerS: number) {
    this.#inner = inner;
    this.tier = inner.tier;
    this.capacityBytes = inner.capacityBytes;
    this.verifies = inner.verifies;
    this.#bytesPerMs = bytesPerS / 1000;
  }

  describe(): Record<string, string | number | boolean> {
    return { ...this.#inner.describe(), throttledToBytesPerS: this.#bytesPerMs * 1000 };
  }

  write(items: readonly StoreItem[], ended?: ItemEnded): Promise<readonly StoreResult[]> {
    return this.#each(items, ended, (item) => this.#inner.write([item]));
  }

  read(items: readonly StoreItem[], ended?: ItemEnded): Promise<readonly StoreResult[]> {
    return this.#each(items, ended, (item) => this.#inner.read([item]));
  }

  [Symbol.asyncDispose](): Promise<void> {
    return Promise.resolve(this.#inner[Symbol.asyncDispose]());
  }

  #each(
    items: readonly StoreItem[],
    ended: ItemEnded | undefined,
    move: (item: StoreItem) => Promise<readonly StoreResult[]>,
  ): Promise<StoreResult[]> {
    return Promise.all(
      items.map(async (item, index) => {
        await this.#turn(item.bytes.byteLength);
        const [result] = await move(item);
        ended?.(index, result);
        return result;
      }),
    );
  }

  #turn(bytes: number): Promise<void> {
    const nowMs = performance.now();
    this.#freeAtMs = Math.max(nowMs, this.#freeAtMs) + bytes / this.#bytesPerMs;
    return new Promise((resolve) => setTimeout(resolve, this.#freeAtMs - nowMs));
  }
}
