import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import type { KVRuntime } from '../../../src/index.ts';
import { managerObserverNames } from '../../../src/runtime/manager/observer.ts';
import { PromptCutter, requireSecret } from '../../../src/serve/gateway/prompts.ts';
import { byteOf, openHostRuntime, openRuntime, prompt, promptBlocks, tenant, write } from '../liveRuntime.ts';

const cached = (kv: KVRuntime, seed: number): number => kv.lookup(prompt(seed), { tenant }).blocks;

/** A Buffer, whose `slice` is a view. */
const secretBuffer = (): Buffer => Buffer.from('0123456789abcdef0123456789abcdef');

it('a secret that its owner overwrites is the one that it was, in each part that keeps it', async () => {
  const dir = mkdtempSync(join(tmpdir(), 'tierkv-secret-'));
  try {
    const nvme = { dir, bytes: 4 * 2 ** 20 };
    const secretKey = secretBuffer();
    const extras = { adapter: 'one' };
    const first = await openHostRuntime({ secretKey, extras, nvme });
    secretKey.fill(0);
    extras.adapter = 'two';
    const references = Buffer.from(first.blockPort().keyFor('reference'));
    const sequence = await first.begin(prompt(1), { tenant });
    write(first, sequence, 1);
    await first.seal(sequence);
    first.release(sequence);
    await first.save();
    await first.close();
    await using second = await openHostRuntime({
      secretKey: secretBuffer(),
      extras: { adapter: 'one' },
      nvme,
    });
    expect(cached(second, 1)).toBe(promptBlocks);
    expect(references.equals(second.blockPort().keyFor('reference'))).toBe(true);
  } finally {
    rmSync(dir, { recursive: true });
  }
  const ofGateway = secretBuffer();
  const cutter = new PromptCutter(16, requireSecret(ofGateway), null);
  const before = cutter.nameOf('session');
  ofGateway.fill(0);
  expect(cutter.nameOf('session')).toBe(before);
});

it('a state is the bytes that were passed, whatever becomes of their memory, shared memory too', async () => {
  await using kv = await openHostRuntime();
  const bytes = new Uint8Array(100_000).fill(5);
  const storing = kv.putState(prompt(1), bytes, { tenant });
  bytes.fill(6);
  expect(await storing).toBe(true);
  const found = await kv.getState(prompt(1), { tenant });
  expect(found?.state.every((byte) => byte === 5)).toBe(true);
  const shared = new Uint8Array(new SharedArrayBuffer(100)).fill(7);
  expect(await kv.putState(prompt(2), shared, { tenant })).toBe(true);
  expect((await kv.getState(prompt(2), { tenant }))?.state).toEqual(new Uint8Array(100).fill(7));
});

it('tokens and bytes are what they were at the call, also where the call waits before it uses them', async () => {
  await using kv = await openHostRuntime();
  for (const make of [Array.from<number>, Uint32Array.from.bind(Uint32Array)] as const) {
    const sequence = await kv.begin(prompt(1), { tenant });
    const tokens = make([...prompt(1), 7]);
    const appending = kv.append(sequence, tokens);
    tokens[65] = 9;
    if (Array.isArray(tokens)) tokens.push(8);
    expect(await appending).toBe('done');
    const more = make([5]);
    const stepping = kv.step([{ sequence, tokens: more }]);
    more[0] = 6;
    expect(await stepping).toEqual(['done']);
    const { words, length } = sequence.tokens;
    expect([...words.slice(0, length)]).toEqual([...prompt(1), 7, 5]);
    kv.release(sequence);
  }
  const paged = kv.pagedCache();
  const [block] = paged.allocateBlock();
  const data = {
    keyCache: new Uint8Array(paged.blockBytes / 2).fill(1),
    valueCache: new Uint8Array(paged.blockBytes / 2).fill(2),
    tokenCount: 16,
  };
  const storing = paged.storeBlockData(block, data);
  data.keyCache.fill(3);
  await storing;
  const stored = await paged.getBlockData(block);
  expect([stored.keyCache[9], stored.valueCache[9], stored.tokenCount]).toEqual([1, 2, 16]);
  paged[Symbol.dispose]();
});

