/** Opaque states: the longest stored prefix gives one piece of bytes, right or not at all. */

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { SeededRandom } from '../../../src/testing/index.ts';
import { blocks, layout, openHostRuntime, openRuntime } from '../liveRuntime.ts';

const scratch = mkdtempSync(join(tmpdir(), 'tierkv-states-'));
afterAll(() => rmSync(scratch, { recursive: true }));

const tokens = Uint32Array.from({ length: 300 }, (_, i) => 1000 + i);
const a = { tenant: 'a' };
const seed = Number(process.env.TIERKV_SEED ?? 1);

function bytesOf(length: number, mark: number): Uint8Array {
  const bytes = new Uint8Array(length);
  for (let i = 0; i < length; i++) bytes[i] = (i * 31 + mark * 7 + (i >>> 8)) & 255;
  return bytes;
}

describe.each([
  ['a device', (config = {}) => openRuntime(config)],
  ['host memory', openHostRuntime],
] as const)('on %s', (_, open) => {
  it('the longest stored prefix is found, whatever its length', async () => {
    await using kv = await open();
    const sizes: [tokens: number, bytes: number][] = [
      [1, 1],
      [15, layout.blockBytes],
      [16, layout.blockBytes + 1],
      [17, 5],
      [160, 2 * layout.blockBytes - 1],
    ];
    for (const [length, bytes] of sizes) {
      expect(await kv.putState(tokens.subarray(0, length), bytesOf(bytes, length), a)).toBe(true);
    }
    for (let length = 1; length <= 200; length += length < 20 ? 1 : 37) {
      const [best, bytes] = sizes.findLast(([stored]) => stored <= length)!;
      const found = await kv.getState(tokens.subarray(0, length), a);
      expect(found?.tokens, `${length} tokens`).toBe(best);
      expect(found?.state).toEqual(bytesOf(bytes, best));
    }
    kv.manager.checkIntegrity();
    expect(kv.manager.inspect.openSequences).toBe(0);
  });

  it('another tenant, other extras, other tokens and KV of the same tokens find nothing', async () => {
    await using kv = await open();
    await kv.putState(tokens, bytesOf(99, 1), { ...a, extras: { program: 'llama.cpp b1' } });
    const other = tokens.slice();
    other[3]++;
    expect(await kv.getState(tokens, a)).toBeUndefined();
    expect(await kv.getState(tokens, { tenant: 'b', extras: { program: 'llama.cpp b1' } })).toBeUndefined();
    expect(await kv.getState(other, { ...a, extras: { program: 'llama.cpp b1' } })).toBeUndefined();
    expect(kv.lookup(tokens, a).blocks).toBe(0);
    expect((await kv.getState(tokens, { ...a, extras: { program: 'llama.cpp b1' } }))?.tokens).toBe(300);
  });
});

