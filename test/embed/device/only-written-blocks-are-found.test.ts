/**
 * A block is sealed only if its owner was told that it is open, on this device, after it was last opened, and
 * no error of the device since then touches it. Each row is an order of calls after which a block is open
 * that its caller never heard of. The loop of docs/guide/embedding.md must end well then, and a request that asks for the
 * same tokens finds what was written, or nothing.
 */

import { afterEach, describe, expect, it } from 'vitest';
import type { KVRuntime, KVSequence } from '../../../src/index.ts';
import { blocks, byteOf, layout, openRuntime, tenant } from '../liveRuntime.ts';
import { takeOutTheRule } from '../withoutTheRule.ts';

const { blockTokens } = layout;
const tokens = (count: number): number[] => Array.from({ length: count }, (_, i) => 7000 + i);
/** Whose blocks fill HBM, and have to leave it before others find room. */
const others = (count: number): number[] => Array.from({ length: count }, (_, i) => 90_000 + i);

const cleanups: (() => Promise<void> | void)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

interface Setting {
  readonly kv: KVRuntime;
  /** HBM is lost, with all that lies in it. */
  lose(): void;
}

async function open(groups = false): Promise<Setting> {
  const layerGroups = [
    { first: 0, end: 1 },
    { first: 1, end: 2 },
  ];
  const kv = await openRuntime({
    hbmBytes: blocks(8),
    ddrBytes: blocks(40),
    ...(groups ? { layerGroups } : {}),
  });
  cleanups.push(() => kv[Symbol.asyncDispose]());
  return { kv, lose: () => void kv.manager.loseTier(0, kv.nowUs()) };
}

/**
 * Fills the open blocks `which`, all where none is named, each with a byte that says which block it is; in
 * the layer group `only`, or in all.
 */
function fill(kv: KVRuntime, sequence: KVSequence, which?: readonly number[], only?: number): void {
  for (const { index, group } of kv.openBlocks(sequence)) {
    if (which !== undefined && !which.includes(index)) continue;
    if (only !== undefined && only !== group) continue;
    const { buffer, offsetBytes, sizeBytes } = kv.slot(sequence, index, group);
    kv.device.queue.writeBuffer(buffer, offsetBytes, new Uint8Array(sizeBytes).fill(index + 1));
  }
}

/** HBM is full of blocks that have to go down before anybody finds room. */
async function crowded(kv: KVRuntime): Promise<void> {
  const other = await kv.begin(others(7 * blockTokens), { tenant });
  fill(kv, other);
  await kv.seal(other);
  kv.release(other);
}

/** As docs/guide/embedding.md shows it. */
async function sealAsTheDocsDo(kv: KVRuntime, sequence: KVSequence): Promise<void> {
  while ((await kv.seal(sequence)) === 'interrupted') {
    const open = await kv.recover(sequence);
    fill(kv, sequence, open);
  }
}

/** Blocks that a request for these tokens finds, by the byte that fills each; -1 where it holds several. */
async function found(kv: KVRuntime, count: number, group = 0): Promise<number[]> {
  const sequence = await kv.begin(tokens(count + 1), { tenant, shareWaitMs: 0 });
  const bytes: number[] = [];
  for (let i = 0; i < Math.floor(sequence.cachedTokens / blockTokens); i++) {
    bytes.push(await byteOf(kv, sequence, i, group));
  }
  kv.release(sequence);
  return bytes;
}

const right = (bytes: readonly number[]): boolean => bytes.every((byte, i) => byte === i + 1);

interface Row {
  readonly name: string;
  readonly groups?: boolean;
  /** Blocks that the sequence has in the end. */
  readonly blocks: number;
  /** @returns the sequence, with an open block that its caller was not told of */
  run(setting: Setting): Promise<KVSequence>;
}

