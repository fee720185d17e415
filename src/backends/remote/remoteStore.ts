/**
 * The tier on a shared Valkey or Redis. Its slots are a directory of what this process believes to lie there; the
 * bytes lie under names that every runtime with the same secret key, layout and generation derives alike
 * (sealedRecord.ts). So what one runtime wrote another one finds, and no state of the server is trusted or needed:
 *
 * - A record is written once, by the first runtime that comes, and never changed. Dropping a slot here removes nothing there.
 * - What has expired, was evicted by the server, or was never there is `missing`; what has no authenticator of ours
 *   is `corrupt`, and is removed so that the next write can mend it.
 * - A server that takes no writes, since it is full or we may not, is read all the same; writes are tried again later.
 * - A read or write ends by the deadline. A write that finds too many bytes under way is `refused` at once, so the
 *   memory of writes is bounded, and a request never waits for one.
 */

import type { PoolShape } from '../../runtime/tables/slotPool.ts';
import { Outcome, Tier } from '../../runtime/tier/tier.ts';
import {
  corrupt,
  type ItemEnded,
  loaded,
  refused,
  SlotLedger,
  SlotLocks,
  type SlotPlace,
  type StoreItem,
  type StoreResult,
  type TierStore,
} from '../../runtime/tier/tierStore.ts';
import { guarded } from '../guarded.ts';
import { runningClock } from '../runningClock.ts';
import type { ChainPart } from '../tierRow.ts';
import { Breaker } from './breaker.ts';
import { loadNativeCipher } from './nativeCipher.ts';
import { RemoteFault } from './remoteClient.ts';
import { RemoteLink } from './remoteLink.ts';
import { checkedOptions, type RemoteSettings, type RemoteStoreOptions } from './remoteOptions.ts';
import { HEADER_BYTES, RECORD_OVERHEAD_BYTES, RecordCodec, type SharedFacts } from './sealedRecord.ts';

/** The server's record of a block. */
interface SharedRecord extends SharedFacts {
  readonly key: Uint32Array;
  readonly sizeClass: number;
}

