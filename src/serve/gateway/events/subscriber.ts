/**
 * Reads what a publisher of KV events tells: vLLM's engine, SGLang's, or tierkv's. Messages come in the order of
 * their numbers and none is missing, or `cleared` says that what was known counts for nothing and what follows is
 * the new beginning.
 *
 *     SUB    -> decode -> batchOrder -> the reader's queue -> for await
 *     DEALER -> decode ----^   (a replay: one socket for each, so that a late answer meets no later question)
 *
 * - A socket serves one connection. When that is lost, its socket goes, with what waits in it: a message of the process
 *   before must not be taken for one of the process that answers there next.
 * - Garbage is counted and left out. Where its number is missing afterwards it is asked for again.
 * - The queue is bounded. A reader that is slower loses what is in it, gets `cleared`, and then the state anew. A
 *   replay waits for room instead, so that a state of any size gets through.
 */

import type { Dealer, Subscriber } from 'zeromq';
import * as is from '../../../runtime/kinds.ts';
import { type Kinds, optionTable } from '../../../runtime/options.ts';
import { BatchOrder, blocksIn, clearedBatch, type OrderCounts } from './batchOrder.ts';
import { loadZeroMq, MESSAGE_BYTES_MAX, requireEndpoint, requireTopic, type ZeroMq } from './sockets.ts';
import {
  type KVEventBatch,
  loadMessagePack,
  type MessagePack,
  numberFrame,
  numberIn,
  readBatch,
  WireFault,
} from './wire.ts';

/** Options of `subscribeKVEvents`: addresses and topic. */
export interface KVSubscriptionOptions {
  /** Where the publisher sends, such as `tcp://10.0.0.7:5557`. It need not be there yet. */
  readonly endpoint: string;
  /** Where it answers replays. Without it a gap costs all that was known. */
  readonly replayEndpoint?: string | undefined;
  /** Only messages whose topic begins with it. Default: all. */
  readonly topic?: string | undefined;
  /** Blocks in messages that wait for a slow reader. Default 262,144. */
  readonly capacity?: number | undefined;
  /** Longest silence within a replay, in milliseconds, before it counts as failed. Default 10,000. */
  readonly replayTimeoutMs?: number | undefined;
}

const CAPACITY_DEFAULT = 262_144;

const REPLAY_TIMEOUT_MS = 10_000;

const kvSubscriptionOptionsTable = optionTable(
  {
    endpoint: is.passed(),
    replayEndpoint: is.optional(is.passed()),
    topic: is.optional(is.passed(), ''),
    capacity: is.optional(is.integer(1), CAPACITY_DEFAULT),
    replayTimeoutMs: is.optional(is.integer(1, 2 ** 31 - 1), REPLAY_TIMEOUT_MS),
  } satisfies Kinds<KVSubscriptionOptions>,
  'TKV_CONFIG',
);

interface KVSubscriptionCounts extends OrderCounts {
  /** Messages that were handed to the reader. */
  readonly batches: number;
  /** Events in them. */
  readonly events: number;
  /** Messages that could not be read. */
  readonly garbage: number;
  /** The fault of the last such message; empty without one. */
  readonly lastGarbage: string;
  /** Times that the reader was too slow, and lost what waited. */
  readonly overflows: number;
  /** Blocks in messages that wait for the reader now. */
  readonly waitingBlocks: number;
  /** `Date.now()` of the last message; null before the first. */
  readonly lastReceivedAtMs: number | null;
}

/** Batches of KV events as they come, in their order. */
export interface KVEventSubscription extends AsyncIterableIterator<KVEventBatch>, AsyncDisposable {
  readonly counts: KVSubscriptionCounts;
  /** Asks for all that there is. Without a replay address nothing happens. */
  resync(): void;
  /** Ends the loop of the reader too. */
  close(): Promise<void>;
}

/** Longest wait before a failed replay is asked for again, in milliseconds. */
const RETRY_MS_MAX = 60_000;
/**
 * Between two questions whether the publisher is still there, and until it counts as gone, in milliseconds: a machine that is
 * switched off says nothing, and who only listens would not notice.
 */
const HEARTBEAT_MS = 5000;
const GONE_MS = 15_000;
/** Messages that ZeroMQ itself keeps for us while the event loop is busy. */
const SOCKET_MESSAGES = 100_000;

/**
 * Subscribes to a publisher of KV events.
 * @throws TKV_CONFIG naming the option at fault, and where the packages zeromq and msgpackr are not installed
 */