const rows: readonly Row[] = [
  {
    name: 'an append that the loss interrupts while it waits for slots',
    blocks: 3,
    async run({ kv, lose }) {
      await crowded(kv);
      const sequence = await kv.begin(tokens(16), { tenant });
      fill(kv, sequence);
      const appended = kv.append(sequence, tokens(48));
      await Promise.resolve();
      lose();
      expect(await appended).toBe('interrupted');
      return sequence;
    },
  },
  {
    name: 'the same behind a sealed block with a copy below',
    blocks: 3,
    async run({ kv, lose }) {
      const first = await kv.begin(tokens(16), { tenant });
      fill(kv, first);
      await kv.seal(first);
      kv.release(first);
      kv.manager.evict(0, 1, kv.nowUs());
      await kv.idle();
      await crowded(kv);
      const sequence = await kv.begin(tokens(17), { tenant });
      fill(kv, sequence);
      const appended = kv.append(sequence, tokens(48));
      await Promise.resolve();
      lose();
      expect(await appended).toBe('interrupted');
      return sequence;
    },
  },
  {
    name: 'a step that the loss interrupts while it waits for slots',
    blocks: 3,
    async run({ kv, lose }) {
      await crowded(kv);
      const sequence = await kv.begin(tokens(16), { tenant });
      fill(kv, sequence);
      const stepped = kv.step([{ sequence, tokens: tokens(48).slice(16) }]);
      while (sequence.pending < 2) await Promise.resolve();
      lose();
      expect(await stepped).toEqual(['interrupted']);
      expect(await kv.step([{ sequence, tokens: [] }]), 'and again').toEqual(['interrupted']);
      return sequence;
    },
  },
  {
    name: 'a recovery that is called off when its blocks are open again',
    blocks: 3,
    async run({ kv, lose }) {
      const sequence = await kv.begin(tokens(48), { tenant });
      fill(kv, sequence);
      lose();
      await crowded(kv);
      const client = new AbortController();
      const recovered = kv.recover(sequence, { signal: client.signal });
      expect(sequence.pending).toBeGreaterThan(0);
      client.abort(new Error('enough'));
      await expect(recovered).rejects.toThrow('enough');
      await kv.idle();
      expect(kv.openBlocks(sequence).map(({ index }) => index)).toEqual([0, 1, 2]);
      for (const end of [kv.append(sequence, tokens(48)), kv.truncate(sequence, 48), kv.fork(sequence, 20)]) {
        expect(await end).toBe('interrupted');
      }
      return sequence;
    },
  },
  {
    name: 'a prefill by parts of which no part was handed out',
    blocks: 3,
    async run({ kv }) {
      return kv.begin(tokens(48), { tenant, arriving: true });
    },
  },
  {
    name: 'a prefill by parts that stops behind the first',
    blocks: 3,
    async run({ kv }) {
      const sequence = await kv.begin(tokens(48), { tenant, arriving: true });
      expect(await kv.nextPart(sequence, { maxTokens: 20 })).toEqual({ start: 0, end: 20 });
      fill(kv, sequence, [0, 1]);
      return sequence;
    },
  },
  {
    name: 'a prefill by parts whose block was lost and opened again between two parts',
    blocks: 3,
    async run({ kv, lose }) {
      const sequence = await kv.begin(tokens(48), { tenant, arriving: true });
      expect(await kv.nextPart(sequence, { maxTokens: 20 })).toEqual({ start: 0, end: 20 });
      fill(kv, sequence, [0, 1]);
      lose();
      const [{ table }] = sequence.groups;
      kv.manager.allocate(table, 0, 3, kv.nowUs());
      expect(await kv.nextPart(sequence)).toBe('interrupted');
      return sequence;
    },
  },
  {
    name: 'a prefill layer by layer that stops behind the first group',
    groups: true,
    blocks: 3,
    async run({ kv }) {
      const sequence = await kv.begin(tokens(48), { tenant, arriving: true });
      const layers = await kv.readyLayers(sequence, 0);
      expect(layers).toMatchObject({ open: [0, 1, 2] });
      fill(kv, sequence, undefined, 0);
      return sequence;
    },
  },
  {
    name: 'a block that was lost and opened again by the manager alone',
    blocks: 3,
    async run({ kv, lose }) {
      const sequence = await kv.begin(tokens(48), { tenant });
      fill(kv, sequence);
      lose();
      kv.manager.allocate(sequence.groups[0].table, 0, 3, kv.nowUs());
      return sequence;
    },
  },
];

