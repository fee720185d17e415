/**
 * All that determines the bytes of KV enters the key (docs/reference/identity.md): what differs in any one of these things alone
 * finds nothing of what was stored. One list of changes for every door that finds KV by its content.
 */

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import type { KVRuntime, KVRuntimeConfig } from '../../src/index.ts';
import { Granularity, unitSpec } from '../../src/runtime/geometry/box.ts';
import {
  BlockKeys,
  ExternalKeys,
  KeyChain,
  type KeyNamespace,
  kvLayout,
  type RequestExtras,
} from '../../src/runtime/index.ts';
import { PromptKeys } from '../../src/sim/instance/simRequest.ts';
import { importedRequest, ownTokens, traceOrigin } from '../../src/sim/workload/importers.ts';
import { type Asked, base, changes, tokens, whole } from './identityChanges.ts';
import { blocks, layout, openHostRuntime } from './liveRuntime.ts';

const scratch = mkdtempSync(join(tmpdir(), 'tierkv-identity-'));
afterAll(() => rmSync(scratch, { recursive: true }));

const { blockTokens } = layout;

type Stored = (kv: KVRuntime, asked: Asked) => Promise<number>;

/** Doors that find KV by its content: each stores a prompt where it is new, and says how many blocks it found. */
const doors: Readonly<Record<string, Stored>> = {
  'begin and lookup': async (kv, { tokens: list, tenant, extras }) => {
    const found = kv.lookup(list, { tenant, extras }).blocks;
    const sequence = await kv.begin(list, { tenant, extras });
    expect(Math.floor(sequence.cachedTokens / blockTokens)).toBe(found);
    for (const { index } of kv.openBlocks(sequence)) kv.writeBlock(sequence, index, (block) => block.fill(1));
    await kv.seal(sequence);
    kv.release(sequence);
    return found;
  },
  'putState and getState': async (kv, { tokens: list, tenant, extras }) => {
    const found = await kv.getState(list, { tenant, extras });
    await kv.putState(list, new Uint8Array([1, 2, 3]), { tenant, extras });
    return found === undefined ? 0 : whole;
  },
};

describe.each(Object.entries(doors))('%s', (name, store) => {
  it.each(changes)('%s', async (_, asked, shared) => {
    await using kv = await openHostRuntime({ ddrBytes: blocks(64) });
    expect(await store(kv, base)).toBe(0);
    expect(await store(kv, base), 'the control: the same is found').toBe(whole);
    // a state is of one whole prompt
    expect(await store(kv, asked)).toBe(name === 'putState and getState' ? 0 : shared);
    expect(await store(kv, base)).toBe(whole);
  });
});

describe('crossRequestCache', () => {
  const plain = changes.filter(([, asked]) => asked.extras === base.extras);
  it.each(plain)('%s', async (_, asked, shared) => {
    await using kv = await openHostRuntime({ ddrBytes: blocks(64) });
    const cache = kv.crossRequestCache();
    const run = async (id: string, list: Uint32Array, tenant: string): Promise<number> => {
      const { matchedTokens } = cache.tryReuse(id, list, tenant);
      expect(cache.allocate(id, list.length)).toBe(true);
      const sequence = cache.sequenceOf(id);
      await kv.ready(sequence);
      cache.commit(id, list, null, true, tenant);
      await kv.ready(sequence);
      return Math.floor(matchedTokens / blockTokens);
    };
    expect(await run('1', base.tokens, base.tenant)).toBe(0);
    expect(await run('2', base.tokens, base.tenant)).toBe(whole);
    expect(await run('3', asked.tokens, asked.tenant)).toBe(shared);
  });
});

it('crossRequestCache refuses to commit other tokens, or for another tenant, than were begun', async () => {
  await using kv = await openHostRuntime({ ddrBytes: blocks(64) });
  const cache = kv.crossRequestCache();
  for (const [i, [, asked]] of changes.entries()) {
    if (asked.extras !== base.extras) continue;
    const id = `other ${i}`;
    cache.tryReuse(id, base.tokens, base.tenant);
    expect(cache.allocate(id, base.tokens.length)).toBe(true);
    await kv.ready(cache.sequenceOf(id));
    const commits = (): unknown => cache.commit(id, asked.tokens, null, true, asked.tenant);
    expect(commits).toThrow(expect.objectContaining({ code: 'TKV_INPUT' }));
    expect(kv.lookup(asked.tokens, { tenant: asked.tenant }).blocks).toBe(0);
  }
});

