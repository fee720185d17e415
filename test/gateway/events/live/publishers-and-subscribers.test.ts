/** Publisher and subscriber over real sockets: late ones, lost ones, slow ones, and senders of garbage. */

import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { Dealer, Publisher, Router } from 'zeromq';
import type { CacheEvent } from '../../../../src/embed/observability.ts';
import { CachePicture } from '../../../../src/serve/gateway/events/cachePicture.ts';
import { type KVEventSource, publishKVEvents } from '../../../../src/serve/gateway/events/publisher.ts';
import {
  type KVEventSubscription,
  subscribeKVEvents,
} from '../../../../src/serve/gateway/events/subscriber.ts';
import type { KVEventBatch } from '../../../../src/serve/gateway/events/wire.ts';
import { loadMessagePack, numberFrame, packBatch } from '../../../../src/serve/gateway/events/wire.ts';
import { portOfOurOwn } from '../../../ports.ts';

const pack = await loadMessagePack();
const open: { close(): unknown }[] = [];
afterEach(async () => {
  for (const one of open.splice(0).reverse()) await one.close();
});
function kept<T extends { close(): unknown }>(one: T): T {
  open.push(one);
  return one;
}

const until = async (holds: () => boolean): Promise<void> => {
  while (!holds()) await sleep(5);
};

/** A runtime's events, told by the test: a chain of blocks in tiers. */
class ToldSource implements KVEventSource {
  #number = 0;
  #waiting: CacheEvent[] = [];
  #wake: () => void = () => {};
  #ended = false;
  readonly #state: Map<string, CacheEvent> = new Map();

  stored(block: number, tier: 'hbm' | 'ddr' | 'nvme' = 'hbm'): void {
    const key = (n: number): string => (n + 1).toString(16).padStart(32, '0');
    const event: CacheEvent = {
      type: 'stored',
      number: ++this.#number,
      tier,
      key: key(block),
      parent: block === 0 ? null : key(block - 1),
      tokens: 4,
      bytes: 1,
      tokenIds: Uint32Array.of(block, block, block, block),
      tenant: 'alice',
      group: 0,
    };
    this.#state.set(`${tier} ${block}`, event);
    this.#tell(event);
  }

  removed(block: number, tier: 'hbm' | 'ddr' | 'nvme' = 'hbm'): void {
    this.#state.delete(`${tier} ${block}`);
    const key = (block + 1).toString(16).padStart(32, '0');
    this.#tell({ type: 'removed', number: ++this.#number, tier, key });
  }

  /** Events that a slow reader does not get. */
  lose(count: number): void {
    this.#number += count;
  }

  events(): AsyncIterableIterator<CacheEvent> {
    const number = this.#number;
    this.#waiting = [...this.#state.values()].map((event) => ({ ...event, number }));
    const wake = (): void => this.#wake();
    let isOver = false;
    const next = async (): Promise<IteratorResult<CacheEvent>> => {
      while (this.#waiting.length === 0 && !this.#ended && !isOver) {
        await new Promise<void>((woken) => {
          this.#wake = woken;
        });
      }
      const event = isOver ? undefined : this.#waiting.shift();
      return event === undefined ? { done: true, value: undefined } : { done: false, value: event };
    };
    return {
      next,
      return: () => {
        isOver = true;
        wake();
        return Promise.resolve({ done: true, value: undefined });
      },
      [Symbol.asyncIterator]() {
        return this;
      },
    };
  }

  close(): void {
    this.#ended = true;
    this.#wake();
  }

  #tell(event: CacheEvent): void {
    this.#waiting.push(event);
    this.#wake();
  }
}

const ownEndpoint = async (): Promise<string> => `tcp://127.0.0.1:${await portOfOurOwn()}`;

const tokensOf = (blocks: number): number[] =>
  Array.from({ length: blocks * 4 }, (_, i) => Math.floor(i / 4));

async function published(source: ToldSource, more: object = {}) {
  kept(source);
  return kept(
    await publishKVEvents(source, {
      endpoint: 'tcp://127.0.0.1:*',
      replayEndpoint: 'tcp://127.0.0.1:*',
      heartbeatMs: 20,
      ...more,
    }),
  );
}

function following(subscription: KVEventSubscription): { picture: CachePicture; batches: KVEventBatch[] } {
  const followed = { picture: new CachePicture(), batches: [] as KVEventBatch[] };
  void (async () => {
    for await (const batch of subscription) {
      followed.batches.push(batch);
      followed.picture.apply(batch);
    }
  })();
  return followed;
}