it('a block whose writing failed is not published, and is once it was written', async () => {
  await using kv = await openHostRuntime();
  const failing: readonly (readonly [string, unknown])[] = [
    [
      'throws',
      (block: Uint8Array) => {
        block[0] = 1;
        throw new Error('half of it');
      },
    ],
    ['goes on later', async (block: Uint8Array) => void block.fill(1)],
    ['is too short', new Uint8Array(3)],
  ];
  for (const [i, [what, filler]] of failing.entries()) {
    for (const call of ['write', 'writeBlock'] as const) {
      const seed = 10 * i + (call === 'write' ? 1 : 2);
      const sequence = await kv.begin(prompt(seed), { tenant });
      write(kv, sequence, seed);
      expect(() => kv[call](sequence, 1, filler as Uint8Array), what).toThrow();
      expect(await kv.seal(sequence), what).toBe('interrupted');
      expect(cached(kv, seed), what).toBe(1);
      if (call === 'write') {
        kv.write(sequence, 1, (block) => block.fill(seed + 1));
      } else {
        // as the docs' loop goes on
        const open = await kv.recover(sequence);
        expect(open).toContain(1);
        write(kv, sequence, seed);
      }
      expect(await kv.seal(sequence), what).toBe('done');
      expect(cached(kv, seed), what).toBe(promptBlocks);
      expect(await byteOf(kv, sequence, 1)).toBe(seed + 1);
      kv.release(sequence);
    }
  }
  const sequence = await kv.begin(prompt(1), { tenant });
  const late = kv.readBlocks(sequence, 1, (async () => {}) as () => void);
  await expect(late).rejects.toMatchObject({ code: 'TKV_INPUT', field: 'take' });
  kv.release(sequence);
});

it('an observer that throws at each call hurts no request, leaks nothing, and is told of once', async () => {
  const told: string[] = [];
  await using kv = await openHostRuntime({ notice: (line) => void told.push(line) });
  const { blocks: room } = kv.room;
  let calls = 0;
  const thrower = <Name extends string>(names: readonly Name[]): Record<Name, () => never> =>
    Object.fromEntries(
      names.map((name) => [
        name,
        () => {
          calls++;
          throw new Error(`at ${name}`);
        },
      ]),
    ) as unknown as Record<Name, () => never>;
  const watch = thrower(['hashed', 'placed', 'filled', 'prefilled', 'token', 'ended']);
  const stops = [
    kv.observe({ blocks: thrower(managerObserverNames), requests: { asked: () => watch } }),
    kv.observe({ requests: thrower(['asked']) }),
    kv.observe({ requests: { asked: (() => undefined) as never } }),
  ];
  // more prompts than host memory holds, so that blocks are evicted too
  for (let seed = 1; seed <= 8; seed++) {
    const sequence = await kv.begin(prompt(seed), { tenant });
    write(kv, sequence, seed);
    expect(await kv.seal(sequence)).toBe('done');
    kv.release(sequence);
  }
  for (const stop of stops) stop();
  expect(calls).toBeGreaterThan(100);
  expect(kv.room.blocks).toBe(room);
  kv.manager.checkIntegrity();
  expect(cached(kv, 8)).toBe(promptBlocks);
  expect(told.filter((line) => line.includes('an observer threw'))).toHaveLength(2);
});

it('blocks are not read or written after the end, and events that are asked for then end at once', async () => {
  for (const open of [openHostRuntime, openRuntime]) {
    const kv = await open({});
    const sequence = await kv.begin(prompt(1), { tenant });
    write(kv, sequence, 1);
    await kv.seal(sequence);
    const other = await kv.begin(prompt(2), { tenant });
    expect(await byteOf(kv, sequence, 0), 'before').toBe(1);
    await kv.close();
    const closed = { code: 'TKV_STATE' };
    await expect(kv.readBlock(sequence, 0)).rejects.toMatchObject(closed);
    await expect(kv.readBlocks(sequence, 1, () => {})).rejects.toMatchObject(closed);
    expect(() => kv.writeBlock(other, 0, (block) => block.fill(1))).toThrow(expect.objectContaining(closed));
    expect(await kv.events().next()).toMatchObject({ done: true });
    kv.release(sequence);
  }
});

// Linux has a disk that is always full
it.skipIf(!existsSync('/dev/full'))(
  'a log on a full disk ends, with a notice, and nothing else does',
  async () => {
    const told: string[] = [];
    const kv = await openHostRuntime({ log: '/dev/full', notice: (line) => void told.push(line) });
    for (let seed = 0; seed < 200; seed++) {
      const sequence = await kv.begin(prompt(seed), { tenant });
      write(kv, sequence, seed % 200);
      expect(await kv.seal(sequence)).toBe('done');
      kv.release(sequence);
    }
    await kv.close();
    expect(told).toHaveLength(1);
    expect(told[0]).toMatch(/log \/dev\/full is written no more.*ENOSPC/);
  },
);
