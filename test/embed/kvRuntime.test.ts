import { afterEach, describe, expect, it } from 'vitest';
import { KVRuntime, type KVSequence } from '../../src/index.ts';
import { type BlockTable, kvLayout, type OpenBlock } from '../../src/runtime/index.ts';
import type { LoadedBlock, SealingBlock } from '../../src/runtime/manager/sequence.ts';
import { sharedDevice } from '../sharedDevice.ts';

const layout = kvLayout({ layers: 2, kvHeads: 2, headDim: 32, dtype: 'f16', blockTokens: 16 });
const tokens = (count: number, from = 0): Uint32Array =>
  Uint32Array.from({ length: count }, (_, i) => from + i);

let kv: KVRuntime | undefined;
afterEach(async () => {
  await kv?.[Symbol.asyncDispose]();
  kv = undefined;
});

async function open(hbmBlocks: number, ddrBlocks = 0): Promise<KVRuntime> {
  kv = await KVRuntime.open({
    layout,
    model: 'test@1',
    secretKey: new Uint8Array(32).fill(3),
    hbmBytes: hbmBlocks * layout.blockBytes,
    device: sharedDevice,
    ...(ddrBlocks === 0 ? {} : { ddrBytes: ddrBlocks * layout.blockBytes }),
  });
  return kv;
}

async function compute(runtime: KVRuntime, sequence: KVSequence): Promise<void> {
  for (const { index } of runtime.openBlocks(sequence)) {
    const { buffer, offsetBytes, sizeBytes } = runtime.slot(sequence, index);
    runtime.device.queue.writeBuffer(buffer, offsetBytes, new Uint8Array(sizeBytes).fill(index + 1));
  }
  await runtime.seal(sequence);
}

describe('a sequence', () => {
  it('finds the part of its prompt that another of the same tenant computed, and leaves the last token to compute', async () => {
    const runtime = await open(10);
    const first = await runtime.begin(tokens(64), { tenant: 'red' });
    expect(first.cachedTokens).toBe(0);
    await compute(runtime, first);
    runtime.release(first);
    const same = await runtime.begin(tokens(64), { tenant: 'red' });
    expect(same.cachedTokens).toBe(48);
    const longer = await runtime.begin(tokens(80), { tenant: 'red' });
    expect(longer.cachedTokens).toBe(64);
    const other = await runtime.begin(tokens(16), { tenant: 'blue' });
    expect(other.cachedTokens).toBe(0);
    for (const sequence of [same, longer, other]) runtime.release(sequence);
  });

  it('grows with what is generated, and the next turn finds that too', async () => {
    const runtime = await open(10);
    const sequence = await runtime.begin(tokens(20), { tenant: 'red' });
    await compute(runtime, sequence);
    for (let count = 21; count <= 49; count++) {
      await runtime.append(sequence, tokens(count));
      await compute(runtime, sequence);
    }
    expect(sequence.blocks).toBe(4);
    runtime.release(sequence);
    expect(runtime.lookup(tokens(49), { tenant: 'red' }).blocks).toBe(3);
  });

  it('that HBM has no room for is refused, naming the setting, and leaves the others alone', async () => {
    const runtime = await open(4);
    const first = await runtime.begin(tokens(48), { tenant: 'red' });
    await expect(runtime.begin(tokens(48, 1000), { tenant: 'red' })).rejects.toThrow(
      /find no room in HBM now.*let begin wait/,
    );
    await compute(runtime, first);
    expect(runtime.blockTable(first).length).toBe(3);
    runtime.release(first);
    const second = await runtime.begin(tokens(48, 1000), { tenant: 'red' });
    expect(runtime.openBlocks(second)).toHaveLength(3);
    runtime.release(second);
  });
});

describe('a block table', () => {
  it('holds every block of the sequence in order', async () => {
    const runtime = await open(10);
    const sequence = await runtime.begin(tokens(50), { tenant: 'red' });
    await compute(runtime, sequence);
    const table: BlockTable = runtime.blockTable(sequence);
    const slots = [0, 1, 2, 3].map((i) => runtime.slot(sequence, i).offsetBytes / layout.blockBytes);
    expect([...table.slots()]).toEqual(slots);
    runtime.release(sequence);
  });

  it('takes blocks that the manager vouches for, and nothing that looks like one', async () => {
    const runtime = await open(10);
    const sequence = await runtime.begin(tokens(16), { tenant: 'red' });
    const table = runtime.blockTable(sequence);
    // @ts-expect-error a place is not yet a block that may be read
    const forged: LoadedBlock = { slot: 0, generation: 1, sizeClass: 0 };
    // @ts-expect-error nor one that may be written
    const alsoForged: OpenBlock = { slot: 0, generation: 1, sizeClass: 0 };
    // @ts-expect-error nor one whose digest is being taken
    const forgedToo: SealingBlock = { slot: 0, generation: 1, sizeClass: 0 };
    expect(table.length).toBe(1);
    expect([forged, alsoForged, forgedToo]).toHaveLength(3);
    runtime.release(sequence);
  });
});

describe('settings', () => {
  it('too small for a block are an error that names them', async () => {
    await expect(open(0)).rejects.toThrow(/hbmBytes is 0, less than a block/);
    const badKey = KVRuntime.open({ layout, model: 'm', secretKey: new Uint8Array(8), hbmBytes: 2 ** 20 });
    await expect(badKey).rejects.toThrow(/secretKey/);
  });
});