describe('a state', () => {
  it('larger than the top tier goes through it, and comes back after a restart', async () => {
    const nvme = { dir: mkdtempSync(join(scratch, 'disk-')), bytes: blocks(100) };
    const state = bytesOf(blocks(47) + 5, 3);
    {
      await using kv = await openHostRuntime({ nvme });
      expect(await kv.putState(tokens.subarray(0, 77), state, a)).toBe(true);
      expect((await kv.getState(tokens, a))?.state).toEqual(state);
      await kv.save();
    }
    await using again = await openHostRuntime({ nvme });
    const found = await again.getState(tokens, a);
    expect(found?.tokens).toBe(77);
    expect(found?.state).toEqual(state);
  });

  it('that is there already stays, whatever the new bytes', async () => {
    await using kv = await openHostRuntime();
    expect(await kv.putState(tokens, bytesOf(500, 1), a)).toBe(true);
    expect(await kv.putState(tokens, bytesOf(700, 2), a)).toBe(true);
    expect((await kv.getState(tokens, a))?.state).toEqual(bytesOf(500, 1));
  });

  it('of which a part was evicted is missing, a shorter one is given, and a new one can be stored', async () => {
    await using kv = await openHostRuntime({ ddrBytes: blocks(12), migration: false });
    await kv.putState(tokens.subarray(0, 40), bytesOf(10, 1), a);
    await kv.putState(tokens.subarray(0, 90), bytesOf(blocks(4), 2), a);
    expect((await kv.getState(tokens, a))?.tokens).toBe(90);
    await kv.getState(tokens.subarray(0, 41), a);
    // The tokens of other prompts push blocks out, the longest unused first.
    for (let i = 0; i < 6 && (await kv.getState(tokens, a))?.tokens === 90; i++) {
      kv.manager.evict(0, 1, kv.nowUs());
      await kv.idle();
    }
    const rest = await kv.getState(tokens, a);
    expect(rest === undefined || rest.tokens === 40).toBe(true);
    expect(await kv.putState(tokens.subarray(0, 90), bytesOf(blocks(3), 5), a)).toBe(true);
    expect((await kv.getState(tokens, a))?.state).toEqual(bytesOf(blocks(3), 5));
  });

  it('is right or missing, whatever is stored, evicted and asked for', async () => {
    const random = new SeededRandom(seed);
    await using kv = await openHostRuntime({
      ddrBytes: blocks(16),
      nvme: { dir: mkdtempSync(join(scratch, 'disk-')), bytes: blocks(20) },
    });
    const stored = new Map<number, Uint8Array[]>();
    let found = 0;
    for (let step = 0; step < 60; step++) {
      const length = 1 + random.below(120);
      if (random.chance(0.5)) {
        const state = bytesOf(1 + random.below(blocks(6)), step);
        stored.set(length, [...(stored.get(length) ?? []), state]);
        await kv.putState(tokens.subarray(0, length), state, a);
      } else if (random.chance(0.3)) {
        kv.manager.evict(random.below(2), 1 + random.below(4), kv.nowUs());
      } else {
        const state = await kv.getState(tokens.subarray(0, length), a);
        if (state === undefined) continue;
        found++;
        const given = stored.get(state.tokens) ?? [];
        const isOne = given.some((each) => Buffer.compare(each, state.state) === 0);
        expect(isOne && state.tokens <= length, `step ${step} of seed ${seed}`).toBe(true);
      }
    }
    expect(found, `found of seed ${seed}`).toBeGreaterThan(3);
    kv.manager.checkIntegrity();
  });
});

it('bad input is refused by name, and nothing is stored', async () => {
  await using kv = await openHostRuntime();
  const state = bytesOf(9, 1);
  for (const [call, code, field] of [
    [kv.putState([], state, a), 'TKV_INPUT', 'tokens'],
    [kv.putState([1.5], state, a), 'TKV_INPUT', 'tokens[0]'],
    [kv.putState(tokens, new Uint8Array(0), a), 'TKV_INPUT', 'state'],
    [kv.putState(tokens, [1] as never, a), 'TKV_INPUT', 'state'],
    [kv.putState(tokens, state, { tenant: '' }), 'TKV_INPUT', 'tenant'],
    [
      kv.putState(tokens, state, { ...a, extras: { 'tierkv.state': 'x' } }),
      'TKV_INPUT',
      'extras.tierkv.state',
    ],
    [kv.putState(tokens, state, { ...a, wiat: true } as never), 'TKV_INPUT', 'wiat'],
    [kv.putState(tokens, new Uint8Array(blocks(21)), a), 'TKV_CAPACITY', 'state'],
    [kv.getState([], a), 'TKV_INPUT', 'tokens'],
  ] as const) {
    await expect(call).rejects.toMatchObject({ code, field });
  }
  expect(kv.manager.inspect.usage(0).slots.ready).toBe(0);
  expect(await kv.getState(tokens, a)).toBeUndefined();
});
