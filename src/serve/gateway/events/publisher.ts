/**
 * Publishes what a runtime's caches hold as vLLM's engine does, so that routers made for vLLM read it: Dynamo's,
 * llm-d's, and others (docs/reference/kv-events.md).
 *
 *     events of the runtime -> publishedBlocks -> batch -> PUB
 *                                   |               '----> the last batches, for ROUTER
 *                                   '--------------------> the state, for ROUTER
 *
 * - Numbers begin at the microseconds since 1970, so they never go back after a restart. A router that was
 *   connected before sees a gap and asks.
 * - Who asks for numbers that are kept gets these. Who asks for others, or for number 0, gets the state: one
 *   `AllBlocksCleared` and all that is cached, under numbers up to the last one published.
 * - It begins and ends with `AllBlocksCleared`, at once. While nothing happens an empty batch goes out every second,
 *   so that a loss at the end is noticed.
 * - A subscriber that stalls costs its own messages: ZeroMQ keeps a number of them for it, then drops more. A replay that
 *   stalls is given up.
 */

import type { Publisher, Router } from 'zeromq';
import type { CacheEvent } from '../../../embed/observability.ts';
import { configError, TierKVError } from '../../../runtime/errors.ts';
import { blake2s } from '../../../runtime/keys/blake2s.ts';
import * as is from '../../../runtime/kinds.ts';
import { type Kinds, optionTable } from '../../../runtime/options.ts';
import { type TierName, tierNames } from '../../../runtime/tier/tier.ts';
import { PublishedBlocks, type Telling } from './publishedBlocks.ts';
import { bound, closedSocket, loadZeroMq, requireEndpoint, requireTopic } from './sockets.ts';
import {
  clearedOnWire,
  loadMessagePack,
  MEDIA_HASH,
  type MessagePack,
  numberFrame,
  packBatch,
  removedOnWire,
  storedOnWire,
  type WireEncoding,
  type WireHash,
  type WireMedia,
} from './wire.ts';

/** The owner of caches with events to publish: a `KVRuntime` that was opened with `tokenIds: true`. */
export interface KVEventSource {
  /** Whether it has been closed, and has no more events. Left out: no. */
  readonly isClosed?: boolean;
  events(options: { readonly state: true; readonly capacity?: number }): AsyncIterableIterator<CacheEvent>;
}

/** Options of `publishKVEvents`: addresses and topic. */
export interface KVPublisherOptions {
  /** Where subscribers connect, such as `tcp://*:5557`; port `*` takes a free one. */
  readonly endpoint: string;
  /** Where replays are asked for, usually the next port. Default: nowhere. */
  readonly replayEndpoint?: string | undefined;
  /** First frame of each message; llm-d wants `kv@ADDRESS@MODEL`. Default empty. */
  readonly topic?: string | undefined;
  /** `maps` as vLLM since June 2026, `arrays` as before. Default `maps`. */
  readonly encoding?: WireEncoding | undefined;
  /**
   * Names of the tiers. Null leaves a tier out. Default: `hbm` GPU, `ddr` CPU, `nvme` STORAGE, as in vLLM; other tiers
   * are left out. Dynamo wants DISK for `nvme`, and takes STORAGE for the device.
   */
  readonly mediums?: Readonly<Partial<Record<TierName, string | null>>> | undefined;
  /**
   * The salt under which routers find a tenant's blocks; null for none. Where it throws, or gives anything else, no router
   * finds them. Default: the tenant's name.
   */
  readonly salt?: ((tenant: string) => string | null) | undefined;
  /** Put before each salt in `extra_keys`. Default empty. */
  readonly saltPrefix?: string | undefined;
  /**
   * Name of the extra of a request that names an adapter: blocks have its value as `lora_name`, as vLLM's have. All
   * other extras are told as vLLM tells images. Default `adapter`; null for none.
   */
  readonly adapterExtra?: string | null | undefined;
  /**
   * Whether partial last blocks (`seal` with `tail`) are told too, as blocks of as many tokens as they have. vLLM's
   * have none, and its routers refuse blocks of other sizes; `CachePicture` reads them. Default false.
   */
  readonly tails?: boolean | undefined;
  /** Which of several engines behind one address. Default 0. */
  readonly rank?: number | undefined;
  /** Batches kept for replays. Default 10,000. */
  readonly keepBatches?: number | undefined;
  /** Messages kept for a subscriber that stalls. Default 100,000. */
  readonly queueMessages?: number | undefined;
  /** Milliseconds without news after which an empty batch goes out; 0 for none. Default 1,000. */
  readonly heartbeatMs?: number | undefined;
  /** First number. Default: microseconds since 1970. Give one where the clock may go back. */
  readonly firstNumber?: bigint | undefined;
}

