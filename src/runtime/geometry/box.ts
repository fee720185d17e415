/**
 * A unit of KV is a box: half-open ranges over layer, KV head and token (K and V lie side by side in every
 * cell). Tokens count from the start of the sequence, so block b is itself a box: all layers, all heads,
 * tokens [b, b + 1) * blockTokens.
 *
 * The bytes of a box, packed, are `[layer][head][K,V][token][headDim]` over its own ranges. A block's bytes
 * are thus nothing special, and one set of strides and offsets serves blocks, units and any part of either.
 *
 * A box is never empty: "nothing" is `undefined`, so no caller divides by, copies or pins an empty range.
 */

import { configError, requireInteger } from '../errors.ts';
import type { KVLayout } from './layout.ts';

export interface KVBox {
  readonly layerStart: number;
  readonly layerEnd: number;
  readonly headStart: number;
  readonly headEnd: number;
  readonly tokenStart: number;
  readonly tokenEnd: number;
}

export type Axis = 'layer' | 'head' | 'token';

export interface BoxShape {
  readonly layers: number;
  readonly heads: number;
  readonly tokens: number;
}

/** Distances in bytes between neighbours along each axis of a box's packed bytes. */
export interface BoxStrides {
  readonly layerBytes: number;
  readonly headBytes: number;
  /** From K to V. */
  readonly kvBytes: number;
  readonly tokenBytes: number;
  readonly elementBytes: number;
}

function requireRange(field: string, start: number, end: number, limit: number): void {
  requireInteger(`${field}Start`, start, 0);
  requireInteger(`${field}End`, end, 0);
  if (start >= end) {
    throw configError(`${field}End`, `is ${end}, not above ${field}Start ${start}`, 'A box holds something.');
  }
  if (end > limit) {
    throw configError(`${field}End`, `is ${end}, above ${limit}`, `Keep ${field}s below ${limit}.`);
  }
}

/** @throws TKV_CONFIG naming the range that is empty, reversed, fractional or outside the layout. */
export function requireBox(layout: KVLayout, box: KVBox): KVBox {
  requireRange('layer', box.layerStart, box.layerEnd, layout.layers);
  requireRange('head', box.headStart, box.headEnd, layout.kvHeads);
  requireRange(
    'token',
    box.tokenStart,
    box.tokenEnd,
    Math.floor(Number.MAX_SAFE_INTEGER / layout.tokenBytes),
  );
  return box;
}

/** All layers and heads of `layout` over tokens [tokenStart, tokenEnd). */
export function tokenBox(layout: KVLayout, tokenStart: number, tokenEnd: number): KVBox {
  return requireBox(layout, {
    layerStart: 0,
    layerEnd: layout.layers,
    headStart: 0,
    headEnd: layout.kvHeads,
    tokenStart,
    tokenEnd,
  });
}

/** The box of block number `block` of a sequence. */
export function blockBox(layout: KVLayout, block: number): KVBox {
  requireInteger('block', block, 0);
  return tokenBox(layout, block * layout.blockTokens, (block + 1) * layout.blockTokens);
}

export function boxShape(box: KVBox): BoxShape {
  return {
    layers: box.layerEnd - box.layerStart,
    heads: box.headEnd - box.headStart,
    tokens: box.tokenEnd - box.tokenStart,
  };
}

export function boxBytes(layout: KVLayout, box: KVBox): number {
  const cells =
    (box.layerEnd - box.layerStart) * (box.headEnd - box.headStart) * (box.tokenEnd - box.tokenStart);
  return cells * 2 * layout.rowBytes;
}

/** Strides of the packed bytes of `box`; for those inside a block ask with `blockBox`. */
export function boxStrides(layout: KVLayout, box: KVBox): BoxStrides {
  const kvBytes = (box.tokenEnd - box.tokenStart) * layout.rowBytes;
  return {
    layerBytes: (box.headEnd - box.headStart) * 2 * kvBytes,
    headBytes: 2 * kvBytes,
    kvBytes,
    tokenBytes: layout.rowBytes,
    elementBytes: layout.bytesPerElement,
  };
}

/** Byte offset, in the packed bytes of `box`, of the row of one token; `kv` is 0 for K and 1 for V. */
export function rowOffsetBytes(
  layout: KVLayout,
  box: KVBox,
  layer: number,
  head: number,
  kv: 0 | 1,
  token: number,
): number {
  const heads = box.headEnd - box.headStart;
  const tokens = box.tokenEnd - box.tokenStart;
  const column = ((layer - box.layerStart) * heads + (head - box.headStart)) * 2 + kv;
  return (column * tokens + (token - box.tokenStart)) * layout.rowBytes;
}

export function sameBox(a: KVBox, b: KVBox): boolean {
  return contains(a, b) && contains(b, a);
}

/** Whether `inner` lies wholly in `outer`. */
export function contains(outer: KVBox, inner: KVBox): boolean {
  return (
    outer.layerStart <= inner.layerStart &&
    inner.layerEnd <= outer.layerEnd &&
    outer.headStart <= inner.headStart &&
    inner.headEnd <= outer.headEnd &&
    outer.tokenStart <= inner.tokenStart &&
    inner.tokenEnd <= outer.tokenEnd
  );
}

/** What both boxes hold, or undefined. */
export function intersect(a: KVBox, b: KVBox): KVBox | undefined {
  const layerStart = Math.max(a.layerStart, b.layerStart);
  const layerEnd = Math.min(a.layerEnd, b.layerEnd);
  const headStart = Math.max(a.headStart, b.headStart);
  const headEnd = Math.min(a.headEnd, b.headEnd);
  const tokenStart = Math.max(a.tokenStart, b.tokenStart);
  const tokenEnd = Math.min(a.tokenEnd, b.tokenEnd);
  if (layerStart >= layerEnd || headStart >= headEnd || tokenStart >= tokenEnd) return undefined;
  return { layerStart, layerEnd, headStart, headEnd, tokenStart, tokenEnd };
}

const splitSides = {
  layer: (box: KVBox, at: number) => [
    { ...box, layerEnd: at },
    { ...box, layerStart: at },
  ],
  head: (box: KVBox, at: number) => [
    { ...box, headEnd: at },
    { ...box, headStart: at },
  ],
  token: (box: KVBox, at: number) => [
    { ...box, tokenEnd: at },
    { ...box, tokenStart: at },
  ],
} as const satisfies Record<Axis, (box: KVBox, at: number) => readonly [KVBox, KVBox]>;

/**
 * The part of `box` below coordinate `at` of `axis`, and the rest.
 * @throws TKV_CONFIG when `at` would leave one side empty.
 */
export function split(box: KVBox, axis: Axis, at: number): readonly [KVBox, KVBox] {
  requireInteger('at', at, box[`${axis}Start`] + 1, box[`${axis}End`] - 1);
  return splitSides[axis](box, at);
}