const matched = (picture: CachePicture, blocks = 20): number =>
  picture.match(tokensOf(blocks), { salt: 'alice' }).blocks;

describe('a subscriber', () => {
  it.each(['maps', 'arrays'] as const)(
    'that comes late gets the state, then what happens (%s)',
    async (encoding) => {
      const source = new ToldSource();
      for (let block = 0; block < 8; block++) source.stored(block);
      const publisher = await published(source, { encoding, topic: 'kv@10.0.0.1:8000@m' });
      const subscription = kept(
        await subscribeKVEvents({
          endpoint: publisher.endpoint,
          replayEndpoint: publisher.replayEndpoint,
          topic: 'kv@',
        }),
      );
      const { picture, batches } = following(subscription);
      await until(() => matched(picture) === 8);
      source.stored(8);
      source.stored(9, 'nvme');
      await until(() => matched(picture) === 10);
      expect(picture.match(tokensOf(20), { salt: 'alice' }).byMedium).toEqual({ GPU: 9 });
      source.removed(0);
      await until(() => matched(picture) === 0);
      expect(batches.at(-1)?.topic).toBe('kv@10.0.0.1:8000@m');
      source.close(); // the runtime closes: all routers know at once
      await until(() => batches.at(-1)?.events[0]?.type === 'cleared' || picture.blocks.GPU === undefined);
      expect(publisher.counts).toMatchObject({ blocks: 0, garbage: 0, overflows: 0 });
    },
  );

  it('that was connected to a publisher before sees numbers grow over its restart, and begins anew', async () => {
    const source = new ToldSource();
    source.stored(0);
    source.stored(1);
    const [endpoint, replayEndpoint] = [await ownEndpoint(), await ownEndpoint()];
    const first = await published(source, { endpoint, replayEndpoint });
    const { picture, batches } = following(kept(await subscribeKVEvents({ endpoint, replayEndpoint })));
    await until(() => matched(picture) === 2);
    const { lastNumber } = first.counts;
    await first.close();
    // what has closed has let its address go, however often: ZeroMQ does so in a thread of its own
    for (let i = 0; i < 30; i++)
      await (await published(new ToldSource(), { endpoint, replayEndpoint })).close();
    const again = new ToldSource();
    again.stored(0);
    const second = await published(again, { endpoint, replayEndpoint });
    await until(() => matched(picture) === 1 && second.counts.lastNumber === batches.at(-1)?.number);
    expect(second.counts.lastNumber).toBeGreaterThan(lastNumber);
  });

  it('that reads too slowly loses what waits, is told, and gets the state', async () => {
    const source = new ToldSource();
    const publisher = await published(source);
    const { endpoint, replayEndpoint } = publisher;
    const subscription = kept(await subscribeKVEvents({ endpoint, replayEndpoint, capacity: 8 }));
    await until(() => subscription.counts.replays > 0 && subscription.counts.lastNumber !== null);
    for (let block = 0; block < 30; block++) {
      source.stored(block);
      await publisher.flushed();
    }
    await until(() => subscription.counts.overflows > 0);
    expect(subscription.counts.waitingBlocks).toBeLessThanOrEqual(8);
    const { picture, batches } = following(subscription);
    await until(() => matched(picture, 30) === 30);
    const reasons = batches.flatMap(({ events }) =>
      events.flatMap((one) => (one.type === 'cleared' ? [one.reason] : [])),
    );
    expect(reasons).toContain('overflow');
  });

  it('counts garbage and goes on', async () => {
    const socket = kept(new Publisher({ linger: 0 }));
    await socket.bind('tcp://127.0.0.1:*');
    const subscription = kept(await subscribeKVEvents({ endpoint: socket.lastEndpoint as string }));
    const { batches } = following(subscription);
    const good = (number: bigint): Promise<void> =>
      socket.send(['', numberFrame(number), packBatch(pack, 1.5, [], 0)]);
    while (batches.length === 0) {
      await good(0n);
      await sleep(5);
    }
    await socket.send('one frame');
    await socket.send(['', 'seven b', 'x']);
    await socket.send(['', numberFrame(1n), 'not MessagePack']);
    await socket.send(['', numberFrame(1n), pack.pack([1.5, [{ type: 'BlockStored' }], 0])]);
    await good(1n);
    await until(() => batches.some(({ number }) => number === 1n));
    expect(subscription.counts.garbage).toBe(4);
    expect(subscription.counts.lastGarbage).toContain('block_hashes');
  });

  it('gives a replay up that does not come, goes on live, and asks again', async () => {
    const socket = kept(new Publisher({ linger: 0 }));
    await socket.bind('tcp://127.0.0.1:*');
    const router = kept(new Router({ linger: 0 }));
    await router.bind('tcp://127.0.0.1:*');
    const asked: bigint[] = [];
    void (async () => {
      for await (const [, , number] of router) asked.push(number.readBigUInt64BE());
    })();
    const subscription = kept(
      await subscribeKVEvents({
        endpoint: socket.lastEndpoint as string,
        replayEndpoint: router.lastEndpoint as string,
        replayTimeoutMs: 30,
      }),
    );
    const { batches } = following(subscription);
    for (let number = 5n; batches.length === 0; number++) {
      await socket.send(['', numberFrame(number), packBatch(pack, 1.5, [], 0)]);
      await sleep(5);
    }
    await until(() => asked.length > 2);
    expect(subscription.counts.replaysFailed).toBeGreaterThan(0);
  });
});