describe('whatever the order of calls, a block that was not written is never found', () => {
  it.each(rows)('$name', async ({ groups = false, blocks: count, run }) => {
    const setting = await open(groups);
    const { kv } = setting;
    const sequence = await run(setting);
    expect(await kv.seal(sequence), 'some of it was not written').toBe('interrupted');
    expect(right(await found(kv, count * blockTokens))).toBe(true);
    await sealAsTheDocsDo(kv, sequence);
    for (let group = 0; group < sequence.groups.length; group++) {
      expect(await found(kv, count * blockTokens, group)).toEqual([1, 2, 3]);
    }
    kv.release(sequence);
    await kv.idle();
    kv.manager.checkIntegrity();
  });

  it('control: with the rule taken out, the loop publishes blocks that were not written', async () => {
    cleanups.push(takeOutTheRule());
    const wrong: string[] = [];
    for (const { name, groups = false, blocks: count, run } of rows.slice(0, 2)) {
      const setting = await open(groups);
      const sequence = await run(setting);
      await sealAsTheDocsDo(setting.kv, sequence);
      if (!right(await found(setting.kv, count * blockTokens))) wrong.push(name);
      setting.kv.release(sequence);
    }
    expect(wrong).toEqual(rows.slice(0, 2).map(({ name }) => name));
  });
});

describe('what the caller knows stays good', () => {
  it('drafts of an interrupted append are taken back, and the rest is sealed', async () => {
    const { kv } = await open();
    const sequence = await kv.begin(tokens(20), { tenant });
    fill(kv, sequence);
    expect(await kv.append(sequence, tokens(40))).toBe('done');
    expect(await kv.truncate(sequence, 18)).toBe('done');
    expect(await kv.append(sequence, tokens(32))).toBe('done');
    fill(kv, sequence);
    expect(await kv.seal(sequence)).toBe('done');
    expect(await found(kv, 32)).toEqual([1, 2]);
    kv.release(sequence);
  });

  it('parts that were handed out are sealed before the last one is, and found', async () => {
    const { kv } = await open();
    const sequence = await kv.begin(tokens(48), { tenant, arriving: true });
    await kv.nextPart(sequence, { maxTokens: 32 });
    fill(kv, sequence, [0, 1]);
    expect(await kv.seal(sequence), 'the third block is to come').toBe('interrupted');
    expect(await found(kv, 48)).toEqual([1, 2]);
    expect(await kv.nextPart(sequence)).toEqual({ start: 32, end: 48 });
    fill(kv, sequence, [2]);
    expect(await kv.nextPart(sequence)).toBeNull();
    expect(await kv.seal(sequence)).toBe('done');
    expect(await found(kv, 48)).toEqual([1, 2, 3]);
    kv.release(sequence);
  });

  it('a sealed tail is written on in a copy: what the tail had is sealed with the block', async () => {
    const { kv } = await open();
    const sequence = await kv.begin(tokens(20), { tenant });
    fill(kv, sequence);
    expect(await kv.seal(sequence, { tail: true })).toBe('done');
    expect(await kv.append(sequence, tokens(32))).toBe('done');
    expect(await byteOf(kv, sequence, 1)).toBe(2);
    expect(await kv.seal(sequence)).toBe('done');
    expect(await found(kv, 32)).toEqual([1, 2]);
    kv.release(sequence);
  });
});
