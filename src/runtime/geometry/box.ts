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

import { configError, invariant, requireInteger } from '../errors.ts';
import * as is from '../kinds.ts';
import { checkInputs, type Kinds, optionTable } from '../options.ts';
import { type KVLayout, requireKVLayout } from './layout.ts';

/** Kinds of the arguments, by the names of parameters. */
const inputs = {
  layout: is.fields({ valueDim: is.number(), version: is.number() }),
  box: is.fields({ layerStart: is.number(), layerEnd: is.number() }),
  tokenStart: is.number(),
  tokenEnd: is.number(),
  axis: is.text(),
  at: is.number(),
  spec: is.fields({ granularity: is.number(), layerStart: is.number() }),
};

/** A box of KV: ranges of layers, heads and tokens. */
export interface KVBox {
  readonly layerStart: number;
  readonly layerEnd: number;
  readonly headStart: number;
  readonly headEnd: number;
  readonly tokenStart: number;
  readonly tokenEnd: number;
}

export type Axis = 'layer' | 'head' | 'token';

interface BoxShape {
  readonly layers: number;
  readonly heads: number;
  readonly tokens: number;
}

/** Distances in bytes between neighbours along each axis of a box's packed bytes. */
interface BoxStrides {
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
  checkInputs({ layout, box }, inputs);
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
  checkInputs({ layout, tokenStart, tokenEnd }, inputs);
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
  return cells * (layout.rowBytes + layout.valueRowBytes);
}

