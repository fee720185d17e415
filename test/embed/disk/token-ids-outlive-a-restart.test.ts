/**
 * Events of a runtime that keeps token ids: what they tell, the state that they can begin with, and what is left of
 * both after a restart. On disk the token ids can be read by no other secret, and a store of the version before goes
 * on without them.
 */

import {
  closeSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  readSync,
  rmSync,
  writeSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { FileStore } from '../../../src/backends/file/fileStore.ts';
import { StoreView } from '../../../src/backends/file/inspect.ts';
import { encodeSuperblock, fileLayout, recordOffset } from '../../../src/backends/file/record.ts';
import type { SlotEntry } from '../../../src/backends/file/slotTable.ts';
import type { BlockText } from '../../../src/embed/blockBook.ts';
import { BlockNotes, readNotes } from '../../../src/embed/blockNotes.ts';
import type { CacheEvent, KVRuntime } from '../../../src/index.ts';
import { kvLayout, Outcome, poolShape, type RequestExtras, TierKVError } from '../../../src/runtime/index.ts';
import { faulty } from '../../backends/file/diskFaults.ts';
import { blocks, layout, openRuntime, prompt, promptBlocks, write } from '../liveRuntime.ts';

const dirs: string[] = [];
afterEach(() => {
  for (const dir of dirs.splice(0)) rmSync(dir, { recursive: true });
});
function directory(): string {
  const dir = mkdtempSync(join(tmpdir(), 'tierkv-tokens-'));
  dirs.push(dir);
  return dir;
}
const open = (dir: string, more: object = {}): Promise<KVRuntime> =>
  openRuntime({
    ddrBytes: blocks(20),
    nvme: { dir, bytes: blocks(40) },
    leavingShare: 1,
    migration: false,
    tokenIds: true,
    ...more,
  });

type Stored = Extract<CacheEvent, { type: 'stored' }>;

/** The state that a reader begins with. */
async function state(kv: KVRuntime): Promise<Stored[]> {
  const reader = kv.events({ state: true });
  await reader.return?.();
  const events: Stored[] = [];
  for await (const event of reader) if (event.type === 'stored') events.push(event);
  return events;
}

async function compute(kv: KVRuntime, seed: number, tenant = 'alice', extras?: RequestExtras): Promise<void> {
  const sequence = await kv.begin(prompt(seed), { tenant, ...(extras === undefined ? {} : { extras }) });
  write(kv, sequence, seed);
  await kv.seal(sequence);
  kv.release(sequence);
  await kv.idle();
}

const tokensOf = (seed: number, block: number): number[] => [
  ...prompt(seed).subarray(block * layout.blockTokens, (block + 1) * layout.blockTokens),
];

describe('events of a runtime that keeps token ids', () => {
  it('tell tokens, tenant, layer group and parent of each block, as it is stored and as state', async () => {
    await using kv = await open(directory());
    const reader = kv.events();
    await compute(kv, 1);
    const told: Stored[] = [];
    for (let i = 0; i < promptBlocks; i++) {
      const { value } = await reader.next();
      if (value?.type === 'stored') told.push(value);
    }
    expect(told.map(({ tokenIds }) => [...(tokenIds ?? [])])).toEqual(
      Array.from({ length: promptBlocks }, (_, block) => tokensOf(1, block)),
    );
    expect(told.map(({ parent }) => parent)).toEqual([null, ...told.slice(0, -1).map(({ key }) => key)]);
    expect(told).toMatchObject(told.map(() => ({ tier: 'hbm', tenant: 'alice', group: 0, tokens: 16 })));
    await compute(kv, 2, 'bob');
    const now = await state(kv);
    expect(now.slice(0, promptBlocks)).toMatchObject(told.map(({ key, parent }) => ({ key, parent })));
    expect(now.slice(promptBlocks).map(({ tenant }) => tenant)).toEqual(Array(promptBlocks).fill('bob'));
    const last = now.at(-1)?.number;
    const live = kv.events({ state: true });
    for (const _ of now) await live.next();
    await compute(kv, 3);
    expect((await live.next()).value.number, 'live events follow the state').toBe((last ?? 0) + 1);
    await live.return?.();
  });

  it('tell a chain in state behind its beginning, whichever tier each block is in', async () => {
    await using kv = await open(directory());
    await compute(kv, 1);
    kv.manager.evict(0, 2, kv.nowUs());
    await kv.idle();
    const now = await state(kv);
    const first = new Map(now.map(({ key }, i) => [key, i] as const).reverse());
    for (const [i, { parent }] of now.entries()) {
      if (typeof parent === 'string') expect(first.get(parent)).toBeLessThan(i);
    }
    expect(new Set(now.map(({ tier }) => tier))).toContain('ddr');
    expect(now.every(({ tokenIds }) => tokenIds?.length === 16)).toBe(true);
  });

  it('tell what names a block beside its tokens, from the block on that it enters', async () => {
    await using kv = await open(directory());
    const image = new Uint8Array(32).fill(3);
    await compute(kv, 1, 'alice', { adapter: 'sql', image: { value: image, fromToken: 20 } });
    const now = await state(kv);
    const adapter = (offset: number) => ({ name: 'adapter', value: 'sql', offset });
    const picture = (offset: number) => ({ name: 'image', value: '03'.repeat(32), offset });
    expect(now.map(({ extras }) => extras)).toEqual([
      [adapter(0)],
      [adapter(-16), picture(4)],
      [adapter(-32), picture(-12)],
      [adapter(-48), picture(-28)],
    ]);
    expect(now.map(({ tokenIds }) => [...(tokenIds ?? [])])).toEqual([0, 1, 2, 3].map((b) => tokensOf(1, b)));
  });

  it('begin with a state only where the runtime keeps token ids', async () => {
    await using kv = await openRuntime({});
    expect(() => kv.events({ state: true })).toThrow(TierKVError);
    await compute(kv, 1);
    const reader = kv.events();
    await compute(kv, 2);
    const { value } = await reader.next();
    expect(value).not.toHaveProperty('tokenIds');
    await reader.return?.();
  });
});

describe('after a restart', () => {
  it.each([
    ['a block of whole pages', layout],
    [
      'a block that is packed behind its header',
      kvLayout({ layers: 1, kvHeads: 1, headDim: 32, dtype: 'f16', blockTokens: 16 }),
    ],
  ])('blocks in files are told with their tokens (%s)', async (_, shape) => {
    const dir = directory();
    const more = { layout: shape };
    {
      await using kv = await open(dir, more);
      await compute(kv, 1);
      await compute(kv, 2, 'bob', { adapter: 'sql' });
      expect(await kv.save()).toBe(2 * promptBlocks);
    }
    await using kv = await open(dir, more);
    const live = kv.events();
    await kv.idle();
    const now = await state(kv);
    expect(now.map(({ tier, tenant, tokenIds }) => [tier, tenant, [...(tokenIds ?? [])]]).sort()).toEqual(
      [1, 2]
        .flatMap((seed) =>
          Array.from({ length: promptBlocks }, (_, block) => [
            'nvme',
            seed === 1 ? 'alice' : 'bob',
            tokensOf(seed, block),
          ]),
        )
        .sort(),
    );
    expect(new Set(now.map(({ tenant, extras }) => `${tenant} ${extras?.[0].value}`))).toEqual(
      new Set(['alice undefined', 'bob sql']),
    );
    const { value } = await live.next();
    expect(value, 'who reads already is told').toMatchObject({ type: 'stored', tier: 'nvme' });
    await live.return?.();
  });

  it('neither tokens nor tenants stand in the files in clear', async () => {
    const dir = directory();
    {
      await using kv = await open(dir);
      await compute(kv, 1, 'a tenant with a name of its own');
      await kv.save();
    }
    const ids = Uint32Array.from(tokensOf(1, 0));
    const short = Uint16Array.from(ids);
    for (const name of readdirSync(dir)) {
      const bytes = readFileSync(join(dir, name));
      for (const clear of [
        Buffer.from('a tenant with'),
        Buffer.from(ids.buffer),
        Buffer.from(short.buffer),
      ]) {
        expect(bytes.includes(clear), name).toBe(false);
      }
    }
  });

  it('a note that was changed is named by fsck, and costs its announcement alone', async () => {
    const dir = directory();
    {
      await using kv = await open(dir);
      await compute(kv, 1);
      await kv.save();
    }
    await using view = await StoreView.open(dir);
    const [{ slot, sizeClass }] = [...view.records()];
    const at = recordOffset(fileLayout(view.shape), slot, sizeClass) + 128 + 40;
    const fd = openSync(join(dir, 'tierkv.blocks'), 'r+');
    const byte = Buffer.alloc(1);
    readSync(fd, byte, 0, 1, at);
    byte[0] ^= 1;
    writeSync(fd, byte, 0, 1, at);
    closeSync(fd);
    expect((await view.check()).faults).toEqual([
      { where: `slot ${slot}`, problem: 'its note does not have its digest' },
    ]);
    await using kv = await open(dir);
    await kv.idle();
    const now = await state(kv);
    expect(now).toHaveLength(promptBlocks);
    expect(now.filter(({ tokenIds }) => tokenIds === undefined)).toHaveLength(1);
    const again = await kv.begin(prompt(1), { tenant: 'alice' });
    expect(again.cachedTokens).toBe(promptBlocks * layout.blockTokens);
    kv.release(again);
  });

  it('a store of the version before opens warm, says so, and is written on as it is', async () => {
    const dir = directory();
    const shape = poolShape(4, 4096, [4096]);
    const identity = { model: 'm' };
    const key = Uint32Array.of(1, 2, 3, 4);
    const item = (slot: number) => ({
      slot,
      sizeClass: 0,
      generation: 1,
      key,
      digest: { lo: 4096 / 4, hi: 0 },
      bytes: new Uint8Array(4096),
    });
    const options = {
      restart: 'warm',
      identity,
      verifyReads: false,
      noteOf: () => Uint8Array.of(7),
    } as const;
    {
      await using store = await FileStore.open(dir, shape, options);
      expect(store.hasNotes).toBe(true);
    }
    // The same store, as the version before made it.
    const facts = (await StoreView.open(dir)).facts;
    const fd = openSync(join(dir, 'tierkv.blocks'), 'r+');
    writeSync(fd, encodeSuperblock({ ...facts, version: 3 }), 0, 4096, 0);
    closeSync(fd);
    {
      await using store = await FileStore.open(dir, shape, options);
      expect(store.hasNotes).toBe(false);
      const [{ outcome }] = await store.write([item(2)]);
      expect(outcome).toBe(0);
      expect(await store.note(store.records()[0])).toBeUndefined();
    }
    const header = readFileSync(join(dir, 'tierkv.blocks')).subarray(recordOffset(fileLayout(shape), 2, 0));
    expect(header.readUInt32LE(8), 'version of the record').toBe(3);
    await using store = await FileStore.open(dir, shape, options);
    expect(store.records()).toHaveLength(1);
  });

  it('what a record has no room for is left out and counted', async () => {
    const shape = poolShape(4, 4096, [4096]);
    const options = { restart: 'warm', noteOf: () => new Uint8Array(3969) } as const;
    await using store = await FileStore.open(directory(), shape, options);
    const bytes = new Uint8Array(4096);
    const item = {
      slot: 0,
      sizeClass: 0,
      generation: 1,
      key: new Uint32Array(4),
      digest: { lo: 1, hi: 1 },
      bytes,
    };
    await store.write([item]);
    expect(store.describe().notesLeftOut).toBe(1);
    expect(await store.note(store.records()[0])).toBeUndefined();
  });
});

describe('a disk that does not answer', () => {
  it('ends the reading of a note at its deadline, and neither a close nor an idle runtime waits for it', async () => {
    const shape = poolShape(4, 4096, [4096]);
    let hangs = false;
    const hanging = faulty((call) => (hangs && call === 'readv' ? new Promise<void>(() => {}) : undefined));
    const options = { restart: 'warm', deadlineMs: 50, noteOf: () => Uint8Array.of(7) } as const;
    const store = await FileStore.open(directory(), shape, { ...options, wrapFile: hanging });
    const bytes = new Uint8Array(4096);
    const item = {
      slot: 0,
      sizeClass: 0,
      generation: 1,
      key: new Uint32Array(4),
      digest: { lo: 1, hi: 1 },
      bytes,
    };
    // a busy disk misses the deadline too, though it does not hang: then once more
    const writes = async (): Promise<Outcome> => (await store.write([item]))[0].outcome;
    while ((await writes()) !== Outcome.LOADED) await new Promise((resolve) => setTimeout(resolve, 5));
    let note: Uint8Array | undefined;
    while (note === undefined) note = await store.note(store.records()[0]).catch(() => undefined);
    expect(note[0]).toBe(7);
    hangs = true;
    const notes = new BlockNotes(new Uint8Array(32));
    await readNotes(
      {
        records: () => [...store.records(), ...store.records()],
        notes: { missing: undefined, read: (entry: SlotEntry) => store.note(entry) },
      },
      notes,
      new AbortController().signal,
      () => {},
      () => {},
    );
    await expect(store.note(store.records()[0])).rejects.toMatchObject({ code: 'TKV_IO', field: 'dir' });
    await store[Symbol.asyncDispose]();
  });
});

describe('a note', () => {
  const secret = new Uint8Array(32).fill(1);
  const key = Uint32Array.of(1, 2, 3, 4);
  const text = (ids: number[]): BlockText => ({
    tokenIds: Uint32Array.from(ids),
    tenant: 'ali\u00e7e',
    group: 2,
  });

  it.each([[[1, 2, 65_535]], [[65_536, 3]], [[2 ** 24, 0]], [[2 ** 32 - 1]], [[]]])(
    'comes back: %j',
    (ids) => {
      const notes = new BlockNotes(secret);
      const note = notes.seal(key, text(ids)) as Uint8Array;
      expect(notes.open(key, note)).toEqual(text(ids));
      const padded = new Uint8Array(note.byteLength + 3);
      padded.set(note);
      expect(notes.open(key, padded), 'records keep whole words').toEqual(text(ids));
    },
  );

  it('comes back with what else names its block, and is left out where that is too much', () => {
    const notes = new BlockNotes(secret);
    const extras = [{ name: 'image', value: 'ab'.repeat(32), offset: -3 }];
    for (const more of [{ extras }, { isTail: true }, { extras, isTail: true }] as const) {
      const told = { ...text([1, 70_000]), ...more };
      expect(notes.open(key, notes.seal(key, told) as Uint8Array)).toEqual(told);
    }
    const many = Array.from({ length: 40 }, () => extras[0]);
    expect(notes.seal(key, { ...text([1]), extras: many })).toBeUndefined();
  });

  it('opens for no other block, under no other secret, and with no bit changed', () => {
    const notes = new BlockNotes(secret);
    const note = notes.seal(key, text([1, 2])) as Uint8Array;
    expect(notes.open(Uint32Array.of(1, 2, 3, 5), note)).toBeUndefined();
    expect(new BlockNotes(new Uint8Array(32)).open(key, note)).toBeUndefined();
    for (let bit = 0; bit < note.byteLength * 8; bit++) {
      const changed = note.slice();
      changed[bit >> 3] ^= 1 << (bit & 7);
      expect(notes.open(key, changed), `bit ${bit}`).toBeUndefined();
    }
    for (let length = 0; length < note.byteLength; length++) {
      expect(notes.open(key, note.slice(0, length))).toBeUndefined();
    }
  });

  it('is never twice the same, and is left out for a tenant whose name is too long', () => {
    const notes = new BlockNotes(secret);
    expect(notes.seal(key, text([1]))).not.toEqual(notes.seal(key, text([1])));
    expect(notes.seal(key, { ...text([1]), tenant: 'x'.repeat(2000) })).toBeUndefined();
  });
});
