/**
 * Configuration of a multi-granular pool, under the original notes' names, and the manager made of it: one size class
 * for each size of unit, all cut from pages of one size; and the columns that a granularity cuts a sequence's KV into.
 */

import type { ClassifierOptions } from '../embed/hotColdClassifier.ts';
import { configError, described, inputError, requireInteger } from '../runtime/errors.ts';
import type { EvictionChoice } from '../runtime/eviction/evictionPolicy.ts';
import {
  Granularity,
  granularityNames,
  type KVBox,
  type UnitSpec,
  unitSpec,
} from '../runtime/geometry/box.ts';
import {
  choosePageBytes,
  derivedNames,
  type KVLayout,
  type KVLayoutConfig,
  kvLayout,
  kvLayoutConfig,
  requirePairedLayout,
} from '../runtime/geometry/layout.ts';
import * as is from '../runtime/kinds.ts';
import type { ManagerConfig, TierSize } from '../runtime/manager/config.ts';
import { OWNERS, SHARED_OWNER } from '../runtime/manager/ownerQuotas.ts';
import { type Kinds, optionTable } from '../runtime/options.ts';
import { HALF_LIFE_US_DEFAULT } from '../runtime/tables/contentTable.ts';

const GIB = 1024 ** 3;
/**
 * Share of a tier's capacity that blocks in flight may take beside the blocks at rest: one block in 32 moves at once.
 */
const LANDING_SHARE = 1 / 32;
const LANDING_BYTES_MAX = 64 * 1024 * 1024;
/** 'privunit': the second half of private keys, which no lookup can name. */
const PRIVATE_WORDS = [0x76697270, 0x74696e75] as const;
/** Slots: more would take gigabytes for the tables alone. */
const SLOTS_MAX = 2 ** 25;

/** Configuration of a `MultiGranularKVPool`. */
export interface KVPoolConfig extends ClassifierOptions {
  /** The model's KV: layers, KV heads, elements of a head and their type. */
  readonly layout: Omit<KVLayoutConfig, 'blockTokens'>;
  /** Tokens of a block. Default 16. */
  readonly blockSize?: number;
  /** Default 16 GiB. */
  readonly hbmCapacityBytes?: number;
  /** Bytes; 0: no such tier. Default 64 GiB. */
  readonly ddrCapacityBytes?: number;
  /** Bytes; 0: no such tier. Default 256 GiB. */
  readonly nvmeCapacityBytes?: number;
  /** Granularity of allocations that name none. Default BLOCK. */
  readonly defaultGranularity?: Granularity;
  /** Whether sequences share blocks of the same tokens. Default true. */
  readonly enableSharing?: boolean;
  /** Whether there are tiers below HBM. Default true. */
  readonly enableTiering?: boolean;
  /**
   * Granularities that the pool serves; smaller units mean larger tables for the same capacity. Default: all.
   */
  readonly granularities?: readonly Granularity[];
  /** Layers [first, end) that are blocks of their own, such as those of a sliding window. Default: none. */
  readonly layerGroups?: readonly { readonly first: number; readonly end: number }[];
  /** Layers and heads of the smallest part of a HEAD allocation that can lie apart. Default 1 and 1. */
  readonly headUnit?: { readonly layers: number; readonly heads: number };
  /** Name and revision of the weights: blocks of other weights are never found. */
  readonly model: string;
  /** 16 to 32 secret bytes under which block keys are made. */
  readonly secretKey: Uint8Array;
  /** Names the device that holds HBM in descriptors. Default 0. */
  readonly deviceId?: number;
  /** The eviction policy. Default `{ policy: 'lru' }`. */
  readonly eviction?: EvictionChoice;
  /** Seconds after which a use counts half. Default 20. */
  readonly useHalfLifeS?: number;
  /** Share of each tier beside its capacity that blocks in flight may take. Default 1/32 of the capacity. */
  readonly landingShare?: number;
  /** Microseconds after which a transfer is given up. Default: never. */
  readonly transferDeadlineUs?: number;
  /** Most transfers in flight or waiting. Default 65,536. */
  readonly maxJobs?: number;
  /**
   * Two random words that distinguish the private keys of this run from those of other runs on the same files.
   * Default: always the same.
   */
  readonly privateKeyWords?: readonly [number, number];
}

