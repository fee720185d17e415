/**
 * Runs: the fewest contiguous byte ranges that a box takes up inside the packed bytes of a larger box, most
 * often a block. They are sorted, disjoint, and never touch each other. From the order
 * `[layer][head][K,V][token]` it follows that, with T = "the box has all tokens of its container" and H = "it
 * has all heads":
 *
 *     T and H       1 run                  (a block, a LAYER unit of a block)
 *     T, not H      one run a layer        (a HEAD unit of a block)
 *     not T         one run a row group    (layers × heads × K,V)
 *
 * Runs go into an array that the caller owns, so a transfer plan of thousands of runs leaves no garbage.
 */

import { invariant } from '../errors.ts';
import { boxBytes, contains, type KVBox, rowOffsetBytes } from './box.ts';
import type { KVLayout } from './layout.ts';

/** Float64Array for containers of 2 GiB and more; every block fits either. */
type RunArray = Int32Array | Float64Array;

/** Values that `writeRuns` stores for each run: offset and length in bytes. */
const valuesPerRun = 2;
/**
 * Values that `writeCopyRuns` stores for each run: offset in the source, offset in the destination, length,
 * in bytes.
 */
export const valuesPerCopyRun = 3;

interface MutableBox {
  layerStart: number;
  layerEnd: number;
  headStart: number;
  headEnd: number;
  tokenStart: number;
  tokenEnd: number;
}

function hasAllTokens(box: KVBox, container: KVBox): boolean {
  return box.tokenStart === container.tokenStart && box.tokenEnd === container.tokenEnd;
}

function hasAllHeads(box: KVBox, container: KVBox): boolean {
  return box.headStart === container.headStart && box.headEnd === container.headEnd;
}

/** Runs of `box` when each run must be contiguous in both containers; pass one twice for its own runs. */
export function countRuns(box: KVBox, container: KVBox, other: KVBox = container): number {
  const layers = box.layerEnd - box.layerStart;
  if (!hasAllTokens(box, container) || !hasAllTokens(box, other)) {
    return layers * (box.headEnd - box.headStart) * 2;
  }
  return hasAllHeads(box, container) && hasAllHeads(box, other) ? 1 : layers;
}

/**
 * Writes (offset, bytes) of each run of `box` within the packed bytes of `container` to `out`, from index
 * `at` on.
 * @returns the number of runs, `countRuns(box, container)`.
 */
export function writeRuns(
  layout: KVLayout,
  box: KVBox,
  container: KVBox,
  out: RunArray,
  at: number = 0,
): number {
  invariant(contains(container, box), 'a box has runs only in a box that contains it');
  requireRoom(layout, container, out);
  const count = countRuns(box, container);
  invariant(at + count * valuesPerRun <= out.length, () => `${count} runs do not fit the array given`);
  const bytes = boxBytes(layout, box) / count;
  for (let run = 0, index = at; run < count; run++) {
    out[index++] = runOffsetBytes(layout, box, container, run, count);
    out[index++] = bytes;
  }
  return count;
}

const blockPart: MutableBox = {
  layerStart: 0,
  layerEnd: 0,
  headStart: 0,
  headEnd: 0,
  tokenStart: 0,
  tokenEnd: 0,
};
const wholeBlock: MutableBox = { ...blockPart };

/**
 * Writes the runs of the part of `box` that lies in block number `block` of the sequence, as offsets in that
 * block.
 * @returns the number of runs, 0 when the box has nothing in this block.
 */
export function writeBlockRuns(
  layout: KVLayout,
  box: KVBox,
  block: number,
  out: RunArray,
  at: number = 0,
): number {
  wholeBlock.layerEnd = layout.layers;
  wholeBlock.headEnd = layout.kvHeads;
  wholeBlock.tokenStart = block * layout.blockTokens;
  wholeBlock.tokenEnd = wholeBlock.tokenStart + layout.blockTokens;
  blockPart.layerStart = box.layerStart;
  blockPart.layerEnd = box.layerEnd;
  blockPart.headStart = box.headStart;
  blockPart.headEnd = box.headEnd;
  blockPart.tokenStart = Math.max(box.tokenStart, wholeBlock.tokenStart);
  blockPart.tokenEnd = Math.min(box.tokenEnd, wholeBlock.tokenEnd);
  if (blockPart.tokenStart >= blockPart.tokenEnd) return 0;
  return writeRuns(layout, blockPart, wholeBlock, out, at);
}

/**
 * Writes (offset in `source`, offset in `destination`, bytes) of each piece that one contiguous copy can move
 * when `box` goes from the packed bytes of one box to those of another: gather from blocks into a unit, or
 * scatter back.
 * @returns the number of pieces, `countRuns(box, source, destination)`.
 */
export function writeCopyRuns(
  layout: KVLayout,
  box: KVBox,
  source: KVBox,
  destination: KVBox,
  out: RunArray,
  at: number = 0,
): number {
  invariant(contains(source, box) && contains(destination, box), 'both ends of a copy contain its box');
  requireRoom(layout, source, out);
  requireRoom(layout, destination, out);
  const count = countRuns(box, source, destination);
  invariant(at + count * valuesPerCopyRun <= out.length, () => `${count} runs do not fit the array given`);
  const bytes = boxBytes(layout, box) / count;
  for (let run = 0, index = at; run < count; run++) {
    out[index++] = runOffsetBytes(layout, box, source, run, count);
    out[index++] = runOffsetBytes(layout, box, destination, run, count);
    out[index++] = bytes;
  }
  return count;
}

/** Run number `run` of `count` starts a layer, or one head's K or V, depending on how many there are. */
function runOffsetBytes(layout: KVLayout, box: KVBox, container: KVBox, run: number, count: number): number {
  const perLayer = count / (box.layerEnd - box.layerStart);
  if (perLayer <= 1) {
    return rowOffsetBytes(layout, container, box.layerStart + run, box.headStart, 0, box.tokenStart);
  }
  const layer = Math.floor(run / perLayer);
  const column = run - layer * perLayer;
  return rowOffsetBytes(
    layout,
    container,
    box.layerStart + layer,
    box.headStart + (column >> 1),
    (column & 1) as 0 | 1,
    box.tokenStart,
  );
}

function requireRoom(layout: KVLayout, container: KVBox, out: RunArray): void {
  invariant(
    out instanceof Float64Array || boxBytes(layout, container) <= 2 ** 31 - 1,
    'offsets of 2 GiB and more need a Float64Array',
  );
}
