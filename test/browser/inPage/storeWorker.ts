/**
 * What tests of stores run in a worker of a page: the contract of tiers, and a file store that is filled, damaged, killed
 * and looked at. Each call is a message `{ id, call, args }`; its answer is `{ id, result }` or `{ id, problem }`.
 */

import type { DataFile } from '../../../src/backends/file/dataFile.ts';
import { FileStore } from '../../../src/backends/file/fileStore.ts';
import type { FileStoreOptions } from '../../../src/backends/file/opening.ts';
import { fileLayout, recordOffset } from '../../../src/backends/file/record.ts';
import { MemoryStore } from '../../../src/backends/host/memoryStore.ts';
import { openDevice } from '../../../src/backends/webgpu/adapter.ts';
import { HbmStore } from '../../../src/backends/webgpu/hbmStore.ts';
import { digestWords } from '../../../src/runtime/digest.ts';
import { type PoolShape, poolShape } from '../../../src/runtime/tables/slotPool.ts';
import { Outcome } from '../../../src/runtime/tier/tier.ts';
import { emptyItem, mismatchedWords, patternItem, SeededRandom } from '../../../src/testing/patternItems.ts';
import { type TierUnderTest, tierContract } from '../../../src/testing/tierContract.ts';
import type { StoreLook } from './storeLook.ts';
import { suiteResults, type TestEnd } from './vitest.ts';

// the contract is written for Node
Object.assign(globalThis, {
  process: { env: {} },
  Buffer: { compare: (a: Uint8Array, b: Uint8Array) => (a.every((byte, i) => byte === b[i]) ? 0 : 1) },
});

let directories = 0;
const freshDirectory = (): string => `contract/${Date.now()}-${directories++}`;

async function fileUnderTest(shape: PoolShape, options: FileStoreOptions): Promise<TierUnderTest> {
  let blocks: DataFile | undefined;
  const store = await FileStore.open(freshDirectory(), shape, {
    ...options,
    wrapFile: (file, name) => {
      if (name === 'blocks') blocks = file;
      return file;
    },
  });
  const layout = fileLayout(shape);
  const edit = async (
    at: number,
    length: number,
    change: (bytes: Uint8Array<ArrayBuffer>) => void,
  ): Promise<void> => {
    const bytes = new Uint8Array(length);
    await blocks!.readv([bytes], at);
    change(bytes);
    await blocks!.writev([bytes], at);
  };
  return {
    store,
    movesBytes: true,
    remembersKeys: true,
    remembersDigests: true,
    flipBit(slot, sizeClass, byteIndex) {
      const at = recordOffset(layout, slot, sizeClass) + layout.records[sizeClass].payloadOffset + byteIndex;
      return edit(at, 1, (bytes) => void (bytes[0] ^= 0x04));
    },
    setGeneration: (slot, sizeClass, generation) =>
      edit(recordOffset(layout, slot, sizeClass), 128, (bytes) => {
        const words = new Uint32Array(bytes.buffer);
        words[8] = generation;
        const checksum = digestWords(words.subarray(0, 30));
        words.set([checksum.lo, checksum.hi], 30);
      }),
    dispose: () => store.checkIntegrity(),
  };
}

async function contract(): Promise<TestEnd[]> {
  const live = await openDevice();
  tierContract('webgpu', async (shape) => ({ store: await HbmStore.open(live, shape), movesBytes: true }));
  tierContract('webgpu verified by the kernel', async (shape) => ({
    store: await HbmStore.open(live, shape, { verifyWrites: 'kernel' }),
    movesBytes: true,
  }));
  for (const verifyReads of [true, false]) {
    tierContract(`memory${verifyReads ? ', verified' : ''}`, async (shape) => {
      const store = await MemoryStore.open(shape, { verifyReads });
      return {
        store,
        movesBytes: true,
        flipBit(slot, sizeClass, byteIndex) {
          const bytes = store.view(slot, sizeClass);
          bytes[byteIndex] ^= 0x10;
        },
      };
    });
  }
  tierContract('private files', (shape) => fileUnderTest(shape, {}));
  tierContract('private files with warm restarts', (shape) =>
    fileUnderTest(shape, { restart: 'warm', syncBytes: 100_000, checkpointBytes: 300_000 }),
  );
  return await suiteResults();
}

/** Over a store that forgets a bit of what it reads. */
async function brokenContract(): Promise<TestEnd[]> {
  tierContract('memory that changes a bit', async (shape) => {
    const store = await MemoryStore.open(shape, {});
    const read = store.read.bind(store);
    store.read = async (items, ended) => {
      const results = await read(items, ended);
      for (const { bytes } of items) bytes[0] ^= 1;
      return results;
    };
    return { store, movesBytes: true };
  });
  return await suiteResults();
}

//  A store whose blocks say what they must hold: the bytes of a block follow from its slot and its generation.

const shape = poolShape(24, 16_384, [16_384, 4096]);
const warm: FileStoreOptions = {
  restart: 'warm',
  identity: { model: 'pages' },
  syncBytes: 200_000,
  checkpointBytes: 600_000,
};
const slots = Array.from({ length: shape.pages }, (_, page) => page * shape.slotsPerPageMax);