const kvPoolConfigTable = optionTable(
  {
    hotFrequencyThreshold: is.optional(is.passed()),
    coldTimeoutS: is.optional(is.passed()),
    warmFrequencyThreshold: is.optional(is.passed()),
    layout: is.passed(),
    blockSize: is.optional(is.integer(1), 16),
    hbmCapacityBytes: is.optional(is.passed()),
    ddrCapacityBytes: is.optional(is.passed()),
    nvmeCapacityBytes: is.optional(is.passed()),
    defaultGranularity: is.optional(is.passed()),
    enableSharing: is.optional(is.flag()),
    enableTiering: is.optional(is.flag()),
    granularities: is.optional(is.passed()),
    layerGroups: is.optional(is.passed()),
    headUnit: is.optional(is.passed()),
    model: is.passed(),
    secretKey: is.passed(),
    deviceId: is.optional(is.passed()),
    eviction: is.optional(is.passed()),
    useHalfLifeS: is.optional(is.passed()),
    landingShare: is.optional(is.fraction(), LANDING_SHARE),
    transferDeadlineUs: is.optional(is.passed()),
    maxJobs: is.optional(is.integer(1, 2 ** 21), 65_536),
    privateKeyWords: is.optional(is.passed()),
  } satisfies Kinds<KVPoolConfig>,
  'TKV_CONFIG',
);

export interface ResolvedPoolConfig {
  readonly layout: KVLayout;
  readonly defaultGranularity: Granularity;
  readonly enableSharing: boolean;
  readonly enableTiering: boolean;
  readonly model: string;
  readonly secretKey: Uint8Array;
  readonly deviceId: number;
  readonly useHalfLifeUs: number;
  readonly privateKeyWords: readonly [number, number];
  readonly shapes: ColumnShapes;
  readonly manager: ManagerConfig;
}

/** @throws TKV_CONFIG with the field that is wrong and the remedy */
export function resolvePoolConfig(config: KVPoolConfig): ResolvedPoolConfig {
  const read = kvPoolConfigTable.read(config, 'config');
  const blockTokens = read.blockSize;
  const layout = kvLayout(shapeOf(config.layout, blockTokens));
  const served = config.granularities ?? Object.values(Granularity);
  const defaultGranularity = config.defaultGranularity ?? served[0] ?? Granularity.BLOCK;
  for (const [i, each] of served.entries()) requireGranularity(`granularities[${i}]`, each);
  requireGranularity('defaultGranularity', defaultGranularity);
  if (!served.includes(defaultGranularity)) {
    const name = granularityNames[defaultGranularity];
    throw configError(
      'defaultGranularity',
      `is ${name}, which the pool does not serve`,
      'Add it to granularities.',
    );
  }
  const shapes = columnShapes(layout, served, config.layerGroups ?? [], config.headUnit);
  const { pageBytes } = choosePageBytes(shapes.unitBytes, { alignmentBytes: 256 });
  const enableTiering = config.enableTiering ?? true;
  const landingShare = read.landingShare;
  const size = (field: string, bytes: number): TierSize => {
    requireInteger(field, bytes, 0);
    const landing = Math.min(Math.floor(bytes * landingShare), LANDING_BYTES_MAX);
    const landingBytes = Math.floor(landing / pageBytes) * pageBytes;
    if (bytes - landingBytes < pageBytes) {
      throw configError(field, `is ${bytes}, less than one page of ${pageBytes}`, 'Give it a page or more.');
    }
    const slots = bytes / Math.min(...shapes.unitBytes);
    if (slots > SLOTS_MAX) {
      throw configError(
        field,
        `makes ${Math.floor(slots)} places for the smallest unit, above ${SLOTS_MAX}`,
        'Serve fewer granularities, raise headUnit, or lower the capacity.',
      );
    }
    return { capacityBytes: bytes - landingBytes, landingBytes };
  };
  const lower = (field: 'ddr' | 'nvme', bytes: number): Partial<ManagerConfig> => {
    requireInteger(`${field}CapacityBytes`, bytes, 0);
    return enableTiering && bytes > 0 ? { [field]: size(`${field}CapacityBytes`, bytes) } : {};
  };
  const useHalfLifeUs = Math.round((config.useHalfLifeS ?? HALF_LIFE_US_DEFAULT / 1e6) * 1e6);
  return {
    layout,
    defaultGranularity,
    enableSharing: config.enableSharing ?? true,
    enableTiering,
    model: config.model,
    secretKey: config.secretKey instanceof Uint8Array ? new Uint8Array(config.secretKey) : config.secretKey, // a Buffer's slice is a view
    deviceId: config.deviceId ?? 0,
    privateKeyWords: config.privateKeyWords ?? PRIVATE_WORDS,
    useHalfLifeUs: requireInteger('useHalfLifeS', useHalfLifeUs, 1),
    shapes,
    manager: {
      unitBytes: shapes.unitBytes,
      owners: OWNERS,
      sharedOwner: SHARED_OWNER,
      pageBytes,
      hbm: size('hbmCapacityBytes', config.hbmCapacityBytes ?? 16 * GIB),
      ...lower('ddr', config.ddrCapacityBytes ?? 64 * GIB),
      ...lower('nvme', config.nvmeCapacityBytes ?? 256 * GIB),
      ...(config.eviction === undefined ? {} : { eviction: config.eviction }),
      ...(config.transferDeadlineUs === undefined ? {} : { transferDeadlineUs: config.transferDeadlineUs }),
      maxJobs: read.maxJobs,
    },
  };
}

