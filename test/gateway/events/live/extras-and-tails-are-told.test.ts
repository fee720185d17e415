/** Blocks that tokens alone do not name, from a runtime over real sockets into a picture: adapters, images, tails. */

import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, describe, expect, it } from 'vitest';
import type { KVRuntime } from '../../../../src/index.ts';
import { blake2s, type RequestExtras } from '../../../../src/runtime/index.ts';
import { CachePicture } from '../../../../src/serve/gateway/events/cachePicture.ts';
import { type KVPublisherOptions, publishKVEvents } from '../../../../src/serve/gateway/events/publisher.ts';
import { subscribeKVEvents } from '../../../../src/serve/gateway/events/subscriber.ts';
import type { KVEventBatch } from '../../../../src/serve/gateway/events/wire.ts';
import { layout, openHostRuntime, prompt, promptBlocks, write } from '../../../embed/liveRuntime.ts';

const open: AsyncDisposable[] = [];
afterEach(async () => {
  for (const one of open.splice(0).reverse()) await one[Symbol.asyncDispose]();
});

const { blockTokens } = layout;
const tenant = 'alice';
const image = new Uint8Array(32).fill(0xab);
const imageHash = 'ab'.repeat(32);

async function compute(kv: KVRuntime, seed: number, extras?: RequestExtras, tail = false): Promise<void> {
  const sequence = await kv.begin(prompt(seed), { tenant, ...(extras && { extras }) });
  write(kv, sequence, seed);
  await kv.seal(sequence, { tail });
  kv.release(sequence);
}

/** What a subscriber knows once all that was published has come, and the messages it had. */
async function picture(kv: KVRuntime, options: Partial<KVPublisherOptions> = {}) {
  const publisher = await publishKVEvents(kv, {
    endpoint: 'tcp://127.0.0.1:*',
    replayEndpoint: 'tcp://127.0.0.1:*',
    ...options,
  });
  open.push(publisher);
  await publisher.flushed();
  const { endpoint, replayEndpoint } = publisher;
  const subscription = await subscribeKVEvents({ endpoint, replayEndpoint });
  open.push(subscription);
  const seen = new CachePicture();
  const batches: KVEventBatch[] = [];
  const { lastNumber } = publisher.counts;
  while (batches.every(({ number }) => number < lastNumber)) {
    const { value } = await subscription.next();
    batches.push(value);
    seen.apply(value);
    await sleep(0);
  }
  const stored = batches.flatMap(({ events }) =>
    events.flatMap((one) => (one.type === 'stored' ? [one] : [])),
  );
  return { seen, stored, publisher };
}

async function runtime(): Promise<KVRuntime> {
  const kv = await openHostRuntime({ tokenIds: true });
  open.push(kv);
  return kv;
}

const ids = (seed: number): number[] => [...prompt(seed)];

describe.each(['maps', 'arrays'] as const)('events as %s', (encoding) => {
  it('name the adapter of a block as vLLM does, and nothing of it is found without', async () => {
    const kv = await runtime();
    await compute(kv, 1, { adapter: 'sql-7' });
    await compute(kv, 2);
    const { seen, stored } = await picture(kv, { encoding });
    const named = stored.filter(({ loraName }) => loraName === 'sql-7');
    expect(named.flatMap(({ hashes }) => hashes)).toHaveLength(promptBlocks);
    expect(named[0].extraKeys?.map((keys) => keys?.[0])).toEqual(Array(promptBlocks).fill('sql-7'));
    expect(named[0].salt).toBe('alice');
    const find = (seed: number, loraName?: string) =>
      seen.match(ids(seed), { salt: tenant, loraName }).blocks;
    expect([find(1, 'sql-7'), find(1), find(2), find(2, 'sql-7')]).toEqual([
      promptBlocks,
      0,
      promptBlocks,
      0,
    ]);
  });

  it('name an image at the block that it begins in; blocks behind it are found with it alone', async () => {
    const kv = await runtime();
    await compute(kv, 1, { image: { value: image, fromToken: blockTokens + 3 } });
    const { seen, stored } = await picture(kv, { encoding });
    const keys = stored.flatMap(({ extraKeys, hashes }) => extraKeys ?? hashes.map(() => null));
    expect(keys.filter((one) => one?.some(Array.isArray))).toEqual([[[imageHash, 3]]]);
    expect(seen.match(ids(1), { salt: tenant }).blocks, 'what lies before it').toBe(1);
    const extraKeys = [null, [[imageHash, 3]]];
    expect(seen.match(ids(1), { salt: tenant, extraKeys }).blocks).toBe(promptBlocks);
    expect(seen.match(ids(1), { salt: tenant, extraKeys: [null, [[imageHash, 4]]] }).blocks).toBe(1);
  });
});

it('an extra in plain text is named by one of its name and value', async () => {
  const kv = await runtime();
  await compute(kv, 1, { mode: 'draft' });
  const { stored } = await picture(kv);
  const named = blake2s(new TextEncoder().encode(JSON.stringify(['mode', 'draft'])));
  expect(stored[0].extraKeys?.[0]).toEqual([[Buffer.from(named).toString('hex'), 0], 'alice']);
});

it('a partial last block is told where that is wanted, and counted where not', async () => {
  const kv = await runtime();
  await compute(kv, 1, undefined, true);
  const whole = promptBlocks * blockTokens;
  const without = await picture(kv);
  expect(without.publisher.counts).toMatchObject({ blocks: promptBlocks, nameless: 1 });
  expect(without.seen.match(ids(1), { salt: tenant }).tokens).toBe(whole);
  const { seen, stored, publisher } = await picture(kv, { tails: true });
  expect(publisher.counts).toMatchObject({ blocks: promptBlocks + 1, nameless: 0 });
  expect(stored.at(-1)).toMatchObject({ blockTokens: 1, tokenIds: [prompt(1)[whole]] });
  expect(seen.match(ids(1), { salt: tenant })).toMatchObject({ blocks: promptBlocks, tokens: whole + 1 });
  expect(seen.match([...ids(1).slice(0, -1), 5], { salt: tenant }).tokens).toBe(whole);
});
