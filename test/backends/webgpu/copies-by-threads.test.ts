/**
 * Transfers whose bytes threads copy to and from mapped buffers, and what may happen in the middle of a part: the device
 * is lost, the pool is closed, a job is late, memory is detached, a thread dies. Every byte that is said to be loaded is
 * right, and every item ends.
 */

import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { TransferEngine } from '../../../src/backends/engine/transferEngine.ts';
import {
  type CopyThreads,
  holdCopyThreads,
  letCopyThreadsGo,
} from '../../../src/backends/host/copyThreads.ts';
import { hostDigest } from '../../../src/backends/host/hostDigest.ts';
import { MemoryStore } from '../../../src/backends/host/memoryStore.ts';
import { openDevice } from '../../../src/backends/webgpu/adapter.ts';
import type { LiveDevice } from '../../../src/backends/webgpu/device.ts';
import { HbmStore } from '../../../src/backends/webgpu/hbmStore.ts';
import { Outcome, poolShape, Tier, type Transfer } from '../../../src/runtime/index.ts';
import { fillPattern } from '../../../src/runtime/pattern.ts';
import { issuedJobs } from '../../../src/runtime/tier/driver.ts';
import type { StoreItem } from '../../../src/runtime/tier/tierStore.ts';
import { testAdapter } from '../../adapter.ts';

const MIB = 1024 * 1024;
const BLOCKS = 16;
const shape = poolShape(2 * BLOCKS, 2 * MIB, [2 * MIB]);
const narrow = { stagingBytes: 4 * MIB, stagingBuffers: 4, copyThreads: 2 };

interface Rig {
  readonly live: LiveDevice;
  readonly hbm: HbmStore;
  readonly ddr: MemoryStore;
}

let threads: CopyThreads;
let rig: Rig;
beforeEach(async () => {
  threads = (await holdCopyThreads(2)) as CopyThreads;
  const live = await openDevice({ adapter: testAdapter });
  const [hbm, ddr] = [await HbmStore.open(live, shape, narrow), await MemoryStore.open(shape)];
  for (let slot = 0; slot < BLOCKS; slot++) {
    const bytes = ddr.view(slot, 0);
    fillPattern(new Uint32Array(bytes.buffer, bytes.byteOffset, bytes.byteLength / 4), slot, 1);
    ddr.markWritten(slot, 1);
  }
  rig = { live, hbm, ddr };
});
afterEach(async () => {
  await rig.hbm[Symbol.asyncDispose]();
  await rig.ddr[Symbol.asyncDispose]();
  await rig.live[Symbol.asyncDispose]();
  letCopyThreadsGo();
});

/** The block of slot `from` as it lies in host memory, for slot `slot` of the device. */
function itemOf(from: number, slot: number, bytes: Uint8Array = rig.ddr.view(from, 0)): StoreItem {
  const digest = hostDigest(rig.ddr.view(from, 0));
  return { slot, generation: 1, sizeClass: 0, key: new Uint32Array(4), digest, tokens: 16, bytes };
}

const up = (): StoreItem[] => Array.from({ length: BLOCKS }, (_, i) => itemOf(i, i));
const down = (): StoreItem[] =>
  Array.from({ length: BLOCKS }, (_, i) => itemOf(i, i, rig.ddr.view(BLOCKS + i, 0)));

function expectRight(i: number): void {
  expect(Buffer.compare(rig.ddr.view(BLOCKS + i, 0), rig.ddr.view(i, 0))).toBe(0);
}

/** Turns of the event loop until threads have parts. */
async function untilUnderWay(): Promise<void> {
  while (threads.underWay === 0) await new Promise((resolve) => setImmediate(resolve));
}

it('brings the bytes there and back, and says how many threads it has', async () => {
  expect(rig.hbm.describe().copyThreads).toBe(2);
  const written = rig.hbm.write(up());
  await untilUnderWay();
  expect((await written).every(({ outcome }) => outcome === Outcome.LOADED)).toBe(true);
  const read = rig.hbm.read(down());
  await untilUnderWay();
  expect((await read).every(({ outcome }) => outcome === Outcome.LOADED)).toBe(true);
  for (let i = 0; i < BLOCKS; i++) expectRight(i);
  expect(threads.underWay).toBe(0);
});

it('keeps the order of a line: a later write of a slot is what is read', async () => {
  for (let round = 1; round <= 4; round++) {
    const items = up().map((item, i) => ({
      ...itemOf((i + round) % BLOCKS, item.slot),
      generation: round,
    }));
    expect((await rig.hbm.write(items)).every(({ outcome }) => outcome === Outcome.LOADED)).toBe(true);
    const back = down().map((item, i) => ({ ...item, digest: items[i].digest, generation: round }));
    expect((await rig.hbm.read(back)).every(({ outcome }) => outcome === Outcome.LOADED)).toBe(true);
    for (let i = 0; i < BLOCKS; i++) {
      expect(Buffer.compare(rig.ddr.view(BLOCKS + i, 0), rig.ddr.view((i + round) % BLOCKS, 0))).toBe(0);
    }
  }
});

