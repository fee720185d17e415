/**
 * What a multi-granular pool is built from, under the original notes' names, and the manager that comes of
 * it: one size class for each size of unit, all cut from pages of one size.
 */

import { configError, requireFraction, requireInteger, TierKVError } from '../runtime/errors.ts';
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
  type KVLayout,
  type KVLayoutConfig,
  kvLayout,
  kvLayoutNames,
} from '../runtime/geometry/layout.ts';
import {
  BlockKeys,
  KeyChain,
  type KeyElements,
  type KeyNamespace,
  keyToHex,
} from '../runtime/keys/keyChain.ts';
import type { ManagerConfig, TierSize } from '../runtime/manager/config.ts';
import { Entry, type Sequence } from '../runtime/manager/sequence.ts';
import { described, optionNames, requireOptions } from '../runtime/options.ts';
import { type BlockUse, HALF_LIFE_US_DEFAULT, type UseHistory } from '../runtime/tables/useTable.ts';
import type { Tier } from '../runtime/tier/tier.ts';
import type { ClassifierOptions } from './hotColdClassifier.ts';

const GIB = 1024 ** 3;
/** Room for blocks in flight beside what a tier holds at rest, as a share of it and at most so many bytes. */
const LANDING_SHARE = 1 / 32;
const LANDING_BYTES_MAX = 64 * 1024 * 1024;
/** 'privunit': the second half of keys that nobody can look up. */
const PRIVATE_WORDS = [0x76697270, 0x74696e75] as const;
/** More slots than this take gigabytes for their tables alone. */
const SLOTS_MAX = 2 ** 25;

export interface KVPoolConfig extends ClassifierOptions {
  /** The model's KV: layers, KV heads, elements of a head and their type. */
  readonly layout: Omit<KVLayoutConfig, 'blockTokens'>;
  /** Tokens of a block. Default 16. */
  readonly blockSize?: number;
  /** Default 16 GiB. */
  readonly hbmCapacityBytes?: number;
  /** 0 for none. Default 64 GiB. */
  readonly ddrCapacityBytes?: number;
  /** 0 for none. Default 256 GiB. */
  readonly nvmeCapacityBytes?: number;
  /** How allocations are cut that do not say. Default BLOCK. */
  readonly defaultGranularity?: Granularity;
  /** Whether sequences share what has the same tokens. Default true. */
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
  /** Who leaves a tier first when room is needed. Default `{ policy: 'lru' }`. */
  readonly eviction?: EvictionChoice;
  /** A use counts half after so many seconds. Default 20. */
  readonly useHalfLifeS?: number;
  /** Share of each tier beside its capacity that blocks in flight may take. Default 1/32 of the capacity. */
  readonly landingShare?: number;
  /** A transfer that has not ended after so many microseconds is given up. Default: never. */
  readonly transferDeadlineUs?: number;
  /** Most transfers in flight or waiting. Default 65,536. */
  readonly maxJobs?: number;
  /**
   * Two random words that tell the private keys of this run from those of other runs on the same files.
   * Default: always the same.
   */
  readonly privateKeyWords?: readonly [number, number];
}

