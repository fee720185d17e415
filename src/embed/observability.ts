/**
 * Changes of blocks, as a stream: which block can be found in which tier, and which no more. For routers that keep a
 * picture of several servers' caches. Each event has a number; a reader that is too slow loses the oldest ones and sees
 * the gap.
 */

import { guardedMethods } from '../backends/guarded.ts';
import { openTextLog, type TextLog } from '../backends/host/posix.ts';
import { configError } from '../runtime/errors.ts';
import {
  type DecisionSink,
  keyToHex,
  LogWriter,
  type ManagerConfig,
  type ManagerListener,
  type RequestExtras,
  type SequenceId,
  type ServingRequest,
  type StepPlan,
  TierKVError,
  type TierName,
} from '../runtime/index.ts';
import * as is from '../runtime/kinds.ts';
import { type Kinds, type OptionTable, optionTable } from '../runtime/options.ts';
import type { BlockBook, BlockExtra, BlockText, BookedBlock } from './blockBook.ts';

/** A change of a runtime's caches: from now on a block can be found in a tier (`stored`), or no longer (`removed`). */
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
      /** The block's tokens, where the runtime keeps them (`tokenIds` of its configuration). */
      readonly tokenIds?: Uint32Array;
      /** Whose block it is: the tenant, or the group that shares; empty where all share. With `tokenIds`. */
      readonly tenant?: string;
      /** Layer group, from 0. With `tokenIds`. */
      readonly group?: number;
      /** Extras of its request that name the block beside its tokens. With `tokenIds`; absent without any. */
      readonly extras?: readonly BlockExtra[];
      /** The block has fewer tokens than a block has: the last of its prompt, sealed with `tail`. With `tokenIds`. */
      readonly isTail?: true;
    }
  | { readonly type: 'removed'; readonly number: number; readonly tier: TierName; readonly key: string };

/** A use of one block, as a runtime tells it: a sequence has found the block in a tier, or has sealed it. It has the number of the event before it. */
export interface BlockUseEvent {
  readonly type: 'used';
  readonly number: number;
  readonly key: string;
}

export interface EventOptions {
  /** Events that wait for a slow reader; beyond that the oldest are lost, which their numbers show. */
  readonly capacity?: number | undefined;
  /**
   * Begin with what is cached now: a `stored` for each block and tier, each block behind its parent. They have the
   * number of the event before them. Needs a runtime with `tokenIds`. Default false.
   */
  readonly state?: boolean | undefined;
  /** Tell also when a sequence finds a block or seals it. Default false. */
  readonly uses?: boolean | undefined;
}

export const eventOptionsTable: OptionTable<EventOptions> = optionTable({
  capacity: is.optional(is.integer(1)),
  state: is.optional(is.flag()),
  uses: is.optional(is.flag()),
} satisfies Kinds<EventOptions>);

const CAPACITY_DEFAULT = 65_536;

export class CacheEvents {
  readonly #tiers: readonly TierName[];
  readonly #readers: Set<EventReader> = new Set();
  /** Readers that are told of uses too. */
  readonly #usesReaders: Set<EventReader> = new Set();
  readonly #keyOf: (content: number) => Uint32Array;
  readonly #book: BlockBook | undefined;
  #number = 0;
  #isClosed = false;

  /**
   * @param keyOf the key of a block by the manager's number of it
   * @param book what blocks are made of; undefined where that is not kept
   */
  constructor(tiers: readonly TierName[], keyOf: (content: number) => Uint32Array, book?: BlockBook) {
    this.#tiers = tiers;
    this.#keyOf = keyOf;
    this.#book = book;
  }

