/**
 * What a decode step may read and write while seals are under way: its own blocks stay readable, a tail that
 * is being sealed is not written on, and every block that a step opens is there, and clear, when it ends.
 */

import { describe, expect, it } from 'vitest';
import type { KVRuntime, KVSequence } from '../../../src/index.ts';
import { OpenBlock } from '../../../src/runtime/index.ts';
import { LoadedBlock, SealingBlock } from '../../../src/runtime/manager/sequence.ts';
import { blocks, byteOf, layout, openRuntime } from '../liveRuntime.ts';

const tenant = 'alice';
const tokensOf = (count: number, from = 0): Uint32Array =>
  Uint32Array.from({ length: count }, (_, i) => from + i);

function writeOpen(kv: KVRuntime, sequence: KVSequence, byte: number): void {
  for (const { index } of kv.openBlocks(sequence)) write(kv, sequence, index, byte);
}

function write(kv: KVRuntime, sequence: KVSequence, index: number, byte: number): void {
  const { buffer, offsetBytes, sizeBytes } = kv.slot(sequence, index);
  kv.device.queue.writeBuffer(buffer, offsetBytes, new Uint8Array(sizeBytes).fill(byte));
}

async function begun(kv: KVRuntime, tokens: Uint32Array, byte: number, who = tenant): Promise<KVSequence> {
  const sequence = await kv.begin(tokens, { tenant: who });
  writeOpen(kv, sequence, byte);
  return sequence;
}

const kinds = (kv: KVRuntime, sequence: KVSequence): string[] =>
  kv.blockTable(sequence).blocks.map((block) => {
    if (LoadedBlock.is(block)) return 'loaded';
    return OpenBlock.is(block) ? 'open' : SealingBlock.is(block) ? 'sealing' : 'none';
  });

describe('a block table while a seal is under way', () => {
  it('has the blocks that are being sealed, at the places where they were written', async () => {
    await using kv = await openRuntime({});
    const sequence = await begun(kv, tokensOf(40), 5);
    const before = kv.deviceBlockTable(sequence);
    const sealed = kv.seal(sequence);
    expect(kinds(kv, sequence)).toEqual(['sealing', 'sealing', 'open']);
    expect(
      kv.openBlocks(sequence).map(({ index }) => index),
      'they are no longer written',
    ).toEqual([2]);
    expect(kv.deviceBlockTable(sequence)).toEqual(before);
    expect(await byteOf(kv, sequence, 0)).toBe(5);
    await sealed;
    expect(kinds(kv, sequence)).toEqual(['loaded', 'loaded', 'open']);
    expect(kv.deviceBlockTable(sequence)).toEqual(before);
    kv.release(sequence);
  });

  it('has them also behind a decode step, and where another copy of the same block was first', async () => {
    await using kv = await openRuntime({});
    const first = await begun(kv, tokensOf(33), 5);
    const second = await kv.begin(tokensOf(32), { tenant, shareWaitMs: 0 });
    writeOpen(kv, second, 5);
    await kv.seal(first);
    expect(await kv.step([{ sequence: second, tokens: [32] }])).toEqual(['done']);
    const before = kv.deviceBlockTable(second);
    expect(kinds(kv, second)).toEqual(['sealing', 'sealing', 'open']);
    await kv.idle();
    expect(kinds(kv, second)).toEqual(['loaded', 'loaded', 'open']);
    expect(kv.manager.inspect.counters.aliases).toBe(2);
    expect(kv.deviceBlockTable(second), 'a second copy keeps its slot').toEqual(before);
    expect(kv.slot(second, 0)).not.toEqual(kv.slot(first, 0));
    kv.release(first);
    kv.release(second);
  });

  it('is refused once the device that held them is lost, rather than made with a gap', async () => {
    await using kv = await openRuntime({});
    const sequence = await begun(kv, tokensOf(40), 5);
    const sealed = kv.seal(sequence);
    kv.device.destroy();
    expect(await sealed).toBe('interrupted');
    expect(() => kv.blockTable(sequence)).toThrow(/block 0 is not in HBM.*recover/);
    expect(() => kv.slot(sequence, 0)).toThrow(/block 0 is not in HBM/);
    kv.release(sequence);
  });
});

describe('a decode step', () => {
  it('goes on in a copy of a tail whose seal it did not wait for; others find the tail as it was', async () => {
    await using kv = await openRuntime({ ddrBytes: blocks(20) });
    const sequence = await begun(kv, tokensOf(20), 5);
    const sealed = kv.seal(sequence, { tail: true });
    expect(kinds(kv, sequence)).toEqual(['sealing', 'sealing']);
    expect(await kv.step([{ sequence, tokens: [20] }])).toEqual(['done']);
    expect(kinds(kv, sequence)).toEqual(['loaded', 'open']);
    write(kv, sequence, 1, 9);
    await sealed;
    kv.release(sequence);
    kv.manager.evict(0, 4, kv.nowUs()); // what comes back is compared with the digest of its seal
    await kv.idle();
    const next = await kv.begin(tokensOf(30), { tenant });
    expect(next.cachedTokens).toBe(20);
    expect(await byteOf(kv, next, 1)).toBe(5);
    expect(kv.metrics().counters['loadsFailed.corrupt']).toBe(0);
    kv.release(next);
    kv.manager.checkIntegrity();
  });

  it('of several tokens over a sealed tail ends with the copy of it and all new blocks in place', async () => {
    await using kv = await openRuntime({});
    const sequence = await begun(kv, tokensOf(20), 5);
    await kv.seal(sequence, { tail: true });
    expect(await kv.step([{ sequence, tokens: tokensOf(40, 20) }])).toEqual(['done']);
    expect(kinds(kv, sequence)).toEqual(['loaded', 'open', 'open', 'open']);
    expect(await byteOf(kv, sequence, 1)).toBe(5);
    kv.release(sequence);
  });

  it('clears every block that it takes over from another tenant, also blocks that waited for a slot', async () => {
    await using kv = await openRuntime({ hbmBytes: blocks(8), ddrBytes: blocks(20) });
    const other = await begun(kv, tokensOf(7 * layout.blockTokens), 0xaa, 'bob');
    await kv.seal(other);
    kv.release(other);
    const sequence = await begun(kv, tokensOf(16), 5);
    await kv.seal(sequence);
    const stepping = kv.step([{ sequence, tokens: tokensOf(40, 16) }]);
    expect(() => kv.slot(sequence, 1), 'the slots leave for DDR first').toThrow(/not in HBM|has 1 block\./);
    expect(await stepping).toEqual(['done']);
    expect(kinds(kv, sequence)).toEqual(['loaded', 'open', 'open', 'open']);
    for (const index of [1, 2, 3]) expect(await byteOf(kv, sequence, index), `block ${index}`).toBe(0);
    kv.release(sequence);
  });

  it('says interrupted of a sequence that was cancelled while it waited, and grows the others', async () => {
    await using kv = await openRuntime({});
    const gone = await begun(kv, tokensOf(20), 5);
    const stays = await begun(kv, tokensOf(20, 1000), 6);
    void kv.seal(gone, { tail: true });
    const stepping = kv.step([gone, stays].map((sequence) => ({ sequence, tokens: [7] })));
    kv.cancel(gone);
    expect(await stepping).toEqual(['interrupted', 'done']);
    expect([gone.length, stays.length]).toEqual([20, 21]);
    kv.release(stays);
    await kv.idle();
    kv.manager.checkIntegrity();
  });
});
