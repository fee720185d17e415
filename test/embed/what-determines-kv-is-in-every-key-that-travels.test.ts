/**
 * The same property as beside this file (docs/reference/identity.md) at the doors that lead to other processes and tiers of bytes:
 * hand-off, the shared tier, KV events, the gateway's keys, TieredKVStorage. What differs in one thing alone finds nothing.
 */

import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { KVRuntime, type KVRuntimeConfig } from '../../src/index.ts';
import { Granularity } from '../../src/runtime/geometry/box.ts';
import { kvLayout } from '../../src/runtime/index.ts';
import type { KVBlocksStored } from '../../src/serve/gateway/events/wire.ts';
import {
  CachePicture,
  HandoffReceiver,
  HandoffSender,
  type KVEventBatch,
  publishKVEvents,
  subscribeKVEvents,
} from '../../src/serve/index.ts';
import { answer, gatewayOf, TestBackend } from '../gateway/live/backends.ts';
import { bundleOf } from '../gateway/recordedRun.ts';
import { passedOn, patient } from '../handoff/pair.ts';
import { hasRedis, RedisServer } from '../redisServer.ts';
import { type Asked, base, changes, tokens, whole } from './identityChanges.ts';
import { blocks, layout, openHostRuntime } from './liveRuntime.ts';
import { allLayers, dataOf, openStorage } from './tiered/liveStorage.ts';

const { blockTokens } = layout;
const open: AsyncDisposable[] = [];
afterEach(async () => {
  for (const one of open.splice(0).reverse()) await one[Symbol.asyncDispose]();
});
const kept = <T extends AsyncDisposable>(one: T): T => {
  open.push(one);
  return one;
};

const settings = { layout, model: 'test@1', secretKey: new Uint8Array(32).fill(7), tokenIds: true };
const runtime = async (config: Partial<KVRuntimeConfig> = {}): Promise<KVRuntime> =>
  kept(await openHostRuntime({ ddrBytes: blocks(64), tokenIds: true, ...config }));

const saidOf = ({ tenant, extras }: Asked): Omit<Asked, 'tokens'> => ({ tenant, extras });

/** Computes what is not found. @returns blocks that were found */
async function compute(kv: KVRuntime, { tokens: list, tenant, extras }: Asked): Promise<number> {
  const sequence = await kv.begin(list, { tenant, extras });
  const found = Math.floor(sequence.cachedTokens / blockTokens);
  for (const { index } of kv.openBlocks(sequence)) kv.writeBlock(sequence, index, (block) => block.fill(1));
  await kv.seal(sequence);
  kv.release(sequence);
  return found;
}

/** Settings of a runtime under which nothing of another one's is found. */
const others: readonly (readonly [what: string, config: Partial<KVRuntimeConfig>])[] = [
  ['the model', { model: 'test@2' }],
  ['the secret', { secretKey: new Uint8Array(32).fill(8) }],
  ['an extra of the runtime', { extras: { rope: 'yarn' } }],
  ['the epoch', { epoch: 1 }],
  ['the precision', { layout: kvLayout({ layers: 2, kvHeads: 2, headDim: 64, dtype: 'bf16', blockTokens }) }],
  ['the layers', { layout: kvLayout({ layers: 1, kvHeads: 4, headDim: 64, dtype: 'f16', blockTokens }) }],
];

describe('hand-off', () => {
  interface Sides {
    readonly sender: HandoffSender;
    readonly receive: (asked: Asked, kv: KVRuntime) => Promise<[outcome: string, found: number]>;
  }
  async function sides(): Promise<Sides> {
    const prefill = await runtime();
    const sender = kept(await HandoffSender.open(prefill, { listen: {} }));
    await compute(prefill, base);
    const receive: Sides['receive'] = async (one, kv) => {
      const offer = await sender.offer(base.tokens, saidOf(base));
      offer.computed();
      await using receiver = new HandoffReceiver(kv, patient);
      const { outcome } = await receiver.receive(passedOn(offer), one.tokens, saidOf(one));
      return [outcome, kv.lookup(one.tokens, saidOf(one)).blocks];
    };
    return { sender, receive };
  }

  it.each(changes)('%s', async (_, one) => {
    const { receive } = await sides();
    const decode = await runtime();
    expect(await receive(one, decode)).toEqual(['stale', 0]);
    expect(await receive(base, decode), 'the control').toEqual(['taken', whole]);
  });

  it.each(others)('%s of the decode side', async (_, config) => {
    const { receive } = await sides();
    const [outcome, found] = await receive(base, await runtime(config));
    expect([['foreign', 'stale', 'refused'].includes(outcome), found]).toEqual([true, 0]);
    expect(await receive(base, await runtime()), 'the control').toEqual(['taken', whole]);
  });
});

