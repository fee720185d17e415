/**
 * Columns: the parts of a sequence's KV that have places of their own. A column is some layers times some
 * heads over all tokens, cut along the tokens into units of one size. Each unit is a content of the manager
 * with its own key, slot and tier, so that any column of any sequence may lie in any tier.
 *
 *     BLOCK   one column of all layers, or of a layer group     units of blockSize tokens
 *     TOKEN   one column of all layers                          units of one token
 *     LAYER   a column for each layer, all heads                units of blockSize tokens
 *     HEAD    a column for each headUnit, 1 layer x 1 head      units of blockSize tokens
 */

import { configError, requireInteger, TierKVError } from '../errors.ts';
import {
  Granularity,
  granularityNames,
  type KVBox,
  type KVLayout,
  type UnitSpec,
  unitSpec,
} from '../geometry/index.ts';

export interface Column {
  /** Equal for equal columns of one pool. */
  readonly id: string;
  readonly granularity: Granularity;
  readonly layerStart: number;
  readonly layerEnd: number;
  readonly headStart: number;
  readonly headEnd: number;
  readonly tokensPerUnit: number;
  readonly sizeClass: number;
  /** For its keys: how the KV is cut, and which of the units over one token range this is. */
  readonly spec: UnitSpec;
  readonly unitInRange: number;
  /** Whether it is a layer group, whose keys name its layers. */
  readonly isGroup: boolean;
}

export interface ColumnShapes {
  readonly layout: KVLayout;
  readonly granularities: readonly Granularity[];
  readonly groups: readonly { readonly first: number; readonly end: number }[];
  readonly headUnit: { readonly layers: number; readonly heads: number };
  /** Bytes of a unit, by size class; class 0 is the whole block. */
  readonly unitBytes: readonly number[];
}

/** @throws TKV_CONFIG for a layer group outside the layout, or a head unit that does not divide it */
export function columnShapes(
  layout: KVLayout,
  granularities: readonly Granularity[],
  groups: ColumnShapes['groups'],
  headUnit: ColumnShapes['headUnit'] = { layers: 1, heads: 1 },
): ColumnShapes {
  for (const [i, { first, end }] of groups.entries()) {
    requireInteger(`layerGroups[${i}].first`, first, 0, layout.layers - 1);
    requireInteger(`layerGroups[${i}].end`, end, first + 1, layout.layers);
  }
  requireInteger('headUnit.layers', headUnit.layers, 1, layout.layers);
  requireInteger('headUnit.heads', headUnit.heads, 1, layout.kvHeads);
  requireDivides('headUnit.layers', headUnit.layers, layout.layers);
  requireDivides('headUnit.heads', headUnit.heads, layout.kvHeads);
  const { blockTokens, rowBytes, layerStrideBytes, tokenBytes, blockBytes } = layout;
  const unitBytes = [blockBytes];
  if (granularities.includes(Granularity.BLOCK)) {
    for (const { first, end } of groups) unitBytes.push((end - first) * layerStrideBytes);
  }
  if (granularities.includes(Granularity.TOKEN)) unitBytes.push(tokenBytes);
  if (granularities.includes(Granularity.LAYER)) unitBytes.push(layerStrideBytes);
  if (granularities.includes(Granularity.HEAD)) {
    unitBytes.push(headUnit.layers * headUnit.heads * blockTokens * 2 * rowBytes);
  }
  const sizes = [...new Set(unitBytes)].sort((a, b) => b - a);
  return { layout, granularities, groups, headUnit, unitBytes: sizes };
}

/**
 * The columns of an allocation.
 * @throws TKV_INPUT for layers or heads that are none, are named twice, or that the granularity cannot take
 */
export function columnsOf(
  shapes: ColumnShapes,
  granularity: Granularity,
  layerIds: readonly number[],
  headIds: readonly number[] | undefined,
): Column[] {
  const { layout, granularities } = shapes;
  const name = granularityNames[granularity];
  if (name === undefined) throw inputError('granularity', `is ${granularity}. Use one of Granularity.`);
  if (!granularities.includes(granularity)) {
    throw inputError('granularity', `is ${name}, which this pool does not serve. Name it in granularities.`);
  }
  const layers = requireIds('layerIds', layerIds, layout.layers);
  const heads = headIds === undefined ? undefined : requireIds('headIds', headIds, layout.kvHeads);
  if (granularity !== Granularity.HEAD && heads !== undefined && heads.length < layout.kvHeads) {
    throw inputError('headIds', `names ${heads.length} heads, but ${name} has all. Use granularity HEAD.`);
  }
  if (granularity === Granularity.LAYER) return layers.map((layer) => layerColumn(shapes, layer));
  if (granularity === Granularity.HEAD) {
    return headColumns(shapes, layers, heads ?? Array.from({ length: layout.kvHeads }, (_, i) => i));
  }
  const [first, end] = [layers[0], layers[layers.length - 1] + 1];
  const isAll = layers.length === layout.layers;
  const isRun = end - first === layers.length;
  const isGroup = isRun && shapes.groups.some((group) => group.first === first && group.end === end);
  if (!isAll && !(isGroup && granularity === Granularity.BLOCK)) {
    const groups = shapes.groups.map((g) => `[${g.first}, ${g.end})`).join(', ');
    const known = groups === '' ? '' : `, or a layer group: ${groups}`;
    throw inputError('layerIds', `are not all ${layout.layers} layers${known}. ${name} takes no others.`);
  }
  const spec = unitSpec(layout, { granularity });
  const range = { layerStart: first, layerEnd: end, headStart: 0, headEnd: layout.kvHeads };
  return [makeColumn(shapes, range, spec, 0, !isAll)];
}