function requireGranularity(field: string, value: number): void {
  requireInteger(field, value, 0, granularityNames.length - 1);
}

function shapeOf(layout: KVPoolConfig['layout'] | undefined, blockTokens: number): KVLayoutConfig {
  if (typeof layout === 'object' && layout !== null) {
    return kvLayoutConfig.read({ ...layout, blockTokens }, 'layout', undefined, derivedNames);
  }
  throw configError('layout', `is ${described(layout)}`, 'Give layers, kvHeads, headDim and dtype.');
}

// Columns: the parts of a sequence's KV that have places of their own. A column is some layers times some heads over
// all tokens, cut along the tokens into units of one size. Each unit is a content of the manager with its own key,
// slot and tier, so that any column of any sequence may lie in any tier.
//
//     BLOCK   one column of all layers, or of a layer group     units of blockSize tokens
//     TOKEN   one column of all layers                          units of one token
//     LAYER   a column for each layer, all heads                units of blockSize tokens
//     HEAD    a column for each headUnit, 1 layer x 1 head      units of blockSize tokens

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

interface ColumnShapes {
  readonly layout: KVLayout;
  readonly granularities: readonly Granularity[];
  readonly groups: readonly { readonly first: number; readonly end: number }[];
  readonly headUnit: { readonly layers: number; readonly heads: number };
  /** Bytes of a unit, by size class; class 0 is the whole block. */
  readonly unitBytes: readonly number[];
}

/** @throws TKV_CONFIG for a layer group outside the layout, or a head unit that does not divide it */
function columnShapes(
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
  requirePairedLayout(layout, 'a pool of boxes');
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
 * @throws TKV_INPUT for layers or heads that are out of range, named twice, or not allowed by the granularity
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
  if (!Array.isArray(ids) || ids.length === 0)
    throw inputError(field, 'must be a list of ids that is not empty.');
  for (const id of ids) {
    if (!Number.isInteger(id) || id < 0 || id >= limit) {
      throw inputError(field, `has ${id}, not an integer from 0 to ${limit - 1}. The layout has no other.`);
    }
  }
  const sorted = [...new Set(ids)].sort((a, b) => a - b);
  if (sorted.length < ids.length) throw inputError(field, 'names an id twice. Name each once.');
  return sorted;
}

function requireDivides(field: string, part: number, whole: number): void {
  if (whole % part !== 0)
    throw configError(field, `is ${part}, which does not divide ${whole}`, 'Choose a divisor.');
}