describe.runIf(hasRedis)('the shared tier', () => {
  let server: RedisServer;
  beforeAll(async () => {
    server = await RedisServer.start();
  });
  afterAll(() => server.kill());
  const remote = (): KVRuntimeConfig['remote'] => ({
    url: server.url,
    bytes: blocks(400),
    deadlineMs: 60_000,
    lookupMs: 60_000,
    connectMs: 60_000,
  });
  const written = async (): Promise<void> => {
    const client = server.client();
    await client.flushall();
    client.disconnect();
    // without a threshold: what others may read is written at once
    const { layout: shape, model, secretKey, tokenIds } = settings;
    const one = kept(
      await KVRuntime.open({
        layout: shape,
        model,
        secretKey,
        tokenIds,
        ddrBytes: blocks(64),
        remote: remote(),
      }),
    );
    expect(await compute(one, base)).toBe(0);
    await one.idle();
    expect(one.describe().remote).toMatchObject({ written: whole });
  };

  it.each(changes)('%s', async (_, one, shared) => {
    await written();
    expect(await compute(await runtime({ remote: remote() }), one)).toBe(shared);
    expect(await compute(await runtime({ remote: remote() }), base), 'the control').toBe(whole);
  });

  it.each(others)('%s of the one who asks', async (_, config) => {
    await written();
    expect(await compute(await runtime({ remote: remote(), ...config }), base)).toBe(0);
    expect(await compute(await runtime({ remote: remote() }), base), 'the control').toBe(whole);
  });
});

describe('KV events', () => {
  /** What a subscriber reads of a runtime, and the full blocks that it was told of, from the first on. */
  async function told(kv: KVRuntime): Promise<{ seen: CachePicture; chain: KVBlocksStored[] }> {
    const endpoints = { endpoint: 'tcp://127.0.0.1:*', replayEndpoint: 'tcp://127.0.0.1:*' };
    const publisher = kept(await publishKVEvents(kv, endpoints));
    await publisher.flushed();
    const { endpoint, replayEndpoint, counts } = publisher;
    const subscription = kept(await subscribeKVEvents({ endpoint, replayEndpoint }));
    const seen = new CachePicture();
    const batches: KVEventBatch[] = [];
    while (batches.every(({ number }) => number < counts.lastNumber)) {
      const { value } = await subscription.next();
      batches.push(value);
      seen.apply(value);
    }
    const each = batches.flatMap(({ events }) =>
      events.flatMap((event) =>
        event.type !== 'stored'
          ? []
          : event.hashes.map((hash, i) => ({
              ...event,
              hashes: [hash],
              parent: i === 0 ? event.parent : event.hashes[i - 1],
              tokenIds: event.tokenIds.slice(i * event.blockTokens, (i + 1) * event.blockTokens),
              extraKeys: event.extraKeys === null ? null : [event.extraKeys[i]],
            })),
      ),
    );
    const chain: KVBlocksStored[] = [];
    for (;;) {
      const parent = chain.at(-1)?.hashes[0] ?? null;
      const next = each.find((block) => block.parent === parent && block.tokenIds.length === blockTokens);
      if (next === undefined) return { seen, chain };
      chain.push(next);
    }
  }

  it.each(changes)('%s', async (_, one, shared) => {
    const kv = await runtime();
    await compute(kv, base);
    const known = await told(kv);
    const other = await runtime();
    await compute(other, one);
    const { chain } = await told(other);
    expect(chain.length).toBeGreaterThanOrEqual(whole);
    // by hashes as names
    const isShared = (block: KVBlocksStored, i: number): boolean =>
      block.hashes[0] === known.chain[i]?.hashes[0];
    expect(chain.filter(isShared)).toHaveLength(shared);
    // by what is told beside them, hashed anew
    const match = (of: readonly KVBlocksStored[]): number =>
      known.seen.match(
        of.flatMap(({ tokenIds }) => tokenIds),
        {
          salt: of[0].salt,
          loraName: of[0].loraName,
          extraKeys: of.map(({ extraKeys }) => extraKeys?.[0] ?? null),
        },
      ).blocks;
    expect(match(chain)).toBe(shared);
    expect(match(known.chain), 'the control').toBe(whole);
  });
});

