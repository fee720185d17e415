/**
 * What became of blocks, as a stream: which block can be found in which tier, and which no more. For routers
 * that keep a picture of several servers' caches. Each event has a number; a reader that is too slow loses
 * the oldest ones and sees the gap.
 */

import { requireInteger } from '../../runtime/errors.ts';
import { keyToHex, type ManagerListener, type TierName } from '../../runtime/index.ts';

export type CacheEvent =
  | {
      readonly type: 'stored';
      readonly number: number;
      readonly tier: TierName;
      /** 32 hexadecimal digits. */
      readonly key: string;
      /** Key of the block before it; null for the first of a chain, absent where it is not known. */
      readonly parent?: string | null;
      readonly tokens: number;
      readonly bytes: number;
    }
  | { readonly type: 'removed'; readonly number: number; readonly tier: TierName; readonly key: string };

const CAPACITY_DEFAULT = 65_536;

export class CacheEvents {
  readonly #tiers: readonly TierName[];
  readonly #readers: Set<EventReader> = new Set();
  #number = 0;

  constructor(tiers: readonly TierName[]) {
    this.#tiers = tiers;
  }

  /** What the manager has to call; nothing while nobody reads. */
  get listener(): Pick<ManagerListener, 'stored' | 'removed'> {
    return {
      stored: (position, { key, parent, tokens, bytes }) => {
        if (this.#readers.size === 0) return void this.#number++;
        const known =
          parent === undefined ? {} : { parent: parent.some((w) => w !== 0) ? keyToHex(parent) : null };
        const tier = this.#tiers[position];
        this.#tell({
          type: 'stored',
          number: ++this.#number,
          tier,
          key: keyToHex(key),
          ...known,
          tokens,
          bytes,
        });
      },
      removed: (position, key) => {
        if (this.#readers.size === 0) return void this.#number++;
        this.#tell({
          type: 'removed',
          number: ++this.#number,
          tier: this.#tiers[position],
          key: keyToHex(key),
        });
      },
    };
  }

  /** @param capacity events that wait for the reader at most. @throws TKV_CONFIG */
  read(capacity: number = CAPACITY_DEFAULT): AsyncIterableIterator<CacheEvent> {
    const reader = new EventReader(requireInteger('capacity', capacity, 1), () =>
      this.#readers.delete(reader),
    );
    this.#readers.add(reader);
    return reader;
  }

  close(): void {
    for (const reader of this.#readers) reader.end();
  }

  #tell(event: CacheEvent): void {
    for (const reader of this.#readers) reader.push(event);
  }
}

class EventReader implements AsyncIterableIterator<CacheEvent> {
  readonly #capacity: number;
  readonly #onEnd: () => void;
  #events: CacheEvent[] = [];
  #first = 0;
  #wake: (() => void) | null = null;
  #ended = false;

  constructor(capacity: number, onEnd: () => void) {
    this.#capacity = capacity;
    this.#onEnd = onEnd;
  }

  push(event: CacheEvent): void {
    if (this.#events.length - this.#first === this.#capacity) this.#first++;
    this.#events.push(event);
    if (this.#first > this.#capacity) {
      this.#events = this.#events.slice(this.#first);
      this.#first = 0;
    }
    this.#wake?.();
  }

  end(): void {
    this.#ended = true;
    this.#onEnd();
    this.#wake?.();
  }

  async next(): Promise<IteratorResult<CacheEvent>> {
    while (this.#first === this.#events.length && !this.#ended) {
      await new Promise<void>((wake) => {
        this.#wake = wake;
      });
      this.#wake = null;
    }
    if (this.#first === this.#events.length) return { done: true, value: undefined };
    return { done: false, value: this.#events[this.#first++] };
  }

  async return(): Promise<IteratorResult<CacheEvent>> {
    this.end();
    return { done: true, value: undefined };
  }

  [Symbol.asyncIterator](): this {
    return this;
  }
}