export async function subscribeKVEvents(options: KVSubscriptionOptions): Promise<KVEventSubscription> {
  const { endpoint, replayEndpoint, topic, ...read } = kvSubscriptionOptionsTable.read(options);
  requireTopic(topic);
  const settings = {
    endpoint: requireEndpoint('endpoint', endpoint),
    replayEndpoint:
      replayEndpoint === undefined ? undefined : requireEndpoint('replayEndpoint', replayEndpoint),
    topic,
    ...read,
  };
  return new Subscription(await loadZeroMq(), await loadMessagePack(), settings);
}

interface SubscriptionSettings {
  readonly endpoint: string;
  readonly replayEndpoint: string | undefined;
  readonly topic: string;
  readonly capacity: number;
  readonly replayTimeoutMs: number;
}

class Subscription implements KVEventSubscription {
  readonly #zeroMq: ZeroMq;
  readonly #pack: MessagePack;
  readonly #settings: SubscriptionSettings;
  readonly #order: BatchOrder;
  readonly #queue: ReaderQueue;
  #socket: Subscriber;
  #replay: Dealer | undefined;
  #failures = 0;
  #retry: NodeJS.Timeout | undefined;
  #batches = 0;
  #events = 0;
  #garbage = 0;
  #lastGarbage = '';
  #lastReceivedAtMs: number | null = null;
  #isClosed = false;
  #live: Promise<void>;

