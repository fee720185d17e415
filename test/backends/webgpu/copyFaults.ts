/**
 * Faults in the middle of copies by threads, in the order of a seed: a pool on a device of its own moves blocks both
 * ways, and while threads copy, the device goes, the host's memory goes, a thread dies, or the pool is closed. What is
 * counted must be zero: bytes that are wrong though their item says loaded, items without an end, copies that are still
 * under way when the memory is gone.
 */

import { holdCopyThreads, letCopyThreadsGo } from '../../../src/backends/host/copyThreads.ts';
import { hostDigest } from '../../../src/backends/host/hostDigest.ts';
import { MemoryStore } from '../../../src/backends/host/memoryStore.ts';
import { openDevice } from '../../../src/backends/webgpu/adapter.ts';
import { HbmStore } from '../../../src/backends/webgpu/hbmStore.ts';
import { Outcome, poolShape } from '../../../src/runtime/index.ts';
import { fillPattern } from '../../../src/runtime/pattern.ts';
import type { StoreItem, StoreResult } from '../../../src/runtime/tier/tierStore.ts';
import { SeededRandom } from '../../../src/testing/index.ts';
import { testAdapter } from '../../adapter.ts';

const MIB = 1024 * 1024;

const faults = ['destroy', 'dispose', 'give up', 'memory', 'thread', 'close', 'none'] as const;
type CopyFault = (typeof faults)[number];

export interface CopyFaultCounts {
  /** Losses of a device while threads copied. */
  losses: number;
  loaded: number;
  refused: number;
  wrong: number;
  unended: number;
  leftUnderWay: number;
  readonly byFault: Partial<Record<CopyFault, number>>;
}

/** @param rounds each has a device, a pool and a fault of its own */
export async function copyFaults(
  seed: number,
  rounds: number,
  told: (round: number, fault: CopyFault) => void = () => {},
): Promise<CopyFaultCounts> {
  const random = new SeededRandom(seed);
  const counts: CopyFaultCounts = {
    ...{ losses: 0, loaded: 0, refused: 0, wrong: 0, unended: 0, leftUnderWay: 0 },
    byFault: {},
  };
  for (let round = 0; round < rounds; round++) {
    // two of three rounds lose the device
    const fault = faults[random.below(3) < 2 ? random.below(3) : random.below(faults.length)];
    told(round, fault);
    counts.byFault[fault] = (counts.byFault[fault] ?? 0) + 1;
    await oneRound(random, fault, counts);
  }
  return counts;
}

async function oneRound(random: SeededRandom, fault: CopyFault, counts: CopyFaultCounts): Promise<void> {
  const blockBytes = [64 * 1024, MIB, 3 * MIB + 4096][random.below(3)];
  const blocks = Math.max(6, Math.floor((8 * MIB) / blockBytes));
  const shape = poolShape(2 * blocks, blockBytes, [blockBytes]);
  const threads = await holdCopyThreads(2);
  if (threads === undefined) throw new Error('copies by threads need koffi');
  const live = await openDevice({ adapter: testAdapter });
  const hbm = await HbmStore.open(live, shape, {
    stagingBytes: [MIB, 2 * MIB, 4 * MIB][random.below(3)],
    stagingBuffers: 2 + random.below(4),
    copyThreads: 2,
  });
  const ddr = await MemoryStore.open(shape);
  const originals = Array.from({ length: blocks }, (_, slot) => {
    const bytes = ddr.view(slot, 0);
    fillPattern(
      new Uint32Array(bytes.buffer, bytes.byteOffset, bytes.byteLength / 4),
      slot,
      random.below(1000),
    );
    return bytes.slice();
  });
  const item = (from: number, bytes: Uint8Array, generation: number): StoreItem => {
    const digest = hostDigest(originals[from]);
    return { slot: from, generation, sizeClass: 0, key: new Uint32Array(4), digest, tokens: 16, bytes };
  };
  const all = Array.from({ length: blocks }, (_, i) => i);
  await hbm.write(all.map((i) => item(i, ddr.view(i, 0), 1)));
  const targets = all.map((i) => ddr.view(blocks + i, 0));
  let ended = 0;
  const note = (_: number, { outcome }: StoreResult): void => {
    ended++;
    if (outcome === Outcome.LOADED) counts.loaded++;
    else counts.refused++;
  };
  const half = all.length >> 1;
  const reads = hbm.read(
    all.slice(0, half).map((i) => item(i, targets[i], 1)),
    note,
  );
  const writes = hbm.write(
    all.slice(half).map((i) => item(i, ddr.view(i, 0), 2)),
    note,
  );
  for (let turn = random.below(3); turn > 0 || threads.underWay === 0; turn--) {
    if (ended === blocks) break;
    await new Promise((resolve) => setImmediate(resolve));
  }
  const wasUnderWay = threads.underWay > 0;
  let isGone = false;
  if (fault === 'destroy') live.device.destroy();
  else if (fault === 'dispose') void live[Symbol.asyncDispose]();
  else if (fault === 'give up') live.giveUp('a fault', new Error('gives up'));
  else if (fault === 'memory') {
    await ddr[Symbol.asyncDispose]();
    isGone = true;
  } else if (fault === 'thread') threads.letDie(random.below(2));
  const isLoss = fault === 'destroy' || fault === 'dispose' || fault === 'give up';
  if (isLoss && wasUnderWay) counts.losses++;
  if ((isLoss || isGone) && threads.underWay > 0) counts.leftUnderWay++;
  if (fault === 'close') await hbm[Symbol.asyncDispose]();
  const [read, written] = await Promise.all([reads, writes]);
  counts.unended += blocks - ended;
  read.forEach(({ outcome }, i) => {
    if (outcome === Outcome.LOADED && !isGone && Buffer.compare(targets[i], originals[i]) !== 0)
      counts.wrong++;
  });
  if (!isLoss && !isGone && fault !== 'close') {
    const back = all.slice(half).map((i) => item(i, targets[i], 2));
    const found = await hbm.read(back);
    found.forEach(({ outcome }, k) => {
      const wasWritten = written[k].outcome === Outcome.LOADED;
      const isRight = outcome === Outcome.LOADED && Buffer.compare(back[k].bytes, originals[half + k]) === 0;
      if (wasWritten && !isRight) counts.wrong++;
    });
  }
  await hbm[Symbol.asyncDispose]();
  await ddr[Symbol.asyncDispose]();
  await live[Symbol.asyncDispose]();
  letCopyThreadsGo();
}
