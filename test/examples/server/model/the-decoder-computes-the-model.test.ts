/** The kernels of the engine beside a float64 decoder, and bit for bit beside themselves in other batches. */

import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Checkpoint, openCheckpoint } from '../../../../examples/server/engine/checkpoint/index.ts';
import { Decoder, referenceLogits } from '../../../../examples/server/engine/model/index.ts';
import { tinyModelDirectory } from '../../../../examples/server/tinyModel/make.ts';
import type { LiveDevice } from '../../../../src/backends/webgpu/device.ts';
import { type KVLayout, kvLayout } from '../../../../src/index.ts';
import { sharedLiveDevice } from '../../../sharedDevice.ts';

const blockTokens = 16;
const tokens = Array.from({ length: 70 }, (_, i) => (i * 37 + 11) % 500);

let checkpoint: Checkpoint;
let layout: KVLayout;
let live: LiveDevice;
let slab: GPUBuffer;
let decoder: Decoder;

beforeAll(async () => {
  checkpoint = openCheckpoint(tinyModelDirectory);
  const { layers, kvHeads, headDim } = checkpoint.config;
  layout = kvLayout({ layers, kvHeads, headDim, dtype: 'f32', blockTokens });
  live = await sharedLiveDevice();
  slab = live.device.createBuffer({ size: 64 * layout.blockBytes, usage: 0x80 | 0x4 | 0x8 });
  const limits = { rows: 256, samples: 128, entries: 256, contextTokens: 256 };
  decoder = await Decoder.open(live, checkpoint, layout, [slab], limits);
});
afterAll(() => {
  checkpoint.tensors.close();
  slab.destroy();
});

/** A sequence whose blocks lie in slots `first`, `first` + 3, ... */
interface Part {
  readonly slot: number;
  readonly from: number;
  readonly to: number;
}

/** The logits of all rows of a step over some parts of sequences with the same tokens. */
async function run(parts: readonly Part[], by: Decoder = decoder): Promise<Float32Array[]> {
  const rows: number[] = [];
  const entries: number[] = [];
  const ids: number[] = [];
  for (const { slot, from, to } of parts) {
    const first = entries.length / 2;
    for (let block = 0; block * blockTokens < to; block++) {
      entries.push(0, (slot + 3 * block) * layout.blockBytes);
    }
    for (let position = from; position < to; position++) {
      rows.push(position, first, 0, 0);
      ids.push(tokens[position]);
    }
  }
  const logits = await by.run({
    tokens: Uint32Array.from(ids),
    rows: Uint32Array.from(rows),
    entries: Uint32Array.from(entries),
    samples: Uint32Array.from(ids, (_, i) => i),
  });
  const { vocabulary } = checkpoint.config;
  return ids.map((_, i) => logits.slice(i * vocabulary, (i + 1) * vocabulary));
}

/** Largest difference of a logit, as a share of its row's largest. */
function largestError(logits: readonly Float32Array[], expected: readonly Float64Array[]): number {
  let worst = 0;
  logits.forEach((row, i) => {
    const largest = expected[i].reduce((most, value) => Math.max(most, Math.abs(value)), 0);
    row.forEach((value, o) => {
      worst = Math.max(worst, Math.abs(value - expected[i][o]) / largest);
    });
  });
  return worst;
}

describe('the decoder', () => {
  it('agrees with the float64 decoder to 2e-5 of the largest logit, at every token', async () => {
    const logits = await run([{ slot: 0, from: 0, to: tokens.length }]);
    const expected = referenceLogits(checkpoint, tokens);
    const worst = largestError(logits, expected);
    expect(worst).toBeLessThan(2e-5);
    expect(worst).toBeGreaterThan(0);
  });

  it('gives the same bits whatever the chunks, and whatever else is in the batch (bit-identical)', async () => {
    const whole = await run([{ slot: 0, from: 0, to: tokens.length }]);
    const cut: Float32Array[] = [];
    for (const [from, to] of [
      [0, 1],
      [1, 4],
      [4, 36],
      [36, 37],
      [37, 70],
    ]) {
      const beside = [
        { slot: 21, from: 0, to: 13 },
        { slot: 1, from, to },
        { slot: 41, from: 0, to: 5 },
      ];
      cut.push(...(await run(beside)).slice(13, 13 + to - from));
    }
    expect(cut.length).toBe(whole.length);
    cut.forEach((row, i) => {
      expect(Buffer.from(row.buffer).equals(Buffer.from(whole[i].buffer)), `token ${i}`).toBe(true);
    });
  });

  it('agrees with it with a sliding window that ends within blocks, and with a head of its own', async () => {
    const { tensors, config } = checkpoint;
    const head = tensors.read('model.embed_tokens.weight').map((value, i) => value + ((i % 7) - 3) / 16);
    const other: Checkpoint = {
      config: { ...config, window: 21, tied: false },
      tensors: {
        path: tensors.path,
        names: tensors.names,
        shape: (name) => tensors.shape(name),
        read: (name) => (name === 'lm_head.weight' ? head : tensors.read(name)),
        close: () => {},
      },
    };
    const limits = { rows: 256, samples: 128, entries: 256, contextTokens: 256 };
    const windowed = await Decoder.open(live, other, layout, [slab], limits);
    const logits = await run([{ slot: 0, from: 0, to: tokens.length }], windowed);
    expect(largestError(logits, referenceLogits(other, tokens))).toBeLessThan(2e-5);
    expect(largestError(logits, referenceLogits({ ...other, config }, tokens))).toBeGreaterThan(1e-2);
    const wider = { ...other, config: { ...other.config, window: 22 } };
    expect(largestError(logits, referenceLogits(wider, tokens))).toBeGreaterThan(1e-4);
  });

  it('gives other logits when one row of K is another one', async () => {
    const before = await run([{ slot: 0, from: 69, to: 70 }]);
    live.device.queue.writeBuffer(slab, 5 * layout.rowBytes, new Float32Array(layout.headDim).fill(0.5));
    const after = await run([{ slot: 0, from: 69, to: 70 }]);
    expect(after[0]).not.toEqual(before[0]);
  });
});
