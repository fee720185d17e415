/**
 * Blocks of one format made blocks of another, beside what the kernel that writes tokens makes of the same
 * numbers: the very same bytes, and no byte beside them.
 */

import { BlockConversion, BlockTensors } from '../../../src/compute/index.ts';
import { bytesOf } from '../cases/attentionRun.ts';
import { type CaseShape, caseLayout, pagedCase } from '../cases/pagedCase.ts';
import { filled, recordAndSubmit } from './copiedBlocks.ts';

export type Dtype = NonNullable<CaseShape['dtype']>;

const shape: CaseShape = {
  headDim: 8,
  kvHeads: 2,
  qHeads: 2,
  blockTokens: 4,
  layers: 2,
  slabs: 2,
  lengths: [21],
};

/** Bytes that differ, over all slabs of the target. */
export async function wrongBytesOfConversion(device: GPUDevice, from: Dtype, to: Dtype): Promise<number> {
  const one = pagedCase({ ...shape, dtype: from });
  const target = caseLayout({ ...shape, dtype: to });
  const { layout, entries, layer } = one;
  const [tokens] = shape.lengths;
  const pool = (): GPUBuffer[] =>
    one.slabBytes.map(({ length }) => {
      const bytes = Math.ceil((length / layout.blockBytes) * target.blockBytes);
      return filled(device, new Uint8Array(Math.ceil(bytes / 16) * 16).fill(0xff));
    });
  const [source, wanted, found] = [one.slabBytes.map((bytes) => filled(device, bytes)), pool(), pool()];
  const placeOf = (entry: number) => ({ slab: entries[2 * entry], offsetBytes: entries[2 * entry + 1] });
  const moved = ({ slab, offsetBytes }: ReturnType<typeof placeOf>) => {
    return { slab, offsetBytes: (offsetBytes / layout.blockBytes) * target.blockBytes };
  };
  const blocks = Array.from({ length: entries.length / 2 }, (_, entry) => placeOf(entry));
  const pairs = blocks.map((place, i) => {
    const left = tokens - i * layout.blockTokens;
    return { from: place, to: moved(place), tokens: Math.min(left, layout.blockTokens) };
  });
  const ends = { device, from: { slabs: source, layout }, to: { slabs: found, layout: target } };
  using conversion = await BlockConversion.open({ ...ends, pairsMax: pairs.length });
  conversion.setPairs(pairs);
  recordAndSubmit(device, conversion);

  const tensors = await BlockTensors.open({ device, slabs: wanted, layout: target, tokensMax: tokens });
  const targets = Uint32Array.from(blocks.map(moved).flatMap((place) => [place.slab, place.offsetBytes]));
  const { k, v } = one.stored[0];
  const { kvHeads, headDim } = shape;
  const values = Float32Array.from({ length: tokens * 2 * kvHeads * headDim }, (_, i) => {
    const [dim, head] = [i % headDim, Math.floor(i / headDim) % kvHeads];
    const [kv, token] = [Math.floor(i / headDim / kvHeads) % 2, Math.floor(i / headDim / kvHeads / 2)];
    return [k, v][kv][(head * tokens + token) * headDim + dim];
  });
  tensors.write({ layer, entries: targets, tokens }, values);

  let wrong = 0;
  for (const [i, slab] of found.entries()) {
    const [is, should] = [await bytesOf(device, slab), await bytesOf(device, wanted[i])];
    for (let at = 0; at < is.length; at++) {
      // The layers before the case's own hold NaN in the source, whatever a format makes of it.
      const isOther = at % target.blockBytes < layer * target.layerStrideBytes;
      if (!isOther && is[at] !== should[at]) wrong++;
    }
  }
  for (const buffer of [...source, ...wanted, ...found]) buffer.destroy();
  return wrong;
}