/** The replies to one request, in vLLM's protocol. */
async function asked(endpoint: string, from: bigint): Promise<readonly (readonly Buffer[])[]> {
  const socket = new Dealer({ linger: 0 });
  socket.connect(endpoint);
  await socket.send(['', numberFrame(from)]);
  const replies: Buffer[][] = [];
  for (;;) {
    const frames = await socket.receive();
    if (frames[3].byteLength === 0) {
      expect(frames.map((frame) => frame.toString('hex'))).toEqual(['', '', 'f'.repeat(16), '']);
      socket.close();
      return replies;
    }
    replies.push(frames);
  }
}

describe('a publisher', () => {
  it('answers what it keeps in the numbers asked for, and what is gone by the state up to the last number', async () => {
    const source = new ToldSource();
    const publisher = await published(source, {
      keepBatches: 3,
      heartbeatMs: 0,
      firstNumber: 100n,
      topic: 't',
    });
    for (let block = 0; block < 10; block++) {
      source.stored(block);
      await publisher.flushed();
    }
    const { lastNumber } = publisher.counts;
    expect(lastNumber, 'cleared, and one a block').toBe(110n);
    const endpoint = publisher.replayEndpoint as string;
    const numbersFrom = async (from: bigint): Promise<bigint[]> =>
      (await asked(endpoint, from)).map((frames) => frames[2].readBigUInt64BE());
    expect(await numbersFrom(109n)).toEqual([109n, 110n]);
    expect(await numbersFrom(111n), 'nothing yet').toEqual([]);
    for (const gone of [0n, 1n, 105n]) {
      const replies = await asked(endpoint, gone);
      expect(replies.map((frames) => frames[2].readBigUInt64BE())).toEqual([110n]);
      const [, , number, payload] = replies[0];
      const { readBatch } = await import('../../../../src/serve/gateway/events/wire.ts');
      const { events } = readBatch(pack, '', number.readBigUInt64BE(), payload);
      expect(events[0].type).toBe('cleared');
      expect(events.slice(1)).toMatchObject([
        { type: 'stored', tokenIds: tokensOf(10), parent: null, salt: 'alice' },
      ]);
      expect(replies[0][1].toString()).toBe('t');
    }
    expect(publisher.counts).toMatchObject({ replays: 5, states: 3 });
  });

  it('leaves messages out that are not requests, and serves the next one', async () => {
    const publisher = await published(new ToldSource());
    const socket = kept(new Dealer({ linger: 0 }));
    socket.connect(publisher.replayEndpoint as string);
    await socket.send('x');
    await socket.send(['', 'short']);
    await socket.send(['', numberFrame(0n), 'more']);
    await until(() => publisher.counts.garbage === 3);
    expect(await asked(publisher.replayEndpoint as string, 0n)).toHaveLength(1);
  });

  it('gives a replay up whose asker is gone', async () => {
    const source = new ToldSource();
    const publisher = await published(source);
    for (let round = 0; round < 20; round++) {
      const socket = new Dealer({ linger: 0 });
      socket.connect(publisher.replayEndpoint as string);
      await socket.send(['', numberFrame(0n)]);
      await sleep(round % 3);
      socket.close();
    }
    expect(await asked(publisher.replayEndpoint as string, 0n)).toHaveLength(1);
  });

  it('tells all anew when the events of its runtime came too fast', async () => {
    const source = new ToldSource();
    const publisher = await published(source);
    const { endpoint, replayEndpoint } = publisher;
    const { picture } = following(kept(await subscribeKVEvents({ endpoint, replayEndpoint })));
    source.stored(0);
    await until(() => matched(picture) === 1);
    source.lose(5);
    source.stored(1);
    await until(() => publisher.counts.overflows === 1 && matched(picture) === 2);
  });

  it('says that it is there while nothing happens, also when the clock is set back', async () => {
    const publisher = await published(new ToldSource(), { heartbeatMs: 10 });
    const hourAgo = Date.now() - 3_600_000;
    const clock = vi.spyOn(Date, 'now').mockImplementation(() => hourAgo);
    try {
      const { batches } = publisher.counts;
      await until(() => publisher.counts.batches > batches + 2);
    } finally {
      clock.mockRestore();
    }
  });

  it('goes on where the function of salts fails, and lets no router find those blocks', async () => {
    const thrown = (): never => {
      throw new Error('of the caller');
    };
    for (const salt of [thrown, () => undefined as never, () => 7 as never]) {
      const source = new ToldSource();
      const publisher = await published(source, { salt });
      const { endpoint, replayEndpoint } = publisher;
      const { picture, batches } = following(kept(await subscribeKVEvents({ endpoint, replayEndpoint })));
      source.stored(0);
      await until(() => picture.blocks.GPU === 1);
      expect(picture.match(tokensOf(1), {}).blocks).toBe(0);
      expect(matched(picture)).toBe(0);
      expect(batches.length).toBeGreaterThan(0);
    }
  });

  it('is not stopped by a subscriber that takes nothing', async () => {
    const source = new ToldSource();
    const publisher = await published(source, { queueMessages: 10, heartbeatMs: 0 });
    const stalled = kept(
      await import('zeromq').then(({ Subscriber }) => new Subscriber({ linger: 0, receiveHighWaterMark: 1 })),
    );
    stalled.connect(publisher.endpoint);
    stalled.subscribe();
    for (let round = 0; round < 3000; round++) {
      source.stored(0);
      source.removed(0);
      if (round % 10 === 0) await publisher.flushed();
    }
    source.stored(0);
    await publisher.flushed();
    const { picture } = following(
      kept(
        await subscribeKVEvents({ endpoint: publisher.endpoint, replayEndpoint: publisher.replayEndpoint }),
      ),
    );
    await until(() => matched(picture) === 1);
  });
});