const kvPoolConfigNames: readonly string[] = optionNames<KVPoolConfig>({
  hotFrequencyThreshold: true,
  coldTimeoutS: true,
  warmFrequencyThreshold: true,
  layout: true,
  blockSize: true,
  hbmCapacityBytes: true,
  ddrCapacityBytes: true,
  nvmeCapacityBytes: true,
  defaultGranularity: true,
  enableSharing: true,
  enableTiering: true,
  granularities: true,
  layerGroups: true,
  headUnit: true,
  model: true,
  secretKey: true,
  deviceId: true,
  eviction: true,
  useHalfLifeS: true,
  landingShare: true,
  transferDeadlineUs: true,
  maxJobs: true,
  privateKeyWords: true,
});

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
  requireOptions(config, kvPoolConfigNames, 'config', 'TKV_CONFIG');
  const blockTokens = requireInteger('blockSize', config.blockSize ?? 16, 1);
  const layout = kvLayout({ ...shapeOf(config.layout), blockTokens });
  const served = config.granularities ?? Object.values(Granularity);
  const defaultGranularity = config.defaultGranularity ?? served[0] ?? Granularity.BLOCK;
  for (const [i, each] of served.entries()) requireGranularity(`granularities[${i}]`, each);
  requireGranularity('defaultGranularity', defaultGranularity);
  if (!served.includes(defaultGranularity)) {
    const name = granularityNames[defaultGranularity];
    throw configError('defaultGranularity', `is ${name}, which the pool does not serve`, 'Serve it.');
  }
  const shapes = columnShapes(layout, served, config.layerGroups ?? [], config.headUnit);
  const { pageBytes } = choosePageBytes(shapes.unitBytes, { alignmentBytes: 256 });
  const enableTiering = config.enableTiering ?? true;
  const landingShare = requireFraction('landingShare', config.landingShare ?? LANDING_SHARE);
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
    secretKey: config.secretKey instanceof Uint8Array ? config.secretKey.slice() : config.secretKey,
    deviceId: config.deviceId ?? 0,
    privateKeyWords: config.privateKeyWords ?? PRIVATE_WORDS,
    useHalfLifeUs: requireInteger('useHalfLifeS', useHalfLifeUs, 1),
    shapes,
    manager: {
      unitBytes: shapes.unitBytes,
      pageBytes,
      hbm: size('hbmCapacityBytes', config.hbmCapacityBytes ?? 16 * GIB),
      ...lower('ddr', config.ddrCapacityBytes ?? 64 * GIB),
      ...lower('nvme', config.nvmeCapacityBytes ?? 256 * GIB),
      ...(config.eviction === undefined ? {} : { eviction: config.eviction }),
      ...(config.transferDeadlineUs === undefined ? {} : { transferDeadlineUs: config.transferDeadlineUs }),
      maxJobs: requireInteger('maxJobs', config.maxJobs ?? 65_536, 1, 2 ** 21),
    },
  };
}

function requireGranularity(field: string, value: number): void {
  requireInteger(field, value, 0, granularityNames.length - 1);
}

function shapeOf(layout: KVPoolConfig['layout'] | undefined): KVPoolConfig['layout'] {
  if (typeof layout === 'object' && layout !== null) {
    return requireOptions(layout, kvLayoutNames, 'layout', 'TKV_CONFIG');
  }
  throw configError('layout', `is ${described(layout)}`, 'Give layers, kvHeads, headDim and dtype.');
}