  get listener(): Pick<ManagerListener, 'stored' | 'removed' | 'used'> {
    return {
      stored: (position, { key: words, parent: parentWords, tokens, bytes }) => {
        this.#number++;
        if (this.#readers.size === 0 && this.#book === undefined) return;
        const key = keyToHex(words);
        const parent =
          parentWords === undefined
            ? undefined
            : parentWords.some((w) => w !== 0)
              ? keyToHex(parentWords)
              : null;
        this.#book?.stored(position, key, parent, tokens, bytes);
        if (this.#readers.size === 0) return;
        const text = this.#book?.textOf(key);
        this.#tell(this.#storedEvent(position, { key, parent, tokens, bytes, tiers: 0, text }));
      },
      removed: (position, words) => {
        this.#number++;
        if (this.#readers.size === 0 && this.#book === undefined) return;
        const key = keyToHex(words);
        this.#book?.removed(position, key);
        const tier = this.#tiers[position];
        this.#tell({ type: 'removed', number: this.#number, tier, key });
      },
      used: (content) => {
        if (this.#usesReaders.size === 0) return;
        const key = keyToHex(this.#keyOf(content));
        for (const reader of this.#usesReaders) reader.push({ type: 'used', number: this.#number, key });
      },
    };
  }

  /** @throws TKV_CONFIG naming `capacity`, or `state` where the runtime does not know it */
  read({ capacity = CAPACITY_DEFAULT, state = false, uses = false }: EventOptions): EventReader {
    if (state && this.#book === undefined) {
      throw configError(
        'state',
        'is true, but the runtime does not keep what its blocks are made of',
        'Open it with tokenIds: true.',
      );
    }
    const reader = new EventReader(capacity, () => {
      this.#readers.delete(reader);
      this.#usesReaders.delete(reader);
    });
    this.#readers.add(reader);
    if (uses) this.#usesReaders.add(reader);
    if (state) reader.begin(this.#state());
    if (this.#isClosed) reader.end(); // nothing would ever wake it
    return reader;
  }

  /**
   * Takes the note of a block that lies in the files since an earlier run: readers are told of it now, since they could
   * not use it before.
   */
  restored(key: string, text: BlockText): void {
    const block = this.#book?.restore(key, text);
    if (block === undefined) return;
    for (let position = 0; position < this.#tiers.length; position++) {
      if ((block.tiers & (1 << position)) === 0) continue;
      this.#number++;
      this.#tell(this.#storedEvent(position, block));
    }
  }

  *#state(): Generator<CacheEvent> {
    for (const block of this.#book?.cached() ?? []) {
      for (let position = 0; position < this.#tiers.length; position++) {
        if ((block.tiers & (1 << position)) !== 0) yield this.#storedEvent(position, block);
      }
    }
  }

  #storedEvent(position: number, { key, parent, tokens, bytes, text }: BookedBlock): CacheEvent {
    return {
      type: 'stored',
      number: this.#number,
      tier: this.#tiers[position],
      key,
      ...(parent === undefined ? {} : { parent }),
      tokens,
      bytes,
      ...text,
    };
  }

  close(): void {
    this.#isClosed = true;
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
  /** Events that come before all others, the last one first. */
  #state: CacheEvent[] = [];
  /** Calls of `next` that wait: there may be several at a time. */
  readonly #waiting: (() => void)[] = [];
  #ended = false;

  constructor(capacity: number, onEnd: () => void) {
    this.#capacity = capacity;
    this.#onEnd = onEnd;
  }

  /** Events before all others, however many there are. */
  begin(events: Iterable<CacheEvent>): void {
    this.#state = [...events].reverse();
  }

  push(event: CacheEvent | BlockUseEvent): void {
    if (this.#events.length - this.#first === this.#capacity) this.#first++;
    this.#events.push(event);
    if (this.#first > this.#capacity) {
      this.#events = this.#events.slice(this.#first);
      this.#first = 0;
    }
    this.#wake();
  }

  end(): void {
    this.#ended = true;
    this.#onEnd();
    this.#wake();
  }

  #wake(): void {
    for (const wake of this.#waiting.splice(0)) wake();
  }

  async next(): Promise<IteratorResult<CacheEvent | BlockUseEvent>> {
    const known = this.#state.pop();
    if (known !== undefined) return { done: false, value: known };
    while (this.#first === this.#events.length && !this.#ended) {
      await new Promise<void>((wake) => this.#waiting.push(wake));
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

/**
 * @param notice told once where the file cannot be written any more, such as on a full disk: the log ends there, and no
 * request is hurt
 * @throws TKV_IO when the file cannot be made
 */
export function openDecisionLog(
  path: string,
  config: ManagerConfig,
  notice: (line: string) => void,
): DecisionLogFile {
  let file: TextLog;
  try {
    file = openTextLog(path);
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    throw new TierKVError(
      'TKV_IO',
      `log cannot be written (${why}). Name a file in a directory that exists.`,
      { field: 'log', path, cause },
    );
  }
  let isWritten = true;
  const guard = (act: () => void): void => {
    if (!isWritten) return;
    try {
      act();
    } catch (error) {
      isWritten = false;
      const why = error instanceof Error ? error.message : String(error);
      notice(`tierkv: the log ${path} is written no more, and cannot be replayed: ${why}`);
    }
  };
  const writer = new LogWriter(config, { log: (text) => guard(() => file.write(text)) });
  return {
    sink: writer,
    close: () => {
      writer.end();
      try {
        file.close();
      } catch (error) {
        guard(() => {
          throw error;
        });
      }
    },
  };
}

// Moments of a runtime's requests that can be watched. An observer changes nothing. Times are the runtime's clock, in
// microseconds; of one request they never go back.

export interface AskedRequest {
  /** The request's id in the scheduler; undefined for a sequence of `begin`. */
  readonly id: string | undefined;
  readonly tenant: string;
  readonly promptTokens: number;
  /** Its tokens: the first `promptTokens` of `words`. Copy what is to be kept. */
  readonly prompt: { readonly words: Uint32Array };
  readonly extras: RequestExtras | undefined;
}

export interface RequestObserver {
  /** A request came in. @returns what is told of the rest of its way */
  asked(request: AskedRequest, nowUs: number): RequestWatch;
}

/** Each moment comes once, unless it says otherwise. A request may end after any of them. */
export interface RequestWatch {
  /** Its block keys are made: from here on it waits for room. */
  hashed(nowUs: number): void;
  /** It has its room, and what it found is pinned. Again after it gave its room up. */
  placed(nowUs: number): void;
  /** Blocks from lower tiers are in place, or given up: from here on it computes. */
  filled(nowUs: number, cachedTokens: number, sequence: SequenceId): void;
  /** Its prompt is computed and, with a scheduler, its first token is there. */
  prefilled(nowUs: number): void;
  /** A token behind the first. Once a token. */
  token(nowUs: number): void;
  /** @param how `stop`, `length`, `capacity`, `aborted`, `released`, `cancelled` or `refused` */
  ended(nowUs: number, how: string): void;
}

const watchNames: readonly (keyof RequestWatch)[] = [
  'hashed',
  'placed',
  'filled',
  'prefilled',
  'token',
  'ended',
];

/** The observer, and what it makes of each request, so that what they throw goes to `threw` alone. */
export function guardedRequests(observer: RequestObserver, threw: (error: unknown) => void): RequestObserver {
  const watchOf = (watch: unknown): RequestWatch => {
    const given = (typeof watch === 'object' && watch !== null ? watch : {}) as Partial<RequestWatch>;
    return { ...noWatch, ...guardedMethods(given, watchNames, threw) };
  };
  return guardedMethods(observer, ['asked'], threw, watchOf);
}

// the names are all of its methods, which the types of fromEntries do not say
const noWatch = Object.fromEntries(watchNames.map((name) => [name, () => {}])) as unknown as RequestWatch;

/** The observers of one runtime, in the order in which they came. */
export class RequestObservers {
  readonly #observers: RequestObserver[] = [];

  /** @returns unsubscribe */
  add(observer: RequestObserver): () => void {
    this.#observers.push(observer);
    return () => {
      const at = this.#observers.indexOf(observer);
      if (at !== -1) this.#observers.splice(at, 1);
    };
  }

  /** Watch of the request; undefined while no one observes. */
  asked(request: AskedRequest, nowUs: number): RequestWatch | undefined {
    if (this.#observers.length === 0) return undefined;
    const watches = this.#observers.map((observer) => observer.asked(request, nowUs));
    return watches.length === 1 ? watches[0] : new SeveralWatches(watches);
  }
}

class SeveralWatches implements RequestWatch {
  readonly #watches: readonly RequestWatch[];

  constructor(watches: readonly RequestWatch[]) {
    this.#watches = watches;
  }

  hashed(nowUs: number): void {
    for (const watch of this.#watches) watch.hashed(nowUs);
  }

  placed(nowUs: number): void {
    for (const watch of this.#watches) watch.placed(nowUs);
  }

  filled(nowUs: number, cachedTokens: number, sequence: SequenceId): void {
    for (const watch of this.#watches) watch.filled(nowUs, cachedTokens, sequence);
  }

  prefilled(nowUs: number): void {
    for (const watch of this.#watches) watch.prefilled(nowUs);
  }

  token(nowUs: number): void {
    for (const watch of this.#watches) watch.token(nowUs);
  }

  ended(nowUs: number, how: string): void {
    for (const watch of this.#watches) watch.ended(nowUs, how);
  }
}

// Reports of a scheduler on its requests.

interface WatchedRequest {
  readonly watch: RequestWatch | undefined;
  /** Whether `watch` was told that it computes. */
  isFilled: boolean;
  /** Tokens that were sampled so far. */
  readonly generated: number;
}

/** Requests that joined the batch have their room; a request of which the plan has tokens has what it found. */
export function tellOfPlan(plan: StepPlan<WatchedRequest & ServingRequest>, nowUs: number): void {
  for (const { watch } of plan.admitted) watch?.placed(nowUs);
  for (let seat = plan.first(); seat !== -1; seat = plan.next(seat)) {
    const request = plan.request(seat);
    if (request.watch === undefined || request.isFilled) continue;
    request.isFilled = true;
    request.watch.filled(nowUs, plan.from(seat), plan.sequence(seat).id);
  }
}

/** @param sampled each request that has a token more now */
export function tellOfTokens(
  sampled: readonly { readonly id: string }[],
  requests: ReadonlyMap<string, WatchedRequest>,
  nowUs: number,
): void {
  for (const { id } of sampled) {
    const request = requests.get(id);
    if (request?.watch === undefined) continue;
    if (request.generated === 1) request.watch.prefilled(nowUs);
    else request.watch.token(nowUs);
  }
}