async function look(dir: string, verifyReads: boolean): Promise<StoreLook> {
  const store = await FileStore.open(dir, shape, { ...warm, verifyReads });
  const entries = store.records();
  const generations: Record<number, number> = {};
  let [right, refused, wrong] = [0, 0, 0];
  for (const { slot, sizeClass, generation } of entries) {
    const target = emptyItem(patternItem(shape, slot, sizeClass, generation));
    const [{ outcome }] = await store.read([target]);
    if (outcome !== Outcome.LOADED) refused++;
    else if (mismatchedWords(target) === 0) {
      right++;
      generations[slot] = generation;
    } else wrong++;
  }
  const recoveredFrom = String(store.describe().recoveredFrom);
  await store[Symbol.asyncDispose]();
  return { records: entries.length, right, refused, wrong, generations, recoveredFrom };
}

/** Writes each slot once. */
async function fill(dir: string, generation: number): Promise<number> {
  const store = await FileStore.open(dir, shape, warm);
  const results = await store.write(slots.map((slot) => patternItem(shape, slot, 0, generation)));
  await store.sync();
  await store[Symbol.asyncDispose]();
  return results.filter(({ outcome }) => outcome === Outcome.LOADED).length;
}

/**
 * Writes until the tab is killed. After `points` durability points it says which generation each slot has, and goes on with
 * every third slot alone: a write that is cut off may cost the block that it replaces, and no other.
 */
async function writeOn(dir: string, seed: number, firstGeneration: number, points: number): Promise<never> {
  const store = await FileStore.open(dir, shape, warm);
  const random = new SeededRandom(seed);
  const known: Record<number, number> = {};
  for (let round = 0; ; round++) {
    const generation = firstGeneration + round;
    const open = round < points ? slots : slots.filter((_, i) => i % 3 === 0);
    const chosen = open.filter(() => random.below(3) === 0);
    const results = await store.write(chosen.map((slot) => patternItem(shape, slot, 0, generation)));
    for (const [i, { outcome }] of results.entries()) {
      if (outcome === Outcome.LOADED) known[chosen[i]] = generation;
    }
    await store.sync();
    const kept = Object.entries(known).filter(([slot]) => slots.indexOf(Number(slot)) % 3 !== 0);
    if (round + 1 === points) postMessage({ durable: Object.fromEntries(kept), generation });
    await new Promise((resolve) => setTimeout(resolve));
  }
}

/** Damages the files of a store that is not open, in a way that the seed says. @returns what was done */
async function damage(dir: string, seed: number): Promise<string> {
  const random = new SeededRandom(seed);
  let directory = await navigator.storage.getDirectory();
  for (const part of dir.split('/')) directory = await directory.getDirectoryHandle(part);
  const name = random.below(4) === 0 ? 'tierkv.index' : 'tierkv.blocks';
  const handle = await (await directory.getFileHandle(name)).createSyncAccessHandle();
  const bytes = handle.getSize();
  const at = random.below(bytes);
  const kinds = ['bit', 'zeros', 'noise', 'moved', 'cut'];
  const kind = kinds[random.below(kinds.length)];
  const length = Math.min(bytes - at, 1 + random.below(20_000));
  const part = new Uint8Array(length);
  handle.read(part, { at });
  if (kind === 'bit') part[0] ^= 1 << random.below(8);
  if (kind === 'zeros') part.fill(0);
  if (kind === 'noise') for (let i = 0; i < part.length; i++) part[i] = random.below(256);
  if (kind === 'cut') handle.truncate(at);
  else handle.write(part, { at: kind === 'moved' ? random.below(bytes - length + 1) : at });
  handle.flush();
  handle.close();
  return `${kind} of ${name} at ${at}, ${length} bytes`;
}

async function remove(dir: string): Promise<void> {
  let directory = await navigator.storage.getDirectory();
  const parts = dir.split('/');
  for (const part of parts.slice(0, -1)) directory = await directory.getDirectoryHandle(part);
  await directory.removeEntry(parts.at(-1)!, { recursive: true });
}

async function openAs(dir: string, model: string): Promise<string> {
  const store = await FileStore.open(dir, shape, { ...warm, identity: { model } });
  await store[Symbol.asyncDispose]();
  return 'open';
}

/** More than any quota of a browser. */
async function openLarge(dir: string): Promise<string> {
  await FileStore.open(dir, poolShape(2 ** 28, 16_384, [16_384]), { restart: 'empty' });
  return 'open';
}

let held: FileStore | undefined;

/** What a runtime does when it saves, with the store that is held. */
async function save(): Promise<string> {
  const results = await held!.write(slots.map((slot) => patternItem(shape, slot, 0, 2)));
  await held!.sync();
  await held!.requireInPlace();
  return results.map(({ outcome }) => outcome).join();
}

/** Holds the store open until the tab goes. */
async function hold(dir: string): Promise<string> {
  held = await FileStore.open(dir, shape, warm);
  return 'open';
}

const calls: Readonly<Record<string, (...args: never[]) => Promise<unknown>>> = {
  contract,
  brokenContract,
  look,
  fill,
  writeOn,
  damage,
  remove,
  openAs,
  openLarge,
  save,
  hold,
};

addEventListener('message', async ({ data }: MessageEvent<{ id: number; call: string; args: never[] }>) => {
  const { id, call, args } = data;
  try {
    postMessage({ id, result: await calls[call](...args) });
  } catch (error) {
    const { code = '', message } = error as { code?: string; message: string };
    postMessage({ id, problem: `${code} ${message}` });
  }
});