describe('mistakes', () => {
  const source = new ToldSource();
  it.each<[string, object, string]>([
    ['an address without a port', { endpoint: 'tcp://127.0.0.1' }, 'endpoint'],
    ['an address of another kind', { endpoint: 'http://127.0.0.1:1' }, 'endpoint'],
    ['an unknown option', { endpoint: 'tcp://127.0.0.1:*', topics: 'x' }, 'topics'],
    ['an encoding that is not known', { endpoint: 'tcp://127.0.0.1:*', encoding: 'map' }, 'encoding'],
    ['a medium without a name', { endpoint: 'tcp://127.0.0.1:*', mediums: { nvme: '' } }, 'mediums.nvme'],
    [
      'a tier that is not known',
      { endpoint: 'tcp://127.0.0.1:*', mediums: { disk: 'DISK' } },
      'mediums.disk',
    ],
    ['a first number that may go back', { endpoint: 'tcp://127.0.0.1:*', firstNumber: 0n }, 'firstNumber'],
    ['an address of another machine', { endpoint: 'tcp://192.0.2.1:5557' }, 'endpoint'],
  ])('of a publisher name the option: %s', async (_, options, field) => {
    await expect(publishKVEvents(source, options as never)).rejects.toMatchObject({
      code: 'TKV_CONFIG',
      field,
    });
  });

  it('of a subscription name the option', async () => {
    const endpoint = 'tcp://127.0.0.1:1';
    for (const [options, field] of [
      [{}, 'endpoint'],
      [{ endpoint, replayEndpoint: 'x' }, 'replayEndpoint'],
      [{ endpoint, topic: 5 }, 'topic'],
      [{ endpoint, capacity: 0 }, 'capacity'],
      [{ endpoint, replay: 'x' }, 'replay'],
    ] as const) {
      await expect(subscribeKVEvents(options as never)).rejects.toMatchObject({ code: 'TKV_CONFIG', field });
    }
  });

  it('of an address that is taken leave nothing open', async () => {
    const first = await published(new ToldSource());
    const taken = { endpoint: 'tcp://127.0.0.1:*', replayEndpoint: first.endpoint };
    await expect(publishKVEvents(new ToldSource(), taken)).rejects.toMatchObject({
      code: 'TKV_CONFIG',
      field: 'replayEndpoint',
    });
  });
});
