/**
 * A publisher is killed, and another process answers at its address, whose numbers go on where the ones of before ended. What was
 * known of the first one is doubted until something says that it is there.
 */

import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { afterEach, expect, it } from 'vitest';
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