function headColumns(shapes: ColumnShapes, layers: readonly number[], heads: readonly number[]): Column[] {
  const { layout, headUnit } = shapes;
  const { layers: layersPerUnit, heads: headsPerUnit } = headUnit;
  const spec = unitSpec(layout, { granularity: Granularity.HEAD, layersPerUnit, headsPerUnit });
  const headTiles = layout.kvHeads / headsPerUnit;
  return tiles('layerIds', layers, layersPerUnit).flatMap((layerStart) =>
    tiles('headIds', heads, headsPerUnit).map((headStart) => {
      const [layerEnd, headEnd] = [layerStart + layersPerUnit, headStart + headsPerUnit];
      const unitInRange = (layerStart / layersPerUnit) * headTiles + headStart / headsPerUnit;
      return makeColumn(shapes, { layerStart, layerEnd, headStart, headEnd }, spec, unitInRange, false);
    }),
  );
}

function layerColumn(shapes: ColumnShapes, layer: number): Column {
  const { layout } = shapes;
  const spec = unitSpec(layout, { granularity: Granularity.LAYER });
  const range = { layerStart: layer, layerEnd: layer + 1, headStart: 0, headEnd: layout.kvHeads };
  return makeColumn(shapes, range, spec, layer, false);
}

function makeColumn(
  { layout, unitBytes }: ColumnShapes,
  range: Omit<KVBox, 'tokenStart' | 'tokenEnd'>,
  spec: UnitSpec,
  unitInRange: number,
  isGroup: boolean,
): Column {
  const { granularity, tokensPerUnit } = spec;
  const { layerStart, layerEnd, headStart, headEnd } = range;
  const bytes = (layerEnd - layerStart) * (headEnd - headStart) * tokensPerUnit * 2 * layout.rowBytes;
  return {
    id: `${granularityNames[granularity]} ${layerStart}-${layerEnd} ${headStart}-${headEnd}`,
    granularity,
    ...range,
    tokensPerUnit,
    sizeClass: unitBytes.indexOf(bytes),
    spec,
    unitInRange,
    isGroup,
  };
}

/** The box of a column's unit, over whole units of tokens. */
export function unitBoxOf(column: Column, unit: number): KVBox {
  const { layerStart, layerEnd, headStart, headEnd, tokensPerUnit } = column;
  const tokenStart = unit * tokensPerUnit;
  return { layerStart, layerEnd, headStart, headEnd, tokenStart, tokenEnd: tokenStart + tokensPerUnit };
}

/** First ids of the tiles that the ids make up. @throws TKV_INPUT where they cut a tile */
function tiles(field: string, ids: readonly number[], size: number): number[] {
  const starts = ids.filter((id) => id % size === 0);
  const whole = starts.every((start) =>
    Array.from({ length: size }, (_, i) => start + i).every((id) => ids.includes(id)),
  );
  if (whole && starts.length * size === ids.length) return starts;
  throw inputError(field, `cut a head unit of ${size}. Name whole units, or lower headUnit.`);
}

/** The ids in order. */
function requireIds(field: string, ids: readonly number[], limit: number): number[] {
  if (!Array.isArray(ids) || ids.length === 0) throw inputError(field, 'names none. Give a list of ids.');
  for (const id of ids) {
    if (!Number.isInteger(id) || id < 0 || id >= limit) {
      throw inputError(field, `has ${id}, not an integer from 0 to ${limit - 1}. The layout has no other.`);
    }
  }
  const sorted = [...new Set(ids)].sort((a, b) => a - b);
  if (sorted.length < ids.length) throw inputError(field, 'names one twice. Name each once.');
  return sorted;
}

function requireDivides(field: string, part: number, whole: number): void {
  if (whole % part !== 0)
    throw configError(field, `is ${part}, which does not divide ${whole}`, 'Divide it.');
}

export function inputError(field: string, problem: string): TierKVError {
  return new TierKVError('TKV_INPUT', `${field} ${problem}`, { field });
}
