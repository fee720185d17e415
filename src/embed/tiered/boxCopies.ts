/**
 * Bytes of boxes between a block's packed bytes and those of its units: `[layer][head][K,V][token][headDim]`
 * over the ranges of each.
 */

import {
  boxBytes,
  countRuns,
  intersect,
  type KVBlockDescriptor,
  type KVBox,
  type KVLayout,
  type PoolUnit,
  valuesPerCopyRun,
  writeCopyRuns,
} from '../../runtime/index.ts';

/** Copies what both boxes hold. @returns the part that both hold, or undefined */
export function copyBox(
  layout: KVLayout,
  from: { readonly box: KVBox; readonly bytes: Uint8Array },
  to: { readonly box: KVBox; readonly bytes: Uint8Array },
): KVBox | undefined {
  const part = intersect(from.box, to.box);
  if (part === undefined) return undefined;
  const runs = new Float64Array(countRuns(part, from.box, to.box) * valuesPerCopyRun);
  const count = writeCopyRuns(layout, part, from.box, to.box, runs);
  for (let run = 0; run < count; run++) {
    const [source, target, bytes] = runs.subarray(run * valuesPerCopyRun, (run + 1) * valuesPerCopyRun);
    to.bytes.set(from.bytes.subarray(source, source + bytes), target);
  }
  return part;
}

/**
 * A block's layers and heads need not lie side by side in the model, but they do in its packed bytes: there
 * the first layer is 0, and so on.
 */
export function packedBox({ layerIds, headIds, tokenRange }: KVBlockDescriptor): KVBox {
  return {
    layerStart: 0,
    layerEnd: layerIds.length,
    headStart: 0,
    headEnd: headIds.length,
    tokenStart: tokenRange[0],
    tokenEnd: tokenRange[1],
  };
}

/** All of a unit, counted as `packedBox` counts. */
export function unitInBlock({ layerIds, headIds }: KVBlockDescriptor, { track, unit }: PoolUnit): KVBox {
  const { layerStart, layerEnd, headStart, headEnd, tokensPerUnit } = track.column;
  const layer = layerIds.indexOf(layerStart);
  const head = headIds.indexOf(headStart);
  return {
    layerStart: layer,
    layerEnd: layer + layerEnd - layerStart,
    headStart: head,
    headEnd: head + headEnd - headStart,
    tokenStart: unit * tokensPerUnit,
    tokenEnd: (unit + 1) * tokensPerUnit,
  };
}

export function bytesOfBox(layout: KVLayout, box: KVBox): Uint8Array {
  return new Uint8Array(boxBytes(layout, box));
}