/** Strides of the packed bytes of `box`; for those inside a block ask with `blockBox`. */
export function boxStrides(layout: KVLayout, box: KVBox): BoxStrides {
  const tokens = box.tokenEnd - box.tokenStart;
  const headBytes = tokens * (layout.rowBytes + layout.valueRowBytes);
  return {
    layerBytes: (box.headEnd - box.headStart) * headBytes,
    headBytes,
    kvBytes: tokens * layout.rowBytes,
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
  const { rowBytes, valueRowBytes } = layout;
  const column = (layer - box.layerStart) * heads + (head - box.headStart);
  const row = kv === 0 ? 0 : tokens * rowBytes;
  return (
    column * tokens * (rowBytes + valueRowBytes) +
    row +
    (token - box.tokenStart) * (kv === 0 ? rowBytes : valueRowBytes)
  );
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

/** The common part of both boxes, or undefined. */
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
  checkInputs({ box, axis, at }, inputs);
  requireInteger('at', at, box[`${axis}Start`] + 1, box[`${axis}End`] - 1);
  return splitSides[axis](box, at);
}

// Granularities: the boxes that a sequence is cut into. A unit spec tiles a region (some layers × some heads × all
// tokens) with units of one shape, and numbers them token range by token range, then layers, then heads. A sequence
// that grows only appends units; no unit is ever renumbered.
//
//     BLOCK  all layers, all heads, blockTokens tokens      TOKEN  all layers, all heads, one token
//     HEAD   some heads of some layers, a token range       LAYER  one layer, all heads, a token range
//
// If the unit does not divide the region, the last unit along that axis is ragged: smaller, never overlapping.

/** Which axes of (layer, head, token) a unit spans. */
export const Granularity = { BLOCK: 0, TOKEN: 1, HEAD: 2, LAYER: 3 } as const;
export type Granularity = (typeof Granularity)[keyof typeof Granularity];

export const granularityNames = ['block', 'token', 'head', 'layer'] as const;

/** The units of one granularity: which layers and heads they cover. */
export interface UnitConfig {
  readonly granularity: Granularity;
  /** HEAD and LAYER: layers [start, end) of the region; all of them when absent. */
  readonly layers?: readonly [start: number, end: number];
  /** HEAD: heads [start, end) of the region; all of them when absent. */
  readonly heads?: readonly [start: number, end: number];
  /** HEAD: layers of one unit; the whole region's when absent. */
  readonly layersPerUnit?: number;
  /** HEAD: heads of one unit; the whole region's when absent. */
  readonly headsPerUnit?: number;
  /** HEAD and LAYER: tokens of one unit; `blockTokens` when absent. */
  readonly tokensPerUnit?: number;
}

const unitConfig = optionTable(
  {
    granularity: is.integer(0, granularityNames.length - 1),
    layers: is.optional(is.array('Pass [start, end].')),
    heads: is.optional(is.array('Pass [start, end].')),
    layersPerUnit: is.optional(is.passed()),
    headsPerUnit: is.optional(is.passed()),
    tokensPerUnit: is.optional(is.passed()),
  } satisfies Kinds<UnitConfig>,
  'TKV_CONFIG',
);

export interface UnitSpec {
  readonly granularity: Granularity;
  readonly layerStart: number;
  readonly layerEnd: number;
  readonly headStart: number;
  readonly headEnd: number;
  readonly layersPerUnit: number;
  readonly headsPerUnit: number;
  readonly tokensPerUnit: number;
  /** Units side by side over one token range. */
  readonly unitsPerTokenRange: number;
  /** Bytes of a unit that is not ragged: the slot size that every unit of the spec fits. */
  readonly unitBytes: number;
}

/** One unit's part of a covered box. */
interface CoveringUnit {
  /** Number of the unit in its sequence. */
  readonly unit: number;
  readonly box: KVBox;
  /** Whether `box` is all of the unit. */
  readonly whole: boolean;
}

type UnitField = Exclude<keyof UnitConfig, 'granularity'>;

const freeFields: readonly (readonly UnitField[])[] = [
  [],
  [],
  ['layers', 'heads', 'layersPerUnit', 'headsPerUnit', 'tokensPerUnit'],
  ['layers', 'tokensPerUnit'],
];
const unitFields: readonly UnitField[] = freeFields[Granularity.HEAD];

/** @throws TKV_CONFIG naming the field that the granularity fixes, or that is outside the layout. */
export function unitSpec(layout: KVLayout, config: UnitConfig): UnitSpec {
  requireKVLayout(layout);
  const { granularity } = unitConfig.read(config, 'config');
  for (const field of unitFields) {
    if (config[field] !== undefined && !freeFields[granularity].includes(field)) {
      const name = granularityNames[granularity];
      throw configError(field, `is set, but granularity ${name} fixes it`, `Leave ${field} out.`);
    }
  }
  const [layerStart, layerEnd] = config.layers ?? [0, layout.layers];
  const [headStart, headEnd] = config.heads ?? [0, layout.kvHeads];
  requireInteger('layers[0]', layerStart, 0, layout.layers - 1);
  requireInteger('layers[1]', layerEnd, layerStart + 1, layout.layers);
  requireInteger('heads[0]', headStart, 0, layout.kvHeads - 1);
  requireInteger('heads[1]', headEnd, headStart + 1, layout.kvHeads);
  const regionLayers = layerEnd - layerStart;
  const regionHeads = headEnd - headStart;
  const layersPerUnit = granularity === Granularity.LAYER ? 1 : (config.layersPerUnit ?? regionLayers);
  const headsPerUnit = config.headsPerUnit ?? regionHeads;
  const tokensPerUnit = granularity === Granularity.TOKEN ? 1 : (config.tokensPerUnit ?? layout.blockTokens);
  requireInteger('layersPerUnit', layersPerUnit, 1, regionLayers);
  requireInteger('headsPerUnit', headsPerUnit, 1, regionHeads);
  requireInteger('tokensPerUnit', tokensPerUnit, 1, Math.floor(Number.MAX_SAFE_INTEGER / layout.tokenBytes));
  return Object.freeze({
    granularity,
    layerStart,
    layerEnd,
    headStart,
    headEnd,
    layersPerUnit,
    headsPerUnit,
    tokensPerUnit,
    unitsPerTokenRange: Math.ceil(regionLayers / layersPerUnit) * Math.ceil(regionHeads / headsPerUnit),
    unitBytes: layersPerUnit * headsPerUnit * tokensPerUnit * (layout.rowBytes + layout.valueRowBytes),
  });
}

/** Units of a sequence of `tokens` tokens, the last, partly filled token range included. */
export function unitCount(spec: UnitSpec, tokens: number): number {
  requireInteger('tokens', tokens, 0);
  return Math.ceil(tokens / spec.tokensPerUnit) * spec.unitsPerTokenRange;
}

/** The box of unit number `unit`; its token range is whole, however many tokens the sequence has so far. */
export function unitBox(layout: KVLayout, spec: UnitSpec, unit: number): KVBox {
  requireInteger('unit', unit, 0);
  const inRange = unit % spec.unitsPerTokenRange;
  const tokenStart = ((unit - inRange) / spec.unitsPerTokenRange) * spec.tokensPerUnit;
  const headTiles = Math.ceil((spec.headEnd - spec.headStart) / spec.headsPerUnit);
  const headTile = inRange % headTiles;
  const layerStart = spec.layerStart + ((inRange - headTile) / headTiles) * spec.layersPerUnit;
  const headStart = spec.headStart + headTile * spec.headsPerUnit;
  return requireBox(layout, {
    layerStart,
    layerEnd: Math.min(layerStart + spec.layersPerUnit, spec.layerEnd),
    headStart,
    headEnd: Math.min(headStart + spec.headsPerUnit, spec.headEnd),
    tokenStart,
    tokenEnd: tokenStart + spec.tokensPerUnit,
  });
}

/** The number of the unit that holds one cell of the region. */
export function unitAt(spec: UnitSpec, layer: number, head: number, token: number): number {
  requireInteger('layer', layer, spec.layerStart, spec.layerEnd - 1);
  requireInteger('head', head, spec.headStart, spec.headEnd - 1);
  requireInteger('token', token, 0);
  const headTiles = Math.ceil((spec.headEnd - spec.headStart) / spec.headsPerUnit);
  const layerTile = Math.floor((layer - spec.layerStart) / spec.layersPerUnit);
  const headTile = Math.floor((head - spec.headStart) / spec.headsPerUnit);
  const tokenRange = Math.floor(token / spec.tokensPerUnit);
  return tokenRange * spec.unitsPerTokenRange + layerTile * headTiles + headTile;
}

/**
 * Tiles `box` exactly by units of `spec`, in order of their numbers: every cell once, ragged ends included.
 * @throws TKV_CONFIG when the box reaches outside the spec's region.
 */
export function cover(layout: KVLayout, spec: UnitSpec, box: KVBox): CoveringUnit[] {
  checkInputs({ layout, spec, box }, inputs);
  requireBox(layout, box);
  if (!contains({ ...spec, tokenStart: 0, tokenEnd: box.tokenEnd }, box)) {
    throw configError(
      'box',
      `reaches outside layers [${spec.layerStart}, ${spec.layerEnd}) and heads [${spec.headStart}, ` +
        `${spec.headEnd})`,
      'Intersect it with the region of the spec first.',
    );
  }
  const covering: CoveringUnit[] = [];
  const { tokensPerUnit, layersPerUnit, headsPerUnit } = spec;
  for (let token = box.tokenStart; token < box.tokenEnd; token = nextTile(token, 0, tokensPerUnit)) {
    for (let layer = box.layerStart; layer < box.layerEnd; ) {
      for (let head = box.headStart; head < box.headEnd; ) {
        const unit = unitAt(spec, layer, head, token);
        const whole = unitBox(layout, spec, unit);
        const part = intersect(whole, box);
        invariant(part !== undefined, () => `unit ${unit} misses the box that it covers`);
        covering.push({ unit, box: part, whole: sameBox(part, whole) });
        head = nextTile(head, spec.headStart, headsPerUnit);
      }
      layer = nextTile(layer, spec.layerStart, layersPerUnit);
    }
  }
  invariant(
    covering.reduce((bytes, part) => bytes + boxBytes(layout, part.box), 0) === boxBytes(layout, box),
    'the units of a cover hold as many bytes as its box',
  );
  return covering;
}

function nextTile(position: number, origin: number, size: number): number {
  return origin + (Math.floor((position - origin) / size) + 1) * size;
}