const kvPublisherOptionsTable = optionTable(
  {
    endpoint: is.passed(),
    replayEndpoint: is.optional(is.passed()),
    topic: is.optional(is.passed(), ''),
    encoding: is.optional(is.oneOf<WireEncoding>(['maps', 'arrays']), 'maps'),
    mediums: is.optional(is.passed()),
    salt: is.optional(is.func()),
    saltPrefix: is.optional(is.text(), ''),
    adapterExtra: is.optional(is.orNull(is.name('Name the extra, or null for none.')), 'adapter'),
    tails: is.optional(is.flag(), false),
    rank: is.optional(is.integer(0, 2 ** 31 - 1), 0),
    keepBatches: is.optional(is.integer(1), 10_000),
    queueMessages: is.optional(is.integer(1, 2 ** 31 - 1), 100_000),
    heartbeatMs: is.optional(is.integer(0, 2 ** 31 - 1), 1000),
    firstNumber: is.optional(is.passed()),
  } satisfies Kinds<KVPublisherOptions>,
  'TKV_CONFIG',
);

interface KVPublisherCounts {
  /** Messages published. */
  readonly batches: number;
  /** Events in them. */
  readonly events: number;
  /** Blocks that routers know of now. */
  readonly blocks: number;
  /** Cached blocks that are not told: partial ones without `tails`, and those whose tokens are not known. */
  readonly nameless: number;
  readonly lastNumber: bigint;
  /** Replays that were asked for. */
  readonly replays: number;
  /** Replays among these that the state answered. */
  readonly states: number;
  /** Replays among these that were given up: the asker took no more, or was gone. */
  readonly replaysAborted: number;
  /** Messages to the replay socket that are not requests. */
  readonly garbage: number;
  /** Times that the runtime's events came faster than they could be taken, and all was told anew. */
  readonly overflows: number;
}

/** A publisher of KV events that is open. */
export interface KVEventPublisher extends AsyncDisposable {
  /** Where it really publishes: with the port that was taken. */
  readonly endpoint: string;
  readonly replayEndpoint: string | undefined;
  readonly counts: KVPublisherCounts;
  /** Fulfilled when all that the runtime has told so far is published. */
  flushed(): Promise<void>;
  /** Tells routers that nothing is cached any more, and ends. Close it before or after the runtime. */
  close(): Promise<void>;
}

const MEDIUMS: Readonly<Partial<Record<string, string>>> = { hbm: 'GPU', ddr: 'CPU', nvme: 'STORAGE' };
/** Events of the runtime that may wait to be published. */
const CAPACITY = 262_144;
/** Most blocks of a message, so that no subscriber works on one for long. */
const BATCH_TELLINGS = 1024;
/** Longest time, in milliseconds, that one reply of a replay may wait for its asker. */
const REPLAY_SEND_MS = 5000;
/** Longest time, in milliseconds, that the last messages may take to leave at a close. */
const LINGER_MS = 1000;

/**
 * Publishes the events of a runtime.
 * @throws TKV_CONFIG naming the option at fault, also where an address cannot be bound, the packages zeromq and
 * msgpackr are not installed, or the runtime was opened without `tokenIds`; TKV_STATE for a runtime that is closed
 */
export async function publishKVEvents(
  source: KVEventSource,
  options: KVPublisherOptions,
): Promise<KVEventPublisher> {
  const settings = checked(options);
  if (typeof source?.events !== 'function') {
    throw configError('source', 'has no events', 'Pass a KVRuntime.');
  }
  if (source.isClosed === true) {
    throw new TierKVError(
      'TKV_STATE',
      'the runtime is closed, and has no more events. Publish those of an open one.',
    );
  }
  const [zeroMq, pack] = [await loadZeroMq(), await loadMessagePack()];
  const events = (): AsyncIterableIterator<CacheEvent> => source.events({ state: true, capacity: CAPACITY });
  const first = events();
  const socket = new zeroMq.Publisher({ sendHighWaterMark: settings.queueMessages, linger: LINGER_MS });
  let router: Router | undefined;
  try {
    await bound(socket, 'endpoint', settings.endpoint);
    if (settings.replayEndpoint !== undefined) {
      router = new zeroMq.Router({ mandatory: true, sendTimeout: REPLAY_SEND_MS, linger: 0 });
      await bound(router, 'replayEndpoint', settings.replayEndpoint);
    }
  } catch (error) {
    socket.close();
    await first.return?.();
    throw error;
  }
  return new EventPublisher({ first, events, socket, router, pack, settings });
}