describe("the gateway's keys, by which prefixes are remembered where they were sent", () => {
  const folder = mkdtempSync(join(tmpdir(), 'tierkv-keys-'));
  afterAll(() => rmSync(folder, { recursive: true }));
  const byPrefix = bundleOf({
    routing: {
      type: 'parameterized',
      template: 'weighted',
      parameters: { scorers: { 'prefix-affinity': 1 } },
    },
  });
  const prompt = Array.from(tokens);
  const first = { key: 'key-a', path: '/v1/completions', body: { model: 'sql', prompt, cache_salt: 's' } };
  const words = changes
    .filter(([, one]) => one.extras === base.extras && one.tenant === base.tenant)
    .map(([what, one, shared]) => [
      what,
      { ...first, body: { ...first.body, prompt: Array.from(one.tokens) } },
      shared,
    ]);
  const ways = [
    ...words,
    ['the tenant', { ...first, key: 'key-b' }, 0],
    ['another adapter', { ...first, body: { ...first.body, model: 'sqm' } }, 0],
    ['the model without an adapter', { ...first, body: { ...first.body, model: 'm' } }, 0],
    ['another salt', { ...first, body: { ...first.body, cache_salt: 't' } }, 0],
    ['no salt', { ...first, body: { model: 'sql', prompt } }, 0],
    ['the same as text', { ...first, body: { ...first.body, prompt: prompt.join(' ') } }, 0],
    ['another kind of call', { ...first, path: '/v1/embeddings' }, 0],
  ] as unknown as readonly [string, typeof first, number][];

  it.each(ways)('%s', async (what, way, shared) => {
    const name = what.replaceAll(/\W/g, '-');
    const [trace, log] = ['trace', 'log'].map((kind) => join(folder, `${name}.${kind}`));
    await using backend = await TestBackend.open((_, response) => void response.end(answer('x')));
    backend.models = { data: [{ id: 'm' }, { id: 'sql', parent: 'm' }, { id: 'sqm', parent: 'm' }] };
    {
      const tenants = new Map([
        ['key-a', 'a'],
        ['key-b', 'b'],
      ]);
      await using gateway = await gatewayOf([backend], {
        trace,
        log,
        tenants,
        tenantsApart: true,
        policy: byPrefix,
      });
      for (const { key, path, body } of [first, first, way, first]) {
        const headers = { authorization: `Bearer ${key}`, 'content-type': 'application/json' };
        const answered = await fetch(gateway.url + path, {
          method: 'POST',
          headers,
          body: JSON.stringify(body),
        });
        expect(answered.status).toBe(200);
        await answered.text();
      }
    }
    const lines = (file: string): Record<string, unknown>[] =>
      readFileSync(file, 'utf8')
        .trim()
        .split('\n')
        .map((line) => JSON.parse(line) as Record<string, unknown>);
    const keys = lines(trace).map((line) => line.block_keys as string[]);
    const equal = (of: readonly string[]): number => of.filter((key, i) => key === keys[0][i]).length;
    expect(keys.map(equal)).toEqual([whole, whole, shared, whole]);
    const routes = lines(log).filter((line) => line.out === 'route');
    // the index of what was sent where: the share of a prompt's blocks that it knows
    const known = routes.map((line) => (line.scores as [number, number][])[0][1]);
    expect(known).toEqual([0, 1, shared / whole, 1]);
  });
});

describe('TieredKVStorage', () => {
  const list = Array.from({ length: 12 }, (_, i) => 50 + i);
  const one = { granularity: Granularity.HEAD, layerIds: [1, 3], headIds: [1] };
  const with_ = (at: number, token: number): number[] => list.with(at, token);
  const kinds = [
    ['the first token', with_(0, 9), {}, 0],
    ['a token of the second block', with_(6, 9), {}, 1],
    ['two tokens in another order', [list[1], list[0], ...list.slice(2)], {}, 0],
    ['the same tokens at another position', [9, ...list], {}, 0],
    ['the tenant', list, { tenant: 'b' }, 0],
    ['no tenant', list, { tenant: '' }, 0],
    ['the granularity', list, { granularity: Granularity.TOKEN }, 0],
    ['some heads', list, one, 0],
    ['some layers', list, { granularity: Granularity.LAYER, layerIds: [0] }, 0],
  ] as const;

  it.each(kinds)('%s', async (_, changed, more, shared) => {
    await using storage = await openStorage();
    const request = { requestId: 'r', layerIds: allLayers, numTokens: list.length, tenant: 'a' };
    const computed = storage.pool.allocate({ ...request, sequenceId: 's', tokenIds: list });
    const bytes = computed.map((block) => dataOf(block, 1));
    await storage.writeBlocks(bytes, computed);
    expect(await storage.commit('s', list)).toBe('done');
    expect(storage.pool.queryByPrefix(changed, 1, { tenant: 'a', ...more })).toHaveLength(shared);
    expect(storage.pool.queryByPrefix(list, 1, { tenant: 'a' }), 'the control').toHaveLength(3);
    // what is allocated with its tokens takes the same, and no more
    const { cacheHits } = storage.pool.getStats();
    storage.pool.allocate({
      ...request,
      ...more,
      sequenceId: 't',
      tokenIds: changed,
      numTokens: changed.length,
    });
    expect(storage.pool.getStats().cacheHits - cacheHits).toBe(shared);
  });

  it('and tokens that are told at the end name what was written, and nothing else', async () => {
    await using storage = await openStorage();
    const request = { requestId: 'r', layerIds: allLayers, numTokens: list.length, tenant: 'a' };
    const computed = storage.pool.allocate({ ...request, sequenceId: 's', tokenIds: list });
    const bytes = computed.map((block) => dataOf(block, 1));
    await storage.writeBlocks(bytes, computed);
    await expect(storage.commit('s', with_(6, 9))).rejects.toMatchObject({ code: 'TKV_INPUT' });
    expect(storage.pool.queryByPrefix(with_(6, 9), 1, { tenant: 'a' })).toHaveLength(0);
  });
});
