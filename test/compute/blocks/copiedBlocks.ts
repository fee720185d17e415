/** Blocks of random bits in slabs, copies of some of them, and what the host says must lie there then. */

import { BufferUsage } from '../../../src/backends/webgpu/device.ts';
import type { BlockPair, PairedPlace } from '../../../src/compute/blocks.ts';
import { BlockCopies } from '../../../src/compute/index.ts';
import type { KVLayout } from '../../../src/runtime/geometry/layout.ts';
import { SeededRandom } from '../../../src/testing/index.ts';
import { bytesOf } from '../cases/attentionRun.ts';

const blocksOfSlab = 5;

/** Within a slab and between slabs, one source twice, none, one, some and all tokens. */
export function somePairs({ blockBytes, blockTokens }: KVLayout): BlockPair[] {
  const at = (slab: number, block: number): PairedPlace => ({ slab, offsetBytes: block * blockBytes });
  return [
    { from: at(0, 1), to: at(0, 3) },
    { from: at(0, 1), to: at(2, 4), tokens: blockTokens - 1 },
    { from: at(2, 0), to: at(1, 2), tokens: 1 },
    { from: at(1, 4), to: at(1, 1), tokens: 0 },
    { from: at(2, 1), to: at(0, 0), tokens: blockTokens },
  ];
}

export async function wrongBytesOfCopies(device: GPUDevice, layout: KVLayout, seed: number): Promise<number> {
  const random = new SeededRandom(seed);
  const before = Array.from({ length: 3 }, () => {
    const words = Uint32Array.from({ length: (blocksOfSlab * layout.blockBytes) / 4 }, () => random.word());
    return new Uint8Array(words.buffer);
  });
  const slabs = before.map((bytes) => filled(device, bytes));
  const pairs = somePairs(layout);
  using copies = await BlockCopies.open({ device, slabs, layout, pairsMax: pairs.length });
  copies.setPairs(pairs);
  recordAndSubmit(device, copies);
  const wanted = before.map((bytes) => bytes.slice());
  for (const { from, to, tokens = layout.blockTokens } of pairs) {
    for (const row of rowsOfBlock(layout, tokens)) {
      const source = from.offsetBytes + row;
      const bytes = before[from.slab].subarray(source, source + layout.rowBytes);
      wanted[to.slab].set(bytes, to.offsetBytes + row);
    }
  }
  let wrong = 0;
  for (const [i, slab] of slabs.entries()) {
    const found = await bytesOf(device, slab);
    wrong += found.filter((byte, at) => byte !== wanted[i][at]).length;
    slab.destroy();
  }
  return wrong;
}

/** Where the rows of the first tokens begin in a block. */
export function rowsOfBlock(layout: KVLayout, tokens: number): number[] {
  const rows: number[] = [];
  for (let layer = 0; layer < layout.layers; layer++) {
    for (let head = 0; head < layout.kvHeads; head++) {
      for (const kv of [0, 1]) {
        for (let token = 0; token < tokens; token++) {
          const plane = layer * layout.layerStrideBytes + head * layout.headStrideBytes;
          rows.push(plane + kv * layout.kvStrideBytes + token * layout.rowBytes);
        }
      }
    }
  }
  return rows;
}

export function filled(device: GPUDevice, bytes: Uint8Array<ArrayBuffer>): GPUBuffer {
  const usage = BufferUsage.STORAGE | BufferUsage.COPY_SRC | BufferUsage.COPY_DST;
  const buffer = device.createBuffer({ size: bytes.length, usage });
  device.queue.writeBuffer(buffer, 0, bytes);
  return buffer;
}

export function recordAndSubmit(
  device: GPUDevice,
  work: { record(pass: GPUComputePassEncoder): void },
): void {
  const encoder = device.createCommandEncoder();
  const pass = encoder.beginComputePass();
  work.record(pass);
  pass.end();
  device.queue.submit([encoder.finish()]);
}