interface PublisherSettings {
  readonly endpoint: string;
  readonly replayEndpoint: string | undefined;
  readonly topic: string;
  readonly encoding: WireEncoding;
  /** Names of the published tiers, in their order. */
  readonly mediums: ReadonlyMap<TierName, string>;
  readonly salt: (tenant: string) => string | null;
  readonly saltPrefix: string;
  readonly adapterExtra: string | null;
  readonly tails: boolean;
  readonly rank: number;
  readonly keepBatches: number;
  readonly queueMessages: number;
  readonly heartbeatMs: number;
  readonly firstNumber: bigint;
}

/** A name by the name of a tier; null leaves the tier out. */
function requireMediums(mediums: NonNullable<KVPublisherOptions['mediums']>): void {
  const medium = is.optional(is.orNull(is.name('Name it, or null to leave it out.')));
  optionTable(Object.fromEntries(tierNames.map((tier) => [tier, medium])), 'TKV_CONFIG').read(
    mediums,
    'mediums',
  );
}

function checked(options: KVPublisherOptions): PublisherSettings {
  const read = kvPublisherOptionsTable.read(options);
  const { endpoint, replayEndpoint, topic, mediums = {}, firstNumber, saltPrefix } = read;
  const { salt = (tenant: string) => (tenant === '' ? null : tenant) } = read;
  requireTopic(topic);
  requireMediums(mediums);
  if (firstNumber !== undefined && (typeof firstNumber !== 'bigint' || firstNumber < 1n)) {
    throw configError('firstNumber', 'must be a bigint from 1n on', 'Leave it out for the clock.');
  }
  const named = tierNames.flatMap((tier): [TierName, string][] => {
    const name = mediums[tier] === undefined ? MEDIUMS[tier] : mediums[tier];
    return name === null || name === undefined ? [] : [[tier, name]];
  });
  return {
    endpoint: requireEndpoint('endpoint', endpoint),
    replayEndpoint:
      replayEndpoint === undefined ? undefined : requireEndpoint('replayEndpoint', replayEndpoint),
    topic,
    encoding: read.encoding,
    mediums: new Map(named),
    salt: checkedSalt(salt),
    saltPrefix,
    adapterExtra: read.adapterExtra,
    tails: read.tails,
    rank: read.rank,
    keepBatches: read.keepBatches,
    queueMessages: read.queueMessages,
    heartbeatMs: read.heartbeatMs,
    firstNumber: firstNumber ?? BigInt(Date.now()) * 1000n,
  };
}

/** Where the caller's function fails, blocks get a salt under which no router looks for any. */
function checkedSalt(salt: (tenant: string) => string | null): PublisherSettings['salt'] {
  let hidden: string | undefined;
  return (tenant) => {
    try {
      const given: unknown = salt(tenant);
      if (typeof given === 'string' || given === null) return given;
    } catch {}
    return (hidden ??= crypto.randomUUID());
  };
}

interface PublisherParts {
  readonly first: AsyncIterableIterator<CacheEvent>;
  readonly events: () => AsyncIterableIterator<CacheEvent>;
  readonly socket: Publisher;
  readonly router: Router | undefined;
  readonly pack: MessagePack;
  readonly settings: PublisherSettings;
}

