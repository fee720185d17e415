/**
 * A publisher is killed, and another process answers at its address, whose numbers go on where the ones of before ended. What was
 * known of the first one is doubted until something says that it is there.
 */

import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { afterEach, expect, it } from 'vitest';
import { Publisher } from 'zeromq';
import { loadMessagePack, numberFrame, packBatch } from '../../../../src/serve/gateway/events/wire.ts';
import { CachePicture, type KVEventSubscription, subscribeKVEvents } from '../../../../src/serve/index.ts';
import { portOfOurOwn } from '../../../ports.ts';

interface Told {
  readonly number: string;
  readonly block: number;
}

const open: (() => unknown)[] = [];
afterEach(async () => {
  for (const close of open.splice(0).reverse()) await close();
});

const endpointOf = async (): Promise<string> => `tcp://127.0.0.1:${await portOfOurOwn()}`;

/** A publisher, and what it said last. */
class PublisherProcess {
  last: Told = { number: '0', block: -1 };
  readonly #child: ChildProcess;

  constructor(endpoint: string, replays: string, number: string, block: number) {
    this.#child = fork(join(import.meta.dirname, 'publisherProcess.ts'), [
      endpoint,
      replays,
      number,
      String(block),
    ]);
    this.#child.on('message', (told) => {
      this.last = told as Told;
    });
    open.push(() => this.kill());
  }

  async published(): Promise<void> {
    await once(this.#child, 'message');
  }

  async kill(): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    const ended = once(this.#child, 'close');
    this.#child.kill('SIGKILL');
    await ended;
  }
}

const tokensOf = (block: number): number[] => Array<number>(4).fill(block);

/** What a reader believes, as its news come. */
class Reader {
  readonly picture = new CachePicture();
  readonly reasons: string[] = [];
  /** Blocks that were told, in order. */
  readonly told: number[] = [];
  readonly #subscription: KVEventSubscription;

  constructor(subscription: KVEventSubscription) {
    this.#subscription = subscription;
    open.push(() => subscription.close());
  }

  knows(block: number): boolean {
    return this.picture.match(tokensOf(block)).blocks === 1;
  }

  /** Reads on until it holds. */
  async until(holds: () => boolean): Promise<void> {
    while (!holds()) {
      const { value } = await this.#subscription.next();
      for (const event of value.events) {
        if (event.type === 'cleared') this.reasons.push(event.reason);
        if (event.type === 'stored') this.told.push(event.tokenIds[0]);
      }
      this.picture.apply(value);
    }
  }
}

const FAR = 1_000_000;

it.each(['without replays', 'with replays', 'without replays, while the reader is busy'])(
  'is another one, though its numbers go on: %s',
  async (how) => {
    const endpoint = await endpointOf();
    const replayEndpoint = how === 'with replays' ? await endpointOf() : undefined;
    const first = new PublisherProcess(endpoint, replayEndpoint ?? '', '0', 0);
    await first.published();
    const reader = new Reader(await subscribeKVEvents({ endpoint, replayEndpoint }));
    await reader.until(() => reader.told.length > 5);
    expect(reader.told.every((block) => reader.knows(block))).toBe(true);
    const before = reader.reasons.length;
    await first.kill();
    const { number } = first.last;
    const second = new PublisherProcess(endpoint, replayEndpoint ?? '', number, FAR);
    await second.published();
    if (how.endsWith('busy')) {
      // all that has come meanwhile is there at once: old messages, the loss, and new messages
      const bell = new Int32Array(new SharedArrayBuffer(4));
      Atomics.wait(bell, 0, 0, 1000);
    }
    // some of what the first one said last may come yet
    await reader.until(() => (reader.told.at(-1) ?? 0) >= FAR && reader.knows(reader.told.at(-1) ?? 0));
    const { length } = reader.told;
    await reader.until(() => reader.reasons.length > before && reader.told.length > length);
    expect(reader.reasons.slice(before)).toContain('gap');
    const old = Array.from({ length: first.last.block + 1 }, (_, block) => block);
    expect(old.filter((block) => reader.knows(block))).toEqual([]);
    // from now on the second one is read as any other
    const newer = reader.told.length;
    await reader.until(() => reader.told.length > newer + 3);
    expect(reader.told.slice(newer).every((block) => reader.knows(block))).toBe(true);
    if (replayEndpoint !== undefined) expect(reader.knows(FAR)).toBe(true);
  },
);

it('has nothing of the first one behind the loss, however much of it waits in the socket', async () => {
  const endpoint = await endpointOf();
  const subscription = await subscribeKVEvents({ endpoint });
  open.push(() => subscription.close());
  const picture = new CachePicture();
  /** Blocks as they were told, and -1 where all were doubted. */
  const told: number[] = [];
  const reading = (async () => {
    for await (const batch of subscription) {
      picture.apply(batch);
      for (const event of batch.events) told.push(event.type === 'stored' ? event.tokenIds[0] : -1);
    }
  })();
  const pack = await loadMessagePack();
  let number = 0n;
  const say = async (socket: Publisher, block: number): Promise<void> => {
    const event = ['BlockStored', [BigInt(block + 1)], null, tokensOf(block), 4, null, 'GPU'];
    await socket.send(['', numberFrame(number++), packBatch(pack, 1, [event], 0)]);
  };
  const sayUntilTold = async (socket: Publisher, block: number): Promise<void> => {
    while (!told.includes(block)) {
      await say(socket, block);
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
  };
  const first = new Publisher({ linger: 0, sendHighWaterMark: 0 });
  await first.bind(endpoint);
  await sayUntilTold(first, 0);
  const losses = told.filter((block) => block === -1).length;
  // the connection ends while many of its messages have come and are not read
  for (let block = 1; block <= 5000; block++) await say(first, block);
  first.close();
  while (told.filter((block) => block === -1).length === losses)
    await new Promise((resolve) => setTimeout(resolve, 5));
  const second = new Publisher({ linger: 0 });
  open.push(() => second.close());
  await second.bind(endpoint);
  await sayUntilTold(second, FAR);
  const behind = told.slice(told.indexOf(-1, told.indexOf(0)));
  expect(behind.filter((block) => block !== -1 && block !== FAR)).toEqual([]);
  expect(
    told.filter((block) => block !== -1 && block !== FAR && picture.match(tokensOf(block)).blocks > 0),
  ).toEqual([]);
  await subscription.close();
  await reading;
});
