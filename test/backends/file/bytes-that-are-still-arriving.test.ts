import { readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { HostArena } from '../../../src/backends/arena/index.ts';
import { ByteStream } from '../../../src/backends/engine/byteStream.ts';
import { FileStore, StoreView } from '../../../src/backends/file/index.ts';
import { poolShape } from '../../../src/runtime/pool/shape.ts';
import { outcomeNames } from '../../../src/runtime/transfer/outcome.ts';
import { loaded, refused } from '../../../src/runtime/transfer/slotLedger.ts';
import type { StoreItem, StoreResult } from '../../../src/runtime/transfer/tierStore.ts';
import {
  emptyItem,
  mismatchedWords,
  patternItem,
  SeededRandom,
  testSeed,
} from '../../../src/testing/index.ts';
import { recordedWrites } from './recordedWrites.ts';
import { scratchDir } from './scratch.ts';

const KiB = 1024;
const BLOCK = 256 * KiB;
const SLOTS = 4;
const shape = poolShape(SLOTS, BLOCK, [BLOCK]);
/** Writes go in pieces of twice that. */
const pieces = { restart: 'warm', pieceBytes: 16 * KiB } as const;
const gone = refused('the source is gone');

interface Coming {
  readonly item: StoreItem;
  readonly stream: ByteStream;
  bring(to: number): void;
}

/** The item of (slot, generation) in memory that direct I/O reaches, or in a view that it does not, filled as `bring` says. */
async function coming(slot: number, generation: number, reachable = true): Promise<Coming> {
  const whole = patternItem(shape, slot, 0, generation);
  const arena = await HostArena.open({ chunkBytes: [BLOCK + 4096], native: true, field: 'test' });
  const bytes = new Uint8Array(arena.chunks[0], reachable ? 0 : 8, BLOCK);
  const stream = new ByteStream(BLOCK);
  let at = 0;
  return {
    item: { ...whole, bytes, arriving: stream },
    stream,
    bring(to) {
      bytes.set(whole.bytes.subarray(at, to), at);
      stream.arrived(at, to);
      at = to;
      if (to === BLOCK) stream.end(loaded);
    },
  };
}

const names = (results: readonly StoreResult[]): string[] => results.map((end) => outcomeNames[end.outcome]);

async function inStore(store: FileStore, slot: number, generation: number): Promise<string> {
  const target = emptyItem(patternItem(shape, slot, 0, generation));
  const [outcome] = names(await store.read([target]));
  return outcome === 'loaded' && mismatchedWords(target) > 0 ? 'wrong' : outcome;
}

/** Leaves the files as a crash would, with the process still there. */
function crash(dir: string): void {
  for (const name of readdirSync(dir)) if (name.startsWith('tierkv.lock.')) rmSync(join(dir, name));
}

async function faultsIn(dir: string): Promise<unknown> {
  await using view = await StoreView.open(dir);
  return (await view.check()).faults;
}

const seed = testSeed(417);
it.each([
  ['where direct I/O reaches them', true],
  ['in memory that it does not reach', false],
])(`are written as they come, %s, whatever their pace (seed ${seed})`, async (_, reachable) => {
  const random = new SeededRandom(seed);
  await using store = await FileStore.open(scratchDir(), shape, pieces);
  for (let generation = 1; generation <= 4; generation++) {
    const all = await Promise.all(
      Array.from({ length: SLOTS }, (__, slot) => coming(slot, generation, reachable)),
    );
    const writes = store.write(all.map(({ item }) => item));
    const left = all.map(() => 0);
    while (left.some((at) => at < BLOCK)) {
      const one = random.below(SLOTS);
      if (left[one] === BLOCK) continue;
      left[one] = Math.min(BLOCK, left[one] + 4 * (1 + random.below(BLOCK / 16)));
      all[one].bring(left[one]);
      if (random.chance(0.3)) await new Promise((resolve) => setTimeout(resolve, 1));
    }
    expect(names(await writes)).toEqual(all.map(() => 'loaded'));
    for (const { item } of all) expect(await inStore(store, item.slot, generation)).toBe('loaded');
  }
  store.checkIntegrity();
});

it('reach the file before the last of them is there, and hold up nobody while they wait', async () => {
  const written: number[] = [];
  await using store = await FileStore.open(scratchDir(), shape, {
    ...pieces,
    wrapFile: recordedWrites(written),
  });
  const { item, bring } = await coming(0, 1);
  const ending = store.write([item]);
  expect(names(await store.write([patternItem(shape, 1, 0, 1)]))).toEqual(['loaded']);
  const others = written.length;
  bring(BLOCK / 2);
  await expect.poll(() => written.length - others).toBeGreaterThanOrEqual(3);
  expect(names(await store.write([patternItem(shape, 2, 0, 1)]))).toEqual(['loaded']);
  bring(BLOCK);
  expect(names(await ending)).toEqual(['loaded']);
  expect(await inStore(store, 0, 1)).toBe('loaded');
});

it('that do not all come leave an empty slot, here and after a crash, and are no fault of the disk', async () => {
  for (const brought of [0, 4, BLOCK / 2, BLOCK - 4]) {
    const dir = scratchDir();
    const store = await FileStore.open(dir, shape, pieces);
    expect(names(await store.write([patternItem(shape, 0, 0, 1), patternItem(shape, 1, 0, 1)]))).toEqual([
      'loaded',
      'loaded',
    ]);
    const { item, stream, bring } = await coming(0, 2);
    const ending = store.write([item]);
    if (brought > 0) bring(brought);
    await new Promise((resolve) => setTimeout(resolve, 10));
    stream.end(gone);
    expect(await ending).toEqual([gone]);
    expect(await inStore(store, 0, 2)).toBe('missing');
    expect(store.describe()).toMatchObject({ ioErrors: 0, stuck: 0 });
    crash(dir);
    const next = await FileStore.open(dir, shape, pieces);
    expect(await inStore(next, 0, 2)).not.toMatch(/loaded|wrong/);
    expect(await inStore(next, 1, 1)).toBe('loaded');
    await next[Symbol.asyncDispose]();
    expect(await faultsIn(dir)).toEqual([]);
  }
});

it('that did not all come are forgotten when their slot is written again, and fsck finds nothing', async () => {
  const dir = scratchDir();
  {
    await using store = await FileStore.open(dir, shape, pieces);
    const { item, stream, bring } = await coming(0, 1);
    const ending = store.write([item]);
    bring(BLOCK / 2);
    stream.end(gone);
    expect(await ending).toEqual([gone]);
    expect(names(await store.write([patternItem(shape, 0, 0, 3)]))).toEqual(['loaded']);
    expect(await inStore(store, 0, 3)).toBe('loaded');
    store.checkIntegrity();
  }
  expect(await faultsIn(dir)).toEqual([]);
  await using next = await FileStore.open(dir, shape, pieces);
  expect(await inStore(next, 0, 3)).toBe('loaded');
});

it('are waited for to the end before the disk is asked once more, by way of its own memory', async () => {
  let refusals = 0;
  const fault = (): string => (refusals-- > 0 ? 'EINVAL' : '');
  const { pieceBytes } = pieces;
  await using store = await FileStore.open(scratchDir(), shape, {
    pieceBytes,
    wrapFile: recordedWrites([], fault),
  });
  refusals = 1;
  const { item, bring } = await coming(0, 1);
  const ending = store.write([item]);
  bring(BLOCK / 2);
  await new Promise((resolve) => setTimeout(resolve, 20));
  bring(BLOCK);
  expect(names(await ending)).toEqual(['loaded']);
  expect(await inStore(store, 0, 1)).toBe('loaded');
});

it('are given up when the store is closed before they come', async () => {
  const store = await FileStore.open(scratchDir(), shape, pieces);
  const { item, stream } = await coming(0, 1);
  const ending = store.write([item]);
  const closed = store[Symbol.asyncDispose]();
  stream.end(gone);
  expect((await ending)[0].reason).toMatch(/disposed|gone/);
  await closed;
});