class EventPublisher implements KVEventPublisher {
  readonly endpoint: string;
  readonly replayEndpoint: string | undefined;
  readonly #parts: PublisherParts;
  readonly #tiers: readonly TierName[];
  readonly #mediums: readonly string[];
  readonly #blocks: PublishedBlocks;
  /** Number of the last batch. */
  #last: bigint;
  /** Payloads of the last batches, the newest last; its number is `#last`. */
  #kept: Uint8Array[] = [];
  #tellings: Telling[] = [];
  #reader: AsyncIterableIterator<CacheEvent>;
  #sending: Promise<void> = Promise.resolve();
  #flushAsked = false;
  #sentAtMs = 0;
  #isClosed = false;
  #closing: Promise<void> | undefined;
  readonly #heartbeat: NodeJS.Timeout | undefined;
  readonly #running: Promise<unknown>;
  #counts: Omit<KVPublisherCounts, 'blocks' | 'nameless' | 'lastNumber'> = {
    batches: 0,
    events: 0,
    replays: 0,
    states: 0,
    replaysAborted: 0,
    garbage: 0,
    overflows: 0,
  };

  constructor(parts: PublisherParts) {
    const { settings, socket, router, first } = parts;
    this.#parts = parts;
    this.#blocks = new PublishedBlocks(settings.tails);
    this.#tiers = [...settings.mediums.keys()];
    this.#mediums = [...settings.mediums.values()];
    this.#last = settings.firstNumber - 1n;
    this.endpoint = socket.lastEndpoint ?? settings.endpoint;
    this.replayEndpoint = router?.lastEndpoint ?? settings.replayEndpoint;
    this.#reader = first;
    this.#publish([clearedOnWire(settings.encoding)]);
    this.#running = Promise.all([this.#follow(), router === undefined ? null : this.#answer(router)]);
    if (settings.heartbeatMs > 0) {
      this.#heartbeat = setInterval(() => this.#beat(), settings.heartbeatMs);
      this.#heartbeat.unref();
    }
  }

  get counts(): KVPublisherCounts {
    return {
      ...this.#counts,
      blocks: this.#blocks.count,
      nameless: this.#blocks.nameless,
      lastNumber: this.#last,
    };
  }

  async flushed(): Promise<void> {
    // Events in the reader come one a microtask, and their batch in the turn after.
    await new Promise((done) => setImmediate(done));
    await new Promise((done) => setImmediate(done));
    await this.#sending;
  }

  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    this.#isClosed = true;
    clearInterval(this.#heartbeat);
    await this.#reader.return?.();
    const { router, socket } = this.#parts;
    if (router !== undefined) await closedSocket(router);
    await this.#running;
    await this.#sending;
    await closedSocket(socket);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  /** Takes the runtime's events to its end. */
  async #follow(): Promise<void> {
    for (;;) {
      let last: number | undefined;
      let isLost = false;
      for await (const event of this.#reader) {
        isLost = last !== undefined && event.number > last + 1;
        if (isLost) break;
        last = event.number;
        this.#take(event);
      }
      this.#flush();
      this.#blocks.clear();
      this.#publish([clearedOnWire(this.#parts.settings.encoding)]);
      if (!isLost || this.#isClosed) return;
      this.#count('overflows', 1);
      this.#reader = this.#parts.events();
    }
  }

  #take(event: CacheEvent): void {
    const tier = this.#tiers.indexOf(event.tier);
    if (tier === -1) return;
    const { type, key } = event;
    this.#tellings.push(
      ...(type === 'removed' ? this.#blocks.removed(key, tier) : this.#blocks.stored(event, tier)),
    );
    if (this.#tellings.length >= BATCH_TELLINGS) this.#flush();
    else if (!this.#flushAsked) {
      this.#flushAsked = true;
      setImmediate(() => this.#flush());
    }
  }

  /** Events that came about in one turn of the event loop are one message. */
  #flush(): void {
    this.#flushAsked = false;
    if (this.#tellings.length === 0) return;
    const tellings = this.#tellings;
    this.#tellings = [];
    this.#publish(this.#onWire(tellings));
  }

  #beat(): void {
    if (performance.now() - this.#sentAtMs >= this.#parts.settings.heartbeatMs / 2) this.#publish([]);
  }

  #publish(events: readonly unknown[]): void {
    const { settings, socket } = this.#parts;
    const payload = this.#packed(events);
    this.#last += 1n;
    this.#sentAtMs = performance.now(); // a clock that is set back stops no heartbeat
    this.#kept.push(payload);
    if (this.#kept.length >= 2 * settings.keepBatches) this.#kept = this.#kept.slice(-settings.keepBatches);
    this.#count('batches', 1);
    this.#count('events', events.length);
    const message = [settings.topic, numberFrame(this.#last), payload];
    // One send at a time; to a PUB socket it never waits.
    this.#sending = this.#sending.then(() => socket.send(message));
  }

  #packed(events: readonly unknown[]): Uint8Array {
    return packBatch(this.#parts.pack, Date.now() / 1000, events, this.#parts.settings.rank);
  }

  /** The events of tellings: neighbours of a chain in one tier are one event, as are removals in one tier. */
  #onWire(tellings: readonly Telling[]): unknown[] {
    const events: unknown[] = [];
    for (let from = 0; from < tellings.length; ) {
      let to = from + 1;
      while (to < tellings.length && goesOn(tellings[to - 1], tellings[to])) to++;
      events.push(this.#event(tellings.slice(from, to)));
      from = to;
    }
    return events;
  }

  #event(tellings: readonly Telling[]): unknown {
    const { encoding, salt, saltPrefix, adapterExtra } = this.#parts.settings;
    const [{ type, tier, block }] = tellings;
    const medium = this.#mediums[tier];
    const hashes = tellings.map((telling): WireHash => telling.block.hash);
    const group = block.group === 0 ? null : block.group;
    if (type === 'removed') return removedOnWire(encoding, hashes, medium, group);
    return storedOnWire(encoding, {
      hashes,
      parent: block.parentHash,
      tokenIds: tellings.flatMap((telling) => [...telling.block.tokenIds]),
      blockTokens: block.tokenIds.length,
      medium,
      group,
      loraName: block.extras.find(({ name }) => name === adapterExtra)?.value ?? null,
      salt: salt(block.tenant),
      saltPrefix,
      media: tellings.map((telling) => mediaOf(telling.block, adapterExtra)),
    });
  }

  // Replays.

  async #answer(router: Router): Promise<void> {
    try {
      for await (const frames of router) {
        const [asker, delimiter, number] = frames;
        if (frames.length !== 3 || delimiter.byteLength !== 0 || number.byteLength !== 8) {
          this.#count('garbage', 1);
          continue;
        }
        this.#count('replays', 1);
        try {
          await this.#replay(router, asker, number.readBigUInt64BE());
        } catch (error) {
          if (this.#isClosed) return;
          if (!(error instanceof Error) || !('code' in error)) throw error;
          this.#count('replaysAborted', 1); // gone, or it takes no more
        }
      }
    } catch (error) {
      if (!this.#isClosed) throw error;
    }
  }

  async #replay(router: Router, asker: Buffer, from: bigint): Promise<void> {
    this.#flush();
    const last = this.#last;
    const kept = this.#kept.slice(-this.#parts.settings.keepBatches);
    const oldest = last - BigInt(kept.length) + 1n;
    const isKept = from >= oldest;
    const batches = !isKept
      ? this.#state(last - from + 1n)
      : from > last
        ? []
        : kept.slice(Number(from - oldest));
    let number = last - BigInt(batches.length);
    const { topic } = this.#parts.settings;
    for (const batch of batches) {
      number += 1n;
      const payload = batch instanceof Uint8Array ? batch : this.#packed(batch);
      await router.send([asker, '', topic, numberFrame(number), payload]);
    }
    await router.send([asker, '', '', numberFrame(-1n), '']);
  }

  /** The state in batches, at most `most`, as it is now. */
  #state(most: bigint): unknown[][] {
    this.#count('states', 1);
    const tellings = this.#blocks.state();
    const wanted = Math.max(1, Math.ceil(tellings.length / BATCH_TELLINGS));
    const count = BigInt(wanted) <= most ? wanted : Number(most);
    const each = Math.ceil(tellings.length / count);
    const cleared = clearedOnWire(this.#parts.settings.encoding);
    return Array.from({ length: count }, (_, i) => {
      const events = this.#onWire(tellings.slice(i * each, (i + 1) * each));
      return i === 0 ? [cleared, ...events] : events;
    });
  }

  #count(name: keyof Omit<KVPublisherCounts, 'blocks' | 'nameless' | 'lastNumber'>, by: number): void {
    this.#counts = { ...this.#counts, [name]: this.#counts[name] + by };
  }
}

/** Extras that enter a block, but for its adapter: by the hash that they were given as, or one of name and value. */
function mediaOf({ extras }: Telling['block'], adapterExtra: string | null): WireMedia[] {
  return extras
    .filter(({ name, offset }) => offset >= 0 && name !== adapterExtra)
    .map(({ name, value, offset }) => {
      if (MEDIA_HASH.test(value)) return [value, offset];
      const named = blake2s(new TextEncoder().encode(JSON.stringify([name, value])));
      return [Buffer.from(named).toString('hex'), offset];
    });
}

/** Whether two tellings fit one event. */
function goesOn(before: Telling, next: Telling): boolean {
  const { type, tier, block } = before;
  if (next.type !== type || next.tier !== tier || next.block.group !== block.group) return false;
  return (
    type === 'removed' ||
    (next.block.parentHash === block.hash &&
      next.block.tenant === block.tenant &&
      next.block.tokenIds.length === block.tokenIds.length &&
      next.block.hash !== block.hash)
  );
}