describe('a runtime over the files of another', () => {
  const others: readonly (readonly [what: string, config: Partial<KVRuntimeConfig>])[] = [
    ['the model', { model: 'test@2' }],
    ['the secret', { secretKey: new Uint8Array(32).fill(8) }],
    ['an extra of the runtime', { extras: { rope: 'yarn' } }],
    ['the epoch', { epoch: 1 }],
    [
      'the precision',
      { layout: kvLayout({ layers: 2, kvHeads: 2, headDim: 64, dtype: 'bf16', blockTokens }) },
    ],
    ['the layers', { layout: kvLayout({ layers: 1, kvHeads: 4, headDim: 64, dtype: 'f16', blockTokens }) }],
    ['the heads', { layout: kvLayout({ layers: 2, kvHeads: 4, headDim: 32, dtype: 'f16', blockTokens }) }],
    [
      'the tokens of a block',
      { layout: kvLayout({ layers: 4, kvHeads: 2, headDim: 64, dtype: 'f16', blockTokens: 8 }) },
    ],
  ];

  it.each(others)('%s', async (_, config) => {
    const nvme = { dir: mkdtempSync(join(scratch, 'kv-')), bytes: blocks(64) };
    const lookUp = (kv: KVRuntime): number => kv.lookup(tokens, { tenant: 'a' }).blocks;
    {
      await using kv = await openHostRuntime({ nvme });
      await doors['begin and lookup'](kv, { ...base, extras: {} });
      await kv.save();
    }
    const found = await openHostRuntime({ nvme, ...config }).then(
      async (kv) => {
        await using open = kv;
        return lookUp(open);
      },
      (error: { code: string }) => error.code,
    );
    expect(['TKV_MISMATCH', 0]).toContain(found);
    await using again = await openHostRuntime({ nvme });
    if (!('epoch' in config)) expect(lookUp(again), 'the control').toBe(whole);
  });
});

describe('keys', () => {
  const keyOf = (namespace: Partial<KeyNamespace>, list = tokens, extras: RequestExtras = {}): string => {
    const full = {
      secretKey: new Uint8Array(16).fill(1),
      tenant: 'a',
      epoch: 0,
      model: 'm',
      layout,
      ...namespace,
    };
    const keys = new BlockKeys();
    new KeyChain(full).withExtras(extras).hashBlocks(list, 0, keys);
    return Array.from(keys.words.subarray(0, 4)).join();
  };
  const shape = { layers: 2, kvHeads: 2, headDim: 64, dtype: 'f16', blockTokens: 16 } as const;

  it('differ wherever one thing does', () => {
    const layouts = [
      kvLayout({ ...shape, layers: 3 }),
      kvLayout({ ...shape, kvHeads: 3 }),
      kvLayout({ ...shape, headDim: 32 }),
      kvLayout({ ...shape, valueDim: 32 }),
      kvLayout({ ...shape, dtype: 'bf16' }),
      kvLayout({ ...shape, dtype: 'f32' }),
      kvLayout({ ...shape, blockTokens: 8 }),
    ];
    const units = [
      { granularity: Granularity.LAYER },
      { granularity: Granularity.HEAD },
      { granularity: Granularity.TOKEN },
    ].map((spec) => unitSpec(layout, spec));
    const all = [
      keyOf({}),
      keyOf({ secretKey: new Uint8Array(16).fill(2) }),
      keyOf({ secretKey: new Uint8Array(17).fill(1) }),
      keyOf({ tenant: 'b' }),
      keyOf({ tenant: '' }),
      keyOf({ tenant: new TextEncoder().encode('a') }),
      keyOf({ epoch: 1 }),
      keyOf({ model: 'n' }),
      keyOf({ extras: { a: 'b' } }),
      keyOf({ extras: { a: 'c' } }),
      keyOf({ extras: { b: 'b' } }),
      keyOf({}, tokens, { a: 'b' }),
      keyOf({}, tokens, { a: { value: 'b', fromToken: 1 } }),
      keyOf({}, tokens, { a: { value: 'b', fromToken: 2 } }),
      ...layouts.map((each) => keyOf({ layout: each })),
      ...units.flatMap((unit) => [
        keyOf({ unit }),
        ...(unit.unitsPerTokenRange > 1 ? [keyOf({ unit, unitInRange: 1 })] : []),
      ]),
    ];
    expect(new Set(all).size).toBe(all.length);
  });

  it('of traces differ by id, tenant and epoch', () => {
    const keyOfId = (id: number, tenant: string, epoch: number): string => {
      const keys = new BlockKeys();
      new ExternalKeys({ tenant, epoch }).hashBlocks([id], 0, keys);
      return Array.from(keys.words.subarray(0, 4)).join();
    };
    const all = [keyOfId(1, 'a', 0), keyOfId(2, 'a', 0), keyOfId(1, 'b', 0), keyOfId(1, 'a', 1)];
    expect(new Set(all).size).toBe(4);
  });

  it('of simulations differ by content, adapter and size of blocks', () => {
    const keyOfRequest = (trace: string, index: number, adapter = '', size = 16): string => {
      const prompt = ownTokens(trace, 'in', index, 64);
      const row = { index, origin: traceOrigin('c'), arrivalUs: 0, inputTokens: 64, outputTokens: 1, prompt };
      const request = importedRequest(row);
      const keys = new PromptKeys(size).keysOf({ ...request, origin: { ...request.origin, adapter } }, index);
      return Array.from(keys.words.subarray(0, 4)).join();
    };
    const all = [
      keyOfRequest('t', 0),
      keyOfRequest('t', 1),
      keyOfRequest('u', 0),
      keyOfRequest('t', 0, 'sql'),
      keyOfRequest('t', 0, 'sqm'),
      keyOfRequest('t', 0, '', 32),
    ];
    expect(new Set(all).size).toBe(all.length);
    expect(keyOfRequest('t', 0)).toBe(all[0]);
  });
});