export class RemoteStore implements TierStore {
  readonly tier: Tier = Tier.REMOTE;
  readonly capacityBytes: number;
  readonly verifies: TierStore['verifies'] = { onWrite: false, onRead: true };
  readonly #shape: PoolShape;
  readonly #link: RemoteLink;
  readonly #codec: RecordCodec;
  readonly #settings: RemoteSettings;
  readonly #ledger: SlotLedger;
  readonly #locks: SlotLocks = new SlotLocks();
  /** Keys by slot: the four words of the key whose record it stands for. */
  #keys: Uint32Array = new Uint32Array(0);
  #underWay = 0;
  #onIdle: () => void = () => {};
  #writingBytes = 0;
  /** Whether the server takes writes. */
  readonly #writes: Breaker;
  #loading = { calls: 0, bytes: 0, sinceMs: 0 };
  #disposing: Promise<void> | undefined;
  readonly #counts = {
    lookups: 0,
    found: 0,
    loaded: 0,
    missing: 0,
    foreign: 0,
    written: 0,
    writtenByOthers: 0,
    refusedWrites: 0,
    faults: 0,
  };

  private constructor(
    shape: PoolShape,
    link: RemoteLink,
    codec: RecordCodec,
    settings: RemoteSettings,
    notice: (line: string) => void,
  ) {
    this.#shape = shape;
    this.#link = link;
    this.#codec = codec;
    this.#settings = settings;
    this.#ledger = new SlotLedger(shape);
    this.capacityBytes = shape.capacityBytes;
    let isTold = false;
    this.#writes = new Breaker(
      () => runningClock.nowMs(),
      (state, reason) => {
        if (state === 'open' && !isTold)
          notice(`remote: ${link.url.shown} takes no blocks for now: ${reason}`);
        else if (state === 'closed') notice(`remote: ${link.url.shown} takes blocks again`);
        if (state !== 'onTrial') isTold = state === 'open';
      },
    );
  }

  /**
   * Connects. A server that cannot be reached is left out, with a notice, and tried again later.
   * @throws TKV_CONFIG with the field at fault; where the server does not let us in, or is a server of another kind
   */
  static async open(shape: PoolShape, options: RemoteStoreOptions): Promise<RemoteStore> {
    const { url, identity, link, settings } = checkedOptions(shape, options);
    const notice = guarded(options.notice);
    const opened = await RemoteLink.open({
      ...link,
      url,
      changed: (state, reason) => {
        if (state === 'open') notice(`remote: ${url.shown} is left out: ${reason}`);
        else if (state === 'closed') notice(`remote: ${url.shown} is back`);
      },
    });
    const codec = new RecordCodec(identity, await loadNativeCipher());
    return new RemoteStore(shape, opened, codec, settings, notice);
  }

  describe(): Record<string, string | number | boolean> {
    const { breaker, url, connections } = this.#link;
    return {
      store: 'remote',
      url: url.shown,
      kind: url.kind,
      tls: url.tls,
      encrypted: this.#settings.encrypt,
      cipher: this.#codec.isNative ? 'native' : 'node',
      state: breaker.state,
      ...(breaker.reason === '' ? {} : { leftOutBecause: breaker.reason }),
      leftOut: breaker.openings,
      takesWrites: this.#writes.state !== 'open',
      connections,
      writingBytes: this.#writingBytes,
      ...this.#counts,
    };
  }

  /**
   * Records that the server has of each chain, from `from` on up to the first gap: one pipelined request for all. Empty
   * where the server is left out, or does not answer within `lookupMs`.
   */
  async lookup(chains: readonly ChainPart[]): Promise<SharedRecord[][]> {
    const parts = this.#within(chains);
    const names = parts.flatMap(({ keys, from, to }) =>
      Array.from({ length: to - from }, (_, i) => this.#codec.nameOf(keys, 4 * (from + i))),
    );
    if (names.length === 0 || this.#disposing !== undefined) return chains.map(() => []);
    this.#counts.lookups++;
    let heads: Uint8Array[];
    try {
      heads = await this.#link.call('small', this.#settings.lookupMs, (client) =>
        client.heads(names, HEADER_BYTES),
      );
    } catch (error) {
      this.#fault(error);
      return chains.map(() => []);
    }
    let at = 0;
    return parts.map(({ keys, from, to, sizeClass }) => {
      const found: SharedRecord[] = [];
      for (let i = from; i < to; i++) {
        const facts = this.#codec.openHeader(heads[at + i - from], keys, 4 * i);
        if ('fault' in facts || facts.payloadBytes !== this.#shape.slotBytes[sizeClass]) break;
        found.push({ ...facts, key: keys.slice(4 * i, 4 * i + 4), sizeClass });
      }
      at += to - from;
      this.#counts.found += found.length;
      return found;
    });
  }

  /** The slot stands for the record of `key` from now on: a lookup has found it. */
  believe(place: SlotPlace, key: Uint32Array): void {
    this.#ledger.take(place);
    this.#ledger.fill(place);
    this.#noteKey(place.slot, key);
  }

  write(items: readonly StoreItem[], ended?: ItemEnded): Promise<readonly StoreResult[]> {
    const flow = new ItemFlow(items, ended, () => this.#left());
    const good = items.flatMap((item, index) => (this.#enter('write', item, index, flow) ? [index] : []));
    void this.#writeAll(items, good, flow);
    return flow.results;
  }

  read(items: readonly StoreItem[], ended?: ItemEnded): Promise<readonly StoreResult[]> {
    const flow = new ItemFlow(items, ended, () => this.#left());
    items.forEach((item, index) => {
      if (!this.#enter('read', item, index, flow)) return;
      void this.#read(item).then((result) => {
        this.#locks.release(item.slot, 'read');
        flow.end(index, result);
      });
    });
    return flow.results;
  }

  [Symbol.asyncDispose](): Promise<void> {
    this.#disposing ??= new Promise((resolve) => {
      this.#onIdle = resolve;
      this.#link[Symbol.dispose]();
      if (this.#underWay === 0) resolve();
    });
    return this.#disposing;
  }

  // ---- items: each is checked against its place and locks its slot until it ends

  #enter(use: 'read' | 'write', item: StoreItem, index: number, flow: ItemFlow): boolean {
    this.#underWay++;
    const refusal = this.#refusal(use, item);
    if (refusal === undefined) {
      if (use === 'write') {
        this.#ledger.take(item);
        this.#noteKey(item.slot, item.key);
      }
      return true;
    }
    queueMicrotask(() => flow.end(index, refusal));
    return false;
  }

  #refusal(use: 'read' | 'write', item: StoreItem): StoreResult | undefined {
    if (this.#disposing !== undefined) return refused('the store is disposed');
    const busy = this.#ledger.misplaced(item) ?? this.#locks.take(item.slot, use);
    if (busy !== undefined) return busy;
    const problem = this.#placeFault(use, item);
    if (problem !== undefined) this.#locks.release(item.slot, use);
    return problem;
  }

  #placeFault(use: 'read' | 'write', item: StoreItem): StoreResult | undefined {
    const stale = use === 'write' ? this.#ledger.refuseWrite(item) : this.#ledger.refuseRead(item);
    if (stale !== undefined) return stale;
    const slotBytes = this.#shape.slotBytes[item.sizeClass];
    if (item.bytes.byteLength !== slotBytes) {
      return refused(`${item.bytes.byteLength} bytes for a slot of ${slotBytes}`);
    }
    if (use === 'write') return undefined;
    for (let i = 0; i < 4; i++) {
      if (this.#keys[4 * item.slot + i] !== item.key[i])
        return corrupt(`slot ${item.slot} holds another key`);
    }
    return undefined;
  }

  #left(): void {
    if (--this.#underWay === 0) this.#onIdle();
  }

  #noteKey(slot: number, key: Uint32Array): void {
    if (4 * slot + 4 > this.#keys.length) {
      const slots = Math.min(this.#shape.slotLimit, Math.max(slot + 1, this.#keys.length / 2, 256));
      const keys = new Uint32Array(4 * slots);
      keys.set(this.#keys);
      this.#keys = keys;
    }
    this.#keys.set(key.subarray(0, 4), 4 * slot);
  }

  // ---- reads

  async #read(item: StoreItem): Promise<StoreResult> {
    const name = this.#codec.nameOf(item.key);
    const loading = this.#loading;
    if (loading.calls++ === 0) {
      loading.sinceMs = runningClock.nowMs();
      loading.bytes = 0;
    }
    try {
      // one byte more than it has: a longer one is seen, and not fetched
      const bytes = item.bytes.byteLength + RECORD_OVERHEAD_BYTES + 1;
      const record = await this.#link.call('large', this.#settings.deadlineMs, (client) =>
        client.first(name, bytes),
      );
      if (this.#disposing !== undefined) return refused('the store is disposed');
      const result = await this.#take(name, record, item);
      if (result.outcome === Outcome.LOADED) loading.bytes += item.bytes.byteLength;
      return result;
    } catch (error) {
      return this.#fault(error);
    } finally {
      if (--loading.calls === 0 && loading.bytes > 0) {
        const ms = runningClock.nowMs() - loading.sinceMs;
        this.#link.breaker.loaded(ms, this.#settings.computeMs(loading.bytes));
      }
    }
  }

  async #take(name: string, record: Uint8Array, item: StoreItem): Promise<StoreResult> {
    const facts = await this.#codec.openBeside(record, item.key, item.bytes);
    if (!('fault' in facts)) {
      if (facts.digest.lo === item.digest.lo && facts.digest.hi === item.digest.hi) {
        this.#counts.loaded++;
        return loaded;
      }
      return corrupt('the record holds other bytes of this block, written by another runtime');
    }
    if (facts.fault === 'absent') {
      this.#counts.missing++;
      return { outcome: Outcome.MISSING, reason: facts.reason };
    }
    this.#counts.foreign++;
    await this.#link
      .call('small', this.#settings.deadlineMs, (client) => client.remove(name))
      .catch(() => {});
    return corrupt(`the record of the block is not to be trusted: ${facts.reason}`);
  }

  // ---- writes: one look at what is there already, then only what is not

  async #writeAll(items: readonly StoreItem[], good: readonly number[], flow: ItemFlow): Promise<void> {
    const end = (index: number, result: StoreResult): void => {
      const item = items[index];
      if (result.outcome === Outcome.LOADED) this.#ledger.fill(item);
      else this.#counts.refusedWrites++;
      this.#locks.release(item.slot, 'write');
      flow.end(index, result);
    };
    const admitted: number[] = [];
    let bytes = 0;
    for (const index of good) {
      const size = items[index].bytes.byteLength + RECORD_OVERHEAD_BYTES;
      if (this.#writingBytes + bytes + size <= this.#settings.writeBytesMax) {
        bytes += size;
        admitted.push(index);
      } else queueMicrotask(() => end(index, refused('too many bytes are being written to the server')));
    }
    if (admitted.length === 0) return;
    this.#writingBytes += bytes;
    const names = admitted.map((index) => this.#codec.nameOf(items[index].key));
    let heads: Uint8Array[];
    try {
      heads = await this.#link.call('small', this.#settings.deadlineMs, (client) =>
        client.heads(names, HEADER_BYTES),
      );
    } catch (error) {
      this.#writingBytes -= bytes;
      const result = this.#fault(error);
      for (const index of admitted) end(index, result);
      return;
    }
    admitted.forEach((index, i) => {
      const item = items[index];
      const size = item.bytes.byteLength + RECORD_OVERHEAD_BYTES;
      const done = (): void => {
        this.#writingBytes -= size;
      };
      void this.#writeOne(item, names[i], heads[i], done).then((result) => end(index, result));
    });
  }

  /** @param done called when the client holds the record's memory no more */
  async #writeOne(item: StoreItem, name: string, head: Uint8Array, done: () => void): Promise<StoreResult> {
    const there = this.#codec.openHeader(head, item.key);
    if (!('fault' in there)) {
      done();
      return this.#writtenByOther(there, item);
    }
    if (this.#disposing !== undefined) {
      done();
      return refused('the store is disposed');
    }
    const writes = this.#writes;
    if (!writes.allows()) {
      done();
      return refused(`the server takes no writes for now: ${writes.reason}`);
    }
    const { deadlineMs, expiryMs } = this.#settings;
    const isEmpty = head.byteLength === 0;
    const record = await this.#codec.sealBeside(item).catch((error: unknown) => String(error));
    if (typeof record === 'string') {
      writes.succeeded(); // the server was not asked
      done();
      return refused(`the record was not made: ${record}`);
    }
    try {
      let sent: Promise<unknown> = Promise.resolve();
      const answer = this.#link.call(
        'large',
        deadlineMs,
        (client) => {
          const setting = isEmpty
            ? client.setNew(name, record, expiryMs)
            : client.replace(name, record, expiryMs).then(() => true);
          sent = setting;
          return setting;
        },
        (fault) => fault.isRefusal,
      );
      const release = (): void => void sent.then(done, done);
      answer.then(release, release);
      const isWritten = await answer;
      writes.succeeded();
      if (isWritten) {
        this.#counts.written++;
        return loaded;
      }
      const [now] = await this.#link.call('small', deadlineMs, (client) =>
        client.heads([name], HEADER_BYTES),
      );
      const facts = this.#codec.openHeader(now, item.key);
      if (!('fault' in facts)) return this.#writtenByOther(facts, item);
      return refused(`another record came first: ${facts.reason}`);
    } catch (error) {
      // of any other fault the link keeps count
      if (error instanceof RemoteFault && error.isRefusal) writes.failed(error.message);
      else writes.succeeded();
      return this.#fault(error);
    }
  }

  #writtenByOther({ digest }: SharedFacts, item: StoreItem): StoreResult {
    if (digest.lo !== item.digest.lo || digest.hi !== item.digest.hi) {
      return refused('another runtime wrote other bytes of this block first');
    }
    this.#counts.writtenByOthers++;
    return loaded;
  }

  /** How an item ends with an error. One that is not the server's ends it too: what called must not wait for ever. */
  #fault(error: unknown): StoreResult {
    this.#counts.faults++;
    if (!(error instanceof RemoteFault)) return refused(`the record was not moved: ${String(error)}`);
    const outcome = error.kind === 'silent' ? Outcome.TIMED_OUT : Outcome.REFUSED;
    return { outcome, reason: `the server: ${error.message}` };
  }

  /** The chains, cut so that one request does not ask for more than it may. */
  #within(chains: readonly ChainPart[]): ChainPart[] {
    const each = Math.max(1, Math.floor(this.#settings.lookupBlocksMax / Math.max(1, chains.length)));
    return chains.map((part) => ({ ...part, to: Math.min(part.to, part.from + each) }));
  }
}

/** The items of one call: each ends once, and the promise is fulfilled with all results. */
class ItemFlow {
  readonly results: Promise<readonly StoreResult[]>;
  readonly #results: StoreResult[];
  readonly #ended: ItemEnded | undefined;
  readonly #left: () => void;
  #open: number;
  #resolve: (results: readonly StoreResult[]) => void = () => {};

  constructor(items: readonly StoreItem[], ended: ItemEnded | undefined, left: () => void) {
    this.#results = new Array(items.length);
    this.#ended = ended;
    this.#left = left;
    this.#open = items.length;
    this.results = new Promise((resolve) => {
      this.#resolve = resolve;
    });
    if (items.length === 0) this.#resolve([]);
  }

  end(index: number, result: StoreResult): void {
    this.#results[index] = result;
    this.#left();
    this.#ended?.(index, result);
    if (--this.#open === 0) this.#resolve(this.#results);
  }
}
