/**
 * What became of blocks, as a stream: which block can be found in which tier, and which no more. For routers
 * that keep a picture of several servers' caches. Each event has a number; a reader that is too slow loses
 * the oldest ones and sees the gap.
 */

import fs from 'node:fs';
import { openToWrite } from '../backends/host/posix.ts';
import { requireInteger } from '../runtime/errors.ts';
import {
  type DecisionSink,
  keyToHex,
  LogWriter,
  type ManagerConfig,
  type ManagerListener,
  TierKVError,
  type TierName,
} from '../runtime/index.ts';
import { optionNames } from '../runtime/options.ts';

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

/** A sequence has found a block or seals it. It has the number of the event before it. */
export interface BlockUseEvent {
  readonly type: 'used';
  readonly number: number;
  readonly key: string;
}

export interface EventOptions {
  /** Events that wait for a slow reader; beyond that the oldest are lost, which their numbers show. */
  readonly capacity?: number | undefined;
  /** Tell also when a sequence finds a block or seals it. Default false. */
  readonly uses?: boolean | undefined;
}

export const eventOptionsNames: readonly string[] = optionNames<EventOptions>({ capacity: true, uses: true });

const CAPACITY_DEFAULT = 65_536;

export class CacheEvents {
  readonly #tiers: readonly TierName[];
  readonly #readers: Set<EventReader> = new Set();
  /** Of these, readers that are told of uses. */
  readonly #usesReaders: Set<EventReader> = new Set();
  readonly #keyOf: (content: number) => Uint32Array;
  #number = 0;

  /** @param keyOf the key of a block by the manager's number of it */
  constructor(tiers: readonly TierName[], keyOf: (content: number) => Uint32Array) {
    this.#tiers = tiers;
    this.#keyOf = keyOf;
  }

  /** The listener for the manager; empty without a reader. */
  get listener(): Pick<ManagerListener, 'stored' | 'removed' | 'used'> {
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
      used: (content) => {
        if (this.#usesReaders.size === 0) return;
        const key = keyToHex(this.#keyOf(content));
        for (const reader of this.#usesReaders) reader.push({ type: 'used', number: this.#number, key });
      },
    };
  }

  /** @throws TKV_CONFIG naming `capacity` */
  read({ capacity = CAPACITY_DEFAULT, uses = false }: EventOptions): EventReader {
    const reader = new EventReader(requireInteger('capacity', capacity, 1), () => {
      this.#readers.delete(reader);
      this.#usesReaders.delete(reader);
    });
    this.#readers.add(reader);
    if (uses) this.#usesReaders.add(reader);
    return reader;
  }

  close(): void {
    for (const reader of this.#readers) reader.end();
  }

  #tell(event: CacheEvent): void {
    for (const reader of this.#readers) reader.push(event);
  }
}

class EventReader implements AsyncIterableIterator<CacheEvent | BlockUseEvent> {
  readonly #capacity: number;
  readonly #onEnd: () => void;
  #events: (CacheEvent | BlockUseEvent)[] = [];
  #first = 0;
  #wake: (() => void) | null = null;
  #ended = false;

  constructor(capacity: number, onEnd: () => void) {
    this.#capacity = capacity;
    this.#onEnd = onEnd;
  }

  push(event: CacheEvent | BlockUseEvent): void {
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

  async next(): Promise<IteratorResult<CacheEvent | BlockUseEvent>> {
    while (this.#first === this.#events.length && !this.#ended) {
      await new Promise<void>((wake) => {
        this.#wake = wake;
      });
      this.#wake = null;
    }
    if (this.#first === this.#events.length) return { done: true, value: undefined };
    return { done: false, value: this.#events[this.#first++] };
  }

  async return(): Promise<IteratorResult<CacheEvent | BlockUseEvent>> {
    this.end();
    return { done: true, value: undefined };
  }

  [Symbol.asyncIterator](): this {
    return this;
  }
}

// The decision log of a runtime, in a file.

export interface DecisionLogFile {
  readonly sink: DecisionSink;
  /** The log is whole. */
  close(): void;
}

/** @throws TKV_IO when the file cannot be made */
export function openDecisionLog(path: string, config: ManagerConfig): DecisionLogFile {
  let file: number;
  try {
    file = openToWrite(path, 'w', 0o600);
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    throw new TierKVError(
      'TKV_IO',
      `log cannot be written (${why}). Name a file in a directory that exists.`,
      {
        field: 'log',
        path,
        cause,
      },
    );
  }
  const writer = new LogWriter(config, { log: (text) => fs.writeSync(file, text) });
  return {
    sink: writer,
    close: () => {
      writer.end();
      fs.closeSync(file);
    },
  };
}