  constructor(zeroMq: ZeroMq, pack: MessagePack, settings: SubscriptionSettings) {
    this.#zeroMq = zeroMq;
    this.#pack = pack;
    this.#settings = settings;
    this.#queue = new ReaderQueue(settings.capacity);
    this.#order = new BatchOrder({
      deliver: (batch) => this.#queue.push(batch),
      ask: settings.replayEndpoint === undefined ? undefined : (from) => this.#ask(from),
      waitingMax: settings.capacity,
    });
    this.#socket = this.#connect();
    this.#order.resync();
    this.#live = this.#receive(this.#socket);
  }

  #connect(): Subscriber {
    const socket = new this.#zeroMq.Subscriber({
      receiveHighWaterMark: SOCKET_MESSAGES,
      maxMessageSize: MESSAGE_BYTES_MAX,
      heartbeatInterval: HEARTBEAT_MS,
      heartbeatTimeout: GONE_MS,
      linger: 0,
    });
    socket.events.on('disconnect', () => this.#lost(socket));
    socket.connect(this.#settings.endpoint);
    socket.subscribe(this.#settings.topic);
    return socket;
  }

  #lost(socket: Subscriber): void {
    if (this.#isClosed || socket !== this.#socket) return;
    this.#socket = this.#connect();
    socket.close();
    this.#order.connectionLost();
    const before = this.#live;
    this.#live = Promise.all([before, this.#receive(this.#socket)]).then(() => {});
  }

  get counts(): KVSubscriptionCounts {
    return {
      ...this.#order.counts,
      batches: this.#batches,
      events: this.#events,
      garbage: this.#garbage,
      lastGarbage: this.#lastGarbage,
      overflows: this.#queue.overflows,
      waitingBlocks: this.#queue.blocks,
      lastReceivedAtMs: this.#lastReceivedAtMs,
    };
  }

  resync(): void {
    if (!this.#isClosed) this.#order.resync();
  }

  async next(): Promise<IteratorResult<KVEventBatch>> {
    const batch = await this.#queue.next();
    if (batch === undefined) return { done: true, value: undefined };
    this.#batches++;
    this.#events += batch.events.length;
    if (this.#queue.takeOverflow()) this.resync();
    return { done: false, value: batch };
  }

  async return(): Promise<IteratorResult<KVEventBatch>> {
    await this.close();
    return { done: true, value: undefined };
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    clearTimeout(this.#retry);
    this.#replay?.close();
    this.#socket.close();
    this.#queue.end();
    await this.#live;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #receive(socket: Subscriber): Promise<void> {
    try {
      for await (const frames of socket) {
        if (socket !== this.#socket) return;
        this.#lastReceivedAtMs = Date.now();
        const batch = this.#read(frames);
        if (typeof batch === 'object') this.#order.live(batch);
      }
    } catch (error) {
      if (!this.#isClosed && socket === this.#socket) throw error;
    }
  }

  /** @returns the number of a message that cannot be read, undefined if it has none */
  #read(frames: readonly Buffer[]): KVEventBatch | bigint | undefined {
    let number: bigint | undefined;
    try {
      if (frames.length !== 3) throw new WireFault(`a message has ${frames.length} frames, not 3`);
      number = numberIn(frames[1]);
      return readBatch(this.#pack, frames[0].toString(), number, frames[2]);
    } catch (error) {
      if (!(error instanceof WireFault)) throw error;
      this.#garbage++;
      this.#lastGarbage = error.message;
      return number;
    }
  }

  // Replays.

  #ask(from: bigint): void {
    clearTimeout(this.#retry);
    this.#replay?.close();
    const socket = new this.#zeroMq.Dealer({
      receiveTimeout: this.#settings.replayTimeoutMs,
      maxMessageSize: MESSAGE_BYTES_MAX,
      linger: 0,
    });
    this.#replay = socket;
    socket.connect(this.#settings.replayEndpoint as string); // asked only where there is one
    this.#replayed(socket, from).then(
      () => this.#replayOver(socket, true),
      () => this.#replayOver(socket, false),
    );
  }

  async #replayed(socket: Dealer, from: bigint): Promise<void> {
    await socket.send([new Uint8Array(0), numberFrame(from)]);
    for (;;) {
      const [delimiter, ...rest]: readonly Buffer[] = await socket.receive();
      if (this.#replay !== socket) return;
      this.#lastReceivedAtMs = Date.now();
      // A topic comes first since vLLM 0.26. Without it the reply is number and payload.
      const frames = rest.length === 2 ? [Buffer.alloc(0), ...rest] : rest;
      if (delimiter.byteLength === 0 && frames.length === 3 && isEnd(frames)) return;
      const batch = this.#read(frames);
      if (typeof batch === 'bigint') this.#order.replayUnreadable(batch);
      else if (batch !== undefined) {
        await this.#queue.room();
        if (this.#replay !== socket) return;
        this.#order.replayed(batch);
      }
    }
  }

  #replayOver(socket: Dealer, isWhole: boolean): void {
    if (this.#replay !== socket) return;
    this.#replay = undefined;
    socket.close();
    if (this.#isClosed) return;
    if (isWhole) {
      this.#failures = 0;
      this.#order.replayEnded();
      return;
    }
    const wait = Math.min(RETRY_MS_MAX, this.#settings.replayTimeoutMs * 2 ** this.#failures++);
    this.#retry = setTimeout(() => this.resync(), wait);
    this.#retry.unref();
    this.#order.replayFailed();
  }
}

/** The last reply: number -1, and no payload. */
function isEnd([, number, payload]: readonly Buffer[]): boolean {
  return payload.byteLength === 0 && number.byteLength === 8 && number.readBigInt64BE() === -1n;
}

/** Messages that wait for the reader, bounded by the blocks in them. */
class ReaderQueue {
  readonly #capacity: number;
  #batches: KVEventBatch[] = [];
  #first = 0;
  #blocks = 0;
  #overflows = 0;
  /** The reader lost what waited, and has not been told yet. */
  #hasOverflown = false;
  #ended = false;
  #wake: (() => void) | undefined;
  #roomWanted: (() => void) | undefined;

  constructor(capacity: number) {
    this.#capacity = capacity;
  }

  get blocks(): number {
    return this.#blocks;
  }

  get overflows(): number {
    return this.#overflows;
  }

  push(batch: KVEventBatch): void {
    // After an overflow nothing counts until the reader has begun again.
    if (this.#ended || this.#hasOverflown) return;
    const blocks = blocksIn(batch);
    if (this.#blocks > 0 && this.#blocks + blocks > this.#capacity) {
      this.#overflows++;
      this.#hasOverflown = true;
      this.#batches = [clearedBatch('overflow', batch.number)];
      this.#first = 0;
      this.#blocks = 1;
    } else {
      this.#batches.push(batch);
      this.#blocks += blocks;
    }
    this.#wake?.();
  }

  /** The next message; undefined after the end. */
  async next(): Promise<KVEventBatch | undefined> {
    while (this.#first === this.#batches.length && !this.#ended) {
      await new Promise<void>((wake) => {
        this.#wake = wake;
      });
      this.#wake = undefined;
    }
    if (this.#ended) return undefined;
    const batch = this.#batches[this.#first++];
    this.#blocks -= blocksIn(batch);
    if (this.#first > 1024 && this.#first * 2 > this.#batches.length) {
      this.#batches = this.#batches.slice(this.#first);
      this.#first = 0;
    }
    this.#roomWanted?.();
    return batch;
  }

  /** Whether the message that was taken last told of an overflow. */
  takeOverflow(): boolean {
    const has = this.#hasOverflown;
    this.#hasOverflown = false;
    return has;
  }

  /** Fulfilled when less than half of the room is taken, so that live messages find the rest. */
  async room(): Promise<void> {
    while (!this.#ended && this.#blocks * 2 > this.#capacity) {
      await new Promise<void>((wanted) => {
        this.#roomWanted = wanted;
      });
      this.#roomWanted = undefined;
    }
  }

  end(): void {
    this.#ended = true;
    this.#wake?.();
    this.#roomWanted?.();
  }
}