describe.each(['write', 'read'] as const)('in the middle of a %s', (kind) => {
  beforeEach(async () => {
    if (kind === 'read') await rig.hbm.write(up());
  });
  const begin = () => (kind === 'write' ? rig.hbm.write(up()) : rig.hbm.read(down()));

  it.each(['destroy', 'dispose', 'give up'] as const)(
    'the device goes by %s: every item ends',
    async (how) => {
      const call = begin();
      await untilUnderWay();
      if (how === 'destroy') rig.live.device.destroy();
      else if (how === 'dispose') void rig.live[Symbol.asyncDispose]();
      else rig.live.giveUp('a test', new Error('gives up'));
      expect(threads.underWay).toBe(0); // nothing copies any more when the call returns
      const ends = await call;
      for (const { outcome, reason } of ends) {
        if (outcome !== Outcome.LOADED) expect(reason).toMatch(/device (lost|was)|failed/);
      }
      expect(ends.some(({ outcome }) => outcome === Outcome.REFUSED)).toBe(true);
      ends.forEach(({ outcome }, i) => {
        if (kind === 'read' && outcome === Outcome.LOADED) expectRight(i);
      });
    },
  );

  it('the pool is closed: it waits, and all bytes arrive', async () => {
    const call = begin();
    await untilUnderWay();
    await rig.hbm[Symbol.asyncDispose]();
    expect((await call).every(({ outcome }) => outcome === Outcome.LOADED)).toBe(true);
    if (kind === 'read') for (let i = 0; i < BLOCKS; i++) expectRight(i);
  });

  it('host memory is given back: what was not copied is refused, and no byte comes behind', async () => {
    const call = begin();
    await untilUnderWay();
    const views = Array.from({ length: 2 * BLOCKS }, (_, slot) => rig.ddr.view(slot, 0));
    await rig.ddr[Symbol.asyncDispose]();
    const ends = await call;
    for (const { outcome } of ends)
      expect([Outcome.LOADED, Outcome.REFUSED, Outcome.CORRUPT]).toContain(outcome);
    if (kind === 'write') expect(views.every((view) => view.every((byte) => byte === 0))).toBe(true);
  });

  it('a thread dies: the bytes are right', async () => {
    threads.letDie(1);
    expect((await begin()).every(({ outcome }) => outcome === Outcome.LOADED)).toBe(true);
    threads.letDie(0);
    const again = kind === 'write' ? rig.hbm.read(down()) : rig.hbm.read(down());
    expect((await again).every(({ outcome }) => outcome === Outcome.LOADED)).toBe(true);
    for (let i = 0; i < BLOCKS; i++) expectRight(i);
  });
});

it('memory of an embedder, which may be detached at any time, is copied by the main thread alone', async () => {
  const own = Array.from({ length: BLOCKS }, (_, i) => rig.ddr.view(i, 0).slice());
  const write = rig.hbm.write(own.map((bytes, i) => itemOf(i, i, bytes)));
  await new Promise((resolve) => setImmediate(resolve));
  expect(threads.underWay).toBe(0);
  for (const { buffer } of own) structuredClone(buffer, { transfer: [buffer] });
  for (const { outcome, reason } of await write) {
    if (outcome === Outcome.REFUSED) expect(reason).toMatch(/taken away/);
    else expect(outcome).toBe(Outcome.LOADED);
  }
});

it('a job that is late under way keeps its slot until the copy has ended', async () => {
  let nowMs = 0;
  const engine = new TransferEngine({ hbm: rig.hbm, ddr: rig.ddr }, null, () => nowMs);
  const ends: number[] = [];
  const all = new Promise<void>((resolve) => {
    engine.onEnd(({ outcome }) => {
      ends.push(outcome);
      if (ends.length === BLOCKS) resolve();
    });
  });
  const transfers = up().map(
    (item, i): Transfer => ({
      job: (i + 1) as Transfer['job'],
      kind: 'move',
      source: { tier: Tier.DDR, slot: i, generation: 1 },
      target: { tier: Tier.HBM, slot: i, generation: 1 },
      sizeClass: 0,
      bytes: 2 * MIB,
      key: item.key,
      digest: item.digest,
      priority: 0,
      deadlineUs: 1000,
    }),
  );
  engine.submit(issuedJobs(transfers));
  await untilUnderWay();
  const before = ends.length;
  nowMs = 5000;
  engine.expire();
  expect(ends.length).toBe(before); // a copy under way is not cut off
  expect(engine.overdue).toBeGreaterThan(0);
  await all;
  expect(ends.filter((outcome) => outcome === Outcome.LOADED).length).toBeGreaterThan(0);
  expect(engine.inFlight).toBe(0);
});