// Columns: the parts of a sequence's KV that have places of their own. A column is some layers times some
// heads over all tokens, cut along the tokens into units of one size. Each unit is a content of the manager
// with its own key, slot and tier, so that any column of any sequence may lie in any tier.
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
function unitBoxOf(column: Column, unit: number): KVBox {
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

// What a pool says of one block that it gave out, in the words of the original notes. A descriptor is a live
// view: tier, offset and reference count are those of now. BLOCK and TOKEN descriptors stand for one unit,
// HEAD and LAYER descriptors for all units of their layers, heads and tokens, which may lie in several tiers;
// `places` has each of them, `tier` is the slowest.

/** One unit of a descriptor: where it lies and what it holds. */
export interface UnitPlace {
  readonly tier: Tier;
  readonly position: number;
  readonly slot: number;
  readonly generation: number;
  readonly sizeClass: number;
  /** Whether its bytes are its own, and not those that its key stands for elsewhere. */
  readonly diverged: boolean;
  /** Offset of its first byte in the tier's pool. */
  readonly offset: number;
}

export interface PoolUnit {
  readonly track: Track;
  readonly unit: number;
}

/** A block as those who hold it share it. */
export interface BlockRecord {
  readonly blockId: number;
  readonly use: BlockUse;
  readonly holders: Set<KVBlockDescriptor>;
}

/** What a descriptor asks of its pool. */
export interface DescriptorHost {
  readonly layout: KVLayout;
  readonly deviceId: number;
  readonly slowestTier: Tier;
  nowUs(): number;
  placeOf(unit: PoolUnit): UnitPlace | undefined;
}

export class KVBlockDescriptor {
  readonly granularity: Granularity;
  readonly layerIds: readonly number[];
  readonly headIds: readonly number[];
  readonly sequenceId: string;
  readonly requestId: string;
  /** Where it should lie once it is sealed. */
  readonly preferredTier: Tier;
  /** For whoever holds it; the pool does not look at it. */
  readonly metadata: Record<string, unknown> = {};
  readonly #host: DescriptorHost;
  #record: BlockRecord;
  #units: readonly PoolUnit[];
  #tokenStart: number;
  #tokenEnd: number;

  constructor(
    host: DescriptorHost,
    record: BlockRecord,
    about: Pick<
      KVBlockDescriptor,
      'granularity' | 'layerIds' | 'headIds' | 'sequenceId' | 'requestId' | 'preferredTier'
    >,
    units: readonly PoolUnit[],
    tokenRange: readonly [start: number, end: number],
  ) {
    this.#host = host;
    this.#record = record;
    this.granularity = about.granularity;
    this.layerIds = about.layerIds;
    this.headIds = about.headIds;
    this.sequenceId = about.sequenceId;
    this.requestId = about.requestId;
    this.preferredTier = about.preferredTier;
    this.#units = units;
    [this.#tokenStart, this.#tokenEnd] = tokenRange;
  }

  /** For the pool: shared with the other holders of the same block. */
  get record(): BlockRecord {
    return this.#record;
  }

  /** Equal for all who share the block. */
  get blockId(): number {
    return this.record.blockId;
  }

  /** Tokens [start, end) of its sequence. */
  get tokenRange(): readonly [start: number, end: number] {
    return [this.#tokenStart, this.#tokenEnd];
  }

  /** Its parts, in order of their tokens, then layers and heads. */
  get units(): readonly PoolUnit[] {
    return this.#units;
  }

  /** Where each part lies; undefined for one that has no place yet, or none any more. */
  get places(): readonly (UnitPlace | undefined)[] {
    return this.#units.map((unit) => this.#host.placeOf(unit));
  }

  /** The slowest tier that has a part of it: it can be read in HBM when this says HBM. */
  get tier(): Tier {
    let slowest = 0;
    for (const unit of this.#units) {
      const place = this.#host.placeOf(unit);
      const state = unit.track.stateOf(unit.unit);
      const isBelow = place === undefined && state === Entry.MATCHED;
      slowest = Math.max(slowest, isBelow ? this.#host.slowestTier : (place?.tier ?? 0));
    }
    return slowest as Tier;
  }

  get deviceId(): number {
    return this.#host.deviceId;
  }

  /** Offset of its first part in its tier's pool; -1 while it has no place. */
  get offset(): number {
    return this.#host.placeOf(this.#units[0])?.offset ?? -1;
  }

  /** Bytes of its layers, heads and tokens; the places of its units are whole, and may be larger. */
  get sizeBytes(): number {
    const tokens = this.#tokenEnd - this.#tokenStart;
    return this.layerIds.length * this.headIds.length * tokens * 2 * this.#host.layout.rowBytes;
  }

  /** Sequences that hold the block. */
  get refCount(): number {
    return this.record.holders.size;
  }

  get isShared(): boolean {
    return this.record.holders.size > 1;
  }

  get use(): UseHistory {
    return this.record.use;
  }

  /** In microseconds of the pool's clock. */
  get lastAccessTime(): number {
    return this.record.use.lastUseUs;
  }

  get accessCount(): number {
    return this.record.use.uses;
  }

  /** Uses per second as of now: it falls while nobody uses the block. */
  get accessFrequency(): number {
    return this.record.use.frequencyAt(this.#host.nowUs());
  }

  /**
   * 32 hexadecimal digits that stand for everything that determines the bytes of its last unit, tenant and
   * all tokens before it included; undefined until it is sealed.
   */
  get tokenHash(): string | undefined {
    const { track, unit } = this.#units[this.#units.length - 1];
    const key = track.keyOf(unit);
    return key === undefined ? undefined : keyToHex(key);
  }

  /** Whether all of it was written and sealed: it can be read, moved and shared. */
  get isSealed(): boolean {
    return this.#units.every(({ track, unit }) => {
      const state = track.stateOf(unit);
      return state === Entry.READY || state === Entry.MATCHED || state === Entry.LOADING;
    });
  }

  /** Whether a part of it is gone: a write, a transfer or a device failed. It has to be computed again. */
  get isLost(): boolean {
    return this.#units.some(({ track, unit }) => track.stateOf(unit) === Entry.FAILED);
  }

  /** The block was used. */
  updateAccess(nowUs: number = this.#host.nowUs()): void {
    this.record.use.used(nowUs);
  }

  /** The part of the descriptor's tokens that lies in one of its units. */
  boxOf({ track, unit }: PoolUnit): KVBox {
    const box = unitBoxOf(track.column, unit);
    return {
      ...box,
      tokenStart: Math.max(box.tokenStart, this.#tokenStart),
      tokenEnd: Math.min(box.tokenEnd, this.#tokenEnd),
    };
  }

  /** For the pool: more tokens behind, in further units. */
  extend(units: readonly PoolUnit[], tokenEnd: number): void {
    this.#units = ordered([...this.#units, ...units]);
    this.#tokenEnd = tokenEnd;
  }

  /** For the pool: it is a block of its own from now on. */
  leave(record: BlockRecord): void {
    this.#record.holders.delete(this);
    this.#record = record;
    record.holders.add(this);
    this.updateAccess();
  }

  /** For the pool: its tokens end before `tokenEnd`. */
  shorten(tokenEnd: number): void {
    this.#tokenEnd = Math.min(this.#tokenEnd, tokenEnd);
    this.#units = this.#units.filter(({ track, unit }) => unit * track.column.tokensPerUnit < tokenEnd);
  }
}

/** By token range, then layer, then head. */
export function ordered(units: readonly PoolUnit[]): PoolUnit[] {
  return [...units].sort(
    (a, b) =>
      a.unit - b.unit ||
      a.track.column.layerStart - b.track.column.layerStart ||
      a.track.column.headStart - b.track.column.headStart,
  );
}

// Key chains of a pool's columns, one for each tenant and column, made when they are first asked for. Chains
// that were not asked for lately are given up and made again.

/** 300 bytes each. */
const CHAINS_MAX = 16_384;

export class ColumnChains {
  readonly #config: ResolvedPoolConfig;
  /** In the order in which they were asked for last. */
  readonly #chains: Map<string, KeyChain> = new Map();

  constructor(config: ResolvedPoolConfig) {
    this.#config = config;
  }

  of(tenant: string, column: Column): KeyChain {
    const name = `${column.id} ${tenant}`;
    const chain = this.#chains.get(name) ?? new KeyChain(this.#namespace(tenant, column));
    this.#chains.delete(name);
    this.#chains.set(name, chain);
    if (this.#chains.size > CHAINS_MAX) {
      const [oldest] = this.#chains.keys();
      if (oldest !== undefined) this.#chains.delete(oldest);
    }
    return chain;
  }

  #namespace(tenant: string, { spec, unitInRange, isGroup, layerStart, layerEnd }: Column): KeyNamespace {
    const { secretKey, model, layout } = this.#config;
    const extras = isGroup ? { 'tierkv.layers': `${layerStart}-${layerEnd}` } : {};
    return { secretKey, tenant, epoch: 0, model, layout, unit: spec, unitInRange, extras };
  }
}

// One column of one sequence: a block table of the manager, with the keys of its units. Units are numbered
// from the start of the sequence.
//
// Units whose tokens are not told, or that may not be shared, have keys that nobody can look up. Behind such
// a unit all are like that, since the key of a shared unit names everything before it.

export class Track {
  readonly column: Column;
  readonly table: Sequence;
  /** Keys of the leading full units, as far as they were sealed or found. */
  readonly keys: BlockKeys = new BlockKeys();
  /** Tokens that have room. */
  tokens = 0;
  /** Units that blocks hold, each as often as it is held. */
  held = 0;
  /** Units from the front that were handed over to be sealed, or found. */
  sealed = 0;
  readonly #chain: KeyChain | null;
  readonly #freshKey: () => Uint32Array;
  #private: boolean;
  /** A unit that was sealed with fewer tokens than it has room for. */
  #tail: { readonly unit: number; readonly key: Uint32Array } | null = null;

  /** @param chain null where nothing is shared, @param freshKey gives a key that nothing else has */
  constructor(column: Column, table: Sequence, chain: KeyChain | null, freshKey: () => Uint32Array) {
    this.column = column;
    this.table = table;
    this.#chain = chain;
    this.#freshKey = freshKey;
    this.#private = chain === null;
  }

  get units(): number {
    return this.table.length;
  }

  /** Whether no unit can be found by its tokens from here on. */
  get isPrivate(): boolean {
    return this.#private;
  }

  stateOf(unit: number): Entry {
    return (unit < this.table.length ? this.table.state[unit] : Entry.NONE) as Entry;
  }

  /** The four words of the unit's key; undefined for one that was not sealed. */
  keyOf(unit: number): Uint32Array | undefined {
    if (unit < this.keys.length) return this.keys.words.slice(unit * 4, unit * 4 + 4);
    return this.#tail?.unit === unit ? this.#tail.key : undefined;
  }

  /** Makes the keys of the first `units` full units. @param tokens undefined where they are not told */
  hash(units: number, tokens: KeyElements | undefined): void {
    if (this.keys.length >= units) return;
    this.#tail = null;
    if (tokens === undefined) this.#private = true;
    if (!this.#private && this.#chain !== null && tokens !== undefined) {
      this.#chain.hashBlocks(tokens, this.keys.length, this.keys, units * this.column.tokensPerUnit);
    }
    while (this.keys.length < units) this.keys.append(this.#freshKey(), 0);
  }

  /** Makes the key of the last unit with `count` tokens, fewer than it has room for. */
  hashTail(unit: number, count: number, tokens: KeyElements | undefined): Uint32Array {
    const key = new Uint32Array(4);
    if (tokens === undefined) this.#private = true;
    if (this.#private || this.#chain === null || tokens === undefined) key.set(this.#freshKey());
    else this.#chain.hashPartial(tokens, unit, count, this.keys, key);
    this.#tail = { unit, key };
    return key;
  }

  /** The first units of another sequence with the same keys. */
  takeKeys(of: Track, units: number): void {
    for (let i = 0; i < units; i++) this.keys.append(of.keys.words, i * 4);
    this.#private ||= of.isPrivate;
  }

  /** The unit is written on: what was sealed of it is another unit's content. */
  reopen(unit: number): void {
    if (this.#tail?.unit === unit) this.#tail = null;
    this.shortenKeys(unit);
  }

  /** Forgets the keys of all but the first units. */
  shortenKeys(units: number): void {
    if (this.keys.length > units) this.keys.truncate(units);
    this.sealed = Math.min(this.sealed, units);
    if (this.#tail !== null && this.#tail.unit >= units) this.#tail = null;
  }
}
