/**
 * State of a pool: its manager, its sequences, and a record of each block, held or only cached; and the checks of what
 * callers ask of it.
 */

import { described, inputError, invariant, nearestName, TierKVError } from '../runtime/errors.ts';
import type { Granularity } from '../runtime/geometry/box.ts';
import { BlockKeys, elementAt, type KeyElements, keyToHex } from '../runtime/keys/keyChain.ts';
import * as is from '../runtime/kinds.ts';
import type { DecisionSink } from '../runtime/log/decisionSink.ts';
import { KVManager } from '../runtime/manager/manager.ts';
import { OwnerNumbers } from '../runtime/manager/ownerQuotas.ts';
import { Entry, type Sequence } from '../runtime/manager/sequence.ts';
import { type Kinds, type OptionTable, optionTable } from '../runtime/options.ts';
import { BlockUse, type UseHistory, type UseRates, useRates } from '../runtime/tables/contentTable.ts';
import { slotOffsetBytes } from '../runtime/tables/slotPool.ts';
import { Tier } from '../runtime/tier/tier.ts';
import {
  type BlockRecord,
  ColumnChains,
  type DescriptorHost,
  type KVBlockDescriptor,
  type PoolUnit,
  Track,
  type UnitPlace,
} from './kvBlockDescriptor.ts';
import {
  type Column,
  columnsOf,
  type KVPoolConfig,
  type ResolvedPoolConfig,
  resolvePoolConfig,
} from './poolConfig.ts';

export class PoolState implements DescriptorHost {
  readonly config: ResolvedPoolConfig;
  readonly manager: KVManager;
  readonly sequences: Map<string, PoolSequence> = new Map();
  /** Sequence and track of each table, by the manager's number. */
  readonly tables: Map<number, { readonly sequence: PoolSequence; readonly track: Track }> = new Map();
  /** Blocks that can be found by their tokens, by the keys of their units. */
  readonly records: Map<string, BlockRecord> = new Map();
  readonly owners: OwnerNumbers = new OwnerNumbers();
  readonly counts = { allocations: 0, deallocations: 0, hits: 0, misses: 0 };
  readonly #chains: ColumnChains;
  readonly #rates: UseRates;
  #nowUs = 0;
  #nextBlockId = 1;
  #nextPrivate = 1;
  #pruneAt = 1024;

  constructor(config: KVPoolConfig, sink: DecisionSink | null) {
    this.config = resolvePoolConfig(config);
    this.manager = new KVManager(this.config.manager, sink);
    this.#chains = new ColumnChains(this.config);
    this.#rates = useRates(this.config.useHalfLifeUs);
  }

  get layout(): ResolvedPoolConfig['layout'] {
    return this.config.layout;
  }

  get deviceId(): number {
    return this.config.deviceId;
  }

  get slowestTier(): Tier {
    const { tiers } = this.manager.config;
    return tiers[tiers.length - 1].tier;
  }

  /** The pool's clock: the later of what the pool and its manager were last told. */
  nowUs(): number {
    return Math.max(this.#nowUs, this.manager.inspect.nowUs);
  }

  setClock(nowUs: number): void {
    if (!(nowUs >= this.#nowUs))
      throw inputError('nowUs', `went back to ${nowUs}. Pass a clock that does not.`);
    this.#nowUs = nowUs;
  }

  /** Position of a tier. @throws TKV_INPUT for a tier that the pool does not have */
  positionOf(field: string, tier: Tier): number {
    const position = this.manager.config.tiers.findIndex((each) => each.tier === tier);
    if (position !== -1) return position;
    const name = ['HBM', 'DDR', 'NVME', 'REMOTE'][tier] ?? String(tier);
    const remedy = this.config.enableTiering ? 'Give it capacity.' : 'Switch enableTiering on.';
    throw inputError(field, `is ${name}, which this pool does not have. ${remedy}`);
  }

  placeOf({ track, unit }: PoolUnit): UnitPlace | undefined {
    const place = this.manager.inspect.place(track.table, unit);
    if (place === undefined) return undefined;
    const { tier, shape } = this.manager.config.tiers[place.position];
    return { ...place, tier, offset: slotOffsetBytes(shape, place.slot, place.sizeClass) };
  }

  isKept({ track, unit }: PoolUnit): boolean {
    return this.manager.inspect.place(track.table, unit)?.isKept === true;
  }

  /** A track of the column for the sequence, over a table that the manager has just opened. */
  addTrack(sequence: PoolSequence, column: Column, table: Sequence): Track {
    const chain = this.config.enableSharing ? this.#chains.of(sequence.tenant, column) : null;
    const track = new Track(column, table, chain, () => this.#freshKey());
    sequence.tracks.set(column.id, track);
    this.tables.set(table.id, { sequence, track });
    return track;
  }

  /** Keys of the full units among the first `tokenCount` tokens. */
  keysOf(tenant: string, column: Column, tokens: KeyElements, tokenCount: number): BlockKeys {
    const keys = new BlockKeys();
    const list = Array.isArray(tokens) ? tokens : Array.from(tokens);
    this.#chains.of(tenant, column).hashBlocks(list, 0, keys, tokenCount);
    return keys;
  }

  freshRecord(): BlockRecord {
    return { blockId: this.#nextBlockId++, use: new BlockUse(this.#rates), holders: new Set() };
  }

  /** The record of a block that is found by its keys. */
  recordOf(name: string): BlockRecord {
    const known = this.records.get(name);
    if (known !== undefined) return known;
    const record = this.freshRecord();
    this.remember(name, record);
    return record;
  }

  /** Lets every later finder of the block share the record. */
  remember(name: string, record: BlockRecord): void {
    if (this.records.has(name)) return;
    this.records.set(name, record);
    if (this.records.size >= this.#pruneAt) this.#prune();
  }

  /** Forgets blocks that no sequence holds and no tier has. */
  #prune(): void {
    for (const [name, { holders }] of this.records) {
      if (holders.size > 0) continue;
      const key = Uint32Array.from(name.slice(0, name.indexOf('/')).split(' '), Number);
      if (this.manager.matchLength(key, 1) === 0) this.records.delete(name);
    }
    this.#pruneAt = Math.max(1024, 2 * this.records.size);
  }

  /** Ends the sequence's table once none of its units is held. */
  dropTrack(sequence: PoolSequence, track: Track): void {
    sequence.tracks.delete(track.column.id);
    this.tables.delete(track.table.id);
    this.manager.release(track.table, this.nowUs());
  }

  #freshKey(): Uint32Array {
    const number = this.#nextPrivate++;
    return Uint32Array.of(number >>> 0, Math.floor(number / 2 ** 32), ...this.config.privateKeyWords);
  }
}

/** Names a block by the keys of its first and last unit, and how many there are. */
export function recordName(units: readonly PoolUnit[]): string | undefined {
  const [first, last] = [units[0], units[units.length - 1]];
  const [from, to] = [first.track.keyOf(first.unit), last.track.keyOf(last.unit)];
  if (from === undefined || to === undefined || first.track.isPrivate) return undefined;
  return `${from.join(' ')}/${to.join(' ')}/${units.length}`;
}

// A sequence of a pool: its columns, its descriptors, and its tokens as far as they were given.

export class PoolSequence {
  readonly id: string;
  readonly tenant: string;
  /** The number by which the manager knows the tenant. */
  readonly owner: number;
  readonly tracks: Map<string, Track> = new Map();
  /** In the order in which they were allocated. */
  readonly descriptors: Set<KVBlockDescriptor> = new Set();
  /** Descriptors of blocks that cannot be found by their tokens yet. */
  readonly unnamed: Set<KVBlockDescriptor> = new Set();
  /** Blocks that go to a lower tier once they are sealed. */
  readonly leaving: Set<KVBlockDescriptor> = new Set();
  /** The block that has a track's last unit. */
  readonly last: Map<Track, KVBlockDescriptor> = new Map();
  #tokens: number[] = [];
  /** Tokens that room was asked for. Blocks may be shared by them, so KV of other tokens cannot stand behind. */
  #asked: number[] = [];

  constructor(id: string, tenant: string, owner: number) {
    this.id = id;
    this.tenant = tenant;
    this.owner = owner;
  }

  /** Tokens that were given. */
  get tokens(): readonly number[] {
    return this.#tokens;
  }

  add(block: KVBlockDescriptor): void {
    this.descriptors.add(block);
    this.unnamed.add(block);
    if (block.preferredTier !== Tier.HBM) this.leaving.add(block);
    for (const { track } of block.units) this.last.set(track, block);
    this.#count(block, 1);
  }

  remove(block: KVBlockDescriptor): void {
    this.descriptors.delete(block);
    this.unnamed.delete(block);
    this.leaving.delete(block);
    for (const { track } of block.units) if (this.last.get(track) === block) this.last.delete(track);
    this.#count(block, -1);
  }

  /** Runs `change`, in which the block's units change. */
  alter(block: KVBlockDescriptor, change: () => void): void {
    this.#count(block, -1);
    change();
    this.#count(block, 1);
    this.unnamed.add(block);
  }

  #count({ units }: KVBlockDescriptor, by: 1 | -1): void {
    for (const { track } of units) track.held += by;
  }

  /** @throws TKV_INPUT for a token that differs from the one given before, at `allocate` or at `commit` */
  requireSame(tokens: KeyElements): void {
    for (const before of [this.#tokens, this.#asked]) {
      const count = Math.min(tokens.length, before.length);
      for (let i = 0; i < count; i++) {
        const token = elementAt(tokens, i);
        if (token === before[i]) continue;
        const remedy = 'Truncate the sequence first, or begin another one.';
        throw inputError(`tokenIds[${i}]`, `is ${String(token)}, but was ${before[i]} before. ${remedy}`);
      }
    }
  }

  learn(tokens: KeyElements): void {
    for (let i = this.#tokens.length; i < tokens.length; i++) this.#tokens.push(elementAt(tokens, i));
  }

  /** Room was asked for the first `count` of these tokens. */
  ask(tokens: KeyElements, count: number): void {
    for (let i = this.#asked.length; i < count; i++) this.#asked.push(elementAt(tokens, i));
  }

  /** The same prefix as another sequence. */
  follow(other: PoolSequence, tokens: number): void {
    this.#tokens = other.#tokens.slice(0, tokens);
    this.#asked = other.#asked.slice(0, tokens);
  }

  forgetFrom(tokens: number): void {
    for (const given of [this.#tokens, this.#asked]) if (given.length > tokens) given.length = tokens;
  }
}

// The cached prefix of some tokens: found in one pass over the keys; nothing is held or counted.

/** A cached block, held by some sequence or by none. */
export interface FoundBlock {
  /** Set for BLOCK and TOKEN blocks that this pool gave out. */
  readonly blockId: number | undefined;
  readonly granularity: Granularity;
  readonly layerIds: readonly [start: number, end: number];
  readonly headIds: readonly [start: number, end: number];
  readonly tokenRange: readonly [start: number, end: number];
  /** The fastest tier that has it ready; undefined while it is on its way. */
  readonly tier: Tier | undefined;
  /** Sequences that hold it there. */
  readonly refCount: number;
  readonly tokenHash: string;
  /** Undefined if the pool has no record of it. */
  readonly use: UseHistory | undefined;
}

export function findPrefix(
  state: PoolState,
  tokenIds: KeyElements,
  minMatchLength: number,
  options: PrefixOptions,
): FoundBlock[] {
  const { granularity, layerIds, headIds, tenant } = prefixOptionsTable.read(options);
  requireTokens(tokenIds, 0);
  count(0).read(minMatchLength, 'minMatchLength');
  const { shapes, defaultGranularity, layout } = state.config;
  const all = Array.from({ length: layout.layers }, (_, i) => i);
  const columns = columnsOf(shapes, granularity ?? defaultGranularity, layerIds ?? all, headIds);
  if (!state.config.enableSharing) return [];
  const keys = columns.map((column) => state.keysOf(tenant, column, tokenIds, tokenIds.length));
  const units = Math.min(...keys.map(({ words, length }) => state.manager.matchLength(words, length)));
  const { tokensPerUnit } = columns[0];
  if (units === 0 || units * tokensPerUnit < minMatchLength) return [];
  const found: FoundBlock[] = [];
  for (let unit = 0; unit < units; unit++) {
    columns.forEach((column, c) => {
      found.push(describe(state, column, unit, keys[c].words.slice(unit * 4, unit * 4 + 4)));
    });
  }
  return found;
}

function describe(state: PoolState, column: Column, unit: number, key: Uint32Array): FoundBlock {
  const { granularity, layerStart, layerEnd, headStart, headEnd, tokensPerUnit } = column;
  const words = key.join(' ');
  const record = state.records.get(`${words}/${words}/1`);
  const place = state.manager.inspect.locate(key);
  return {
    blockId: record?.blockId,
    granularity,
    layerIds: [layerStart, layerEnd],
    headIds: [headStart, headEnd],
    tokenRange: [unit * tokensPerUnit, (unit + 1) * tokensPerUnit],
    tier: place === undefined ? undefined : state.manager.config.tiers[place.position].tier,
    refCount: place?.holders ?? 0,
    tokenHash: keyToHex(key),
    use: record?.use,
  };
}

// Requests to a pool, checked before anything changes.

/** Input of `MultiGranularKVPool.allocate`. */
export interface AllocateRequest {
  readonly sequenceId: string;
  readonly requestId: string;
  /** Tokens to add behind the sequence's tokens in these layers and heads. */
  readonly numTokens: number;
  readonly layerIds: readonly number[];
  /** Default: all heads. */
  readonly headIds?: readonly number[];
  /** Default: the pool's. */
  readonly granularity?: Granularity;
  /** Where the blocks should lie once they are sealed; they are written in HBM. Default HBM. */
  readonly preferredTier?: Tier;
  /**
   * The sequence's first `numTokens` tokens or more, if known: leading full units that are cached are shared instead
   * of computed again. Only for layers and heads that have no tokens yet.
   */
  readonly tokenIds?: KeyElements;
  /** The tenant, from your own authentication: only it shares. Default ''. */
  readonly tenant?: string;
}

/** A number of tokens. */
export const count = (least: number): is.ValueKind<number> =>
  is.that(
    `an integer of at least ${least}`,
    (value) => Number.isSafeInteger(value) && Number(value) >= least,
  );

export const allocateRequestTable: OptionTable<AllocateRequest> = optionTable({
  sequenceId: is.name(),
  requestId: is.name(),
  numTokens: count(1),
  layerIds: is.passed(),
  headIds: is.optional(is.passed()),
  granularity: is.optional(is.passed()),
  preferredTier: is.optional(is.passed()),
  tokenIds: is.optional(is.passed()),
  tenant: is.optional(is.passed(), ''),
} satisfies Kinds<AllocateRequest>);

/** Which units of a prefix `MultiGranularKVPool` looks for. */
export interface PrefixOptions {
  /** Default: the pool's. */
  readonly granularity?: Granularity;
  /** Default: all layers. */
  readonly layerIds?: readonly number[];
  /** Default: all heads. */
  readonly headIds?: readonly number[];
  /** Default ''. */
  readonly tenant?: string;
}

const prefixOptionsTable = optionTable({
  granularity: is.optional(is.passed()),
  layerIds: is.optional(is.passed()),
  headIds: is.optional(is.passed()),
  tenant: is.optional(is.passed(), ''),
} satisfies Kinds<PrefixOptions>);

/** Checks that there are enough tokens. The hash checks whether each is an id. */
export function requireTokens(tokens: KeyElements, atLeast: number): void {
  const count = tokens?.length;
  if (typeof tokens !== 'object' || !Number.isSafeInteger(count) || count < 0) {
    throw inputError('tokenIds', 'must be an array of token ids.');
  }
  if (count < atLeast) throw inputError('tokenIds', `are ${count}, fewer than ${atLeast}. Pass all of them.`);
  for (let i = 0; i < count; i++) {
    const token = elementAt(tokens, i);
    if (token >>> 0 !== token) {
      throw inputError(`tokenIds[${i}]`, `is ${described(tokens[i])}, not an integer from 0 to 4294967295.`);
    }
  }
}

export function unknownId(field: string, id: string | number, known: Iterable<string> = []): TierKVError {
  const near = typeof id === 'string' ? nearestName(id, [...known].slice(0, 1000)) : undefined;
  const remedy =
    near === undefined ? 'Name one that was allocated and not released.' : `Did you mean ${near}?`;
  return new TierKVError('TKV_UNKNOWN_ID', `${field} ${id} is not known. ${remedy}`, { field });
}

export function stateError(field: string, problem: string): TierKVError {
  return new TierKVError('TKV_STATE', `${field} ${problem}`, { field });
}

// The audit of a pool, for tests: its manager, and that blocks, holders, tracks and places agree.

export function checkPool(state: PoolState): void {
  state.manager.checkIntegrity();
  const held = new Map<Track, number>();
  const openPlaces = new Map<string, string>();
  let tracks = 0;
  for (const sequence of state.sequences.values()) {
    tracks += sequence.tracks.size;
    invariant(sequence.descriptors.size > 0, 'a sequence has blocks');
    const owned = new Map<Track, Set<number>>();
    for (const block of sequence.descriptors) {
      checkBlock(block);
      for (const { track, unit } of block.units) {
        invariant(sequence.tracks.get(track.column.id) === track, 'a block lies in its own sequence');
        invariant(unit < track.units, 'a block has units of its track');
        const units = owned.get(track) ?? new Set();
        invariant(!units.has(unit), 'a unit of a sequence belongs to one block');
        owned.set(track, units.add(unit));
        held.set(track, (held.get(track) ?? 0) + 1);
        const place = state.placeOf({ track, unit });
        if (place === undefined || track.stateOf(unit) !== Entry.OPEN) continue;
        const name = `${place.tier} ${place.offset}`;
        invariant(!openPlaces.has(name), () => `${name} is written by two`);
        openPlaces.set(name, sequence.id);
      }
    }
  }
  invariant(tracks === state.tables.size, 'every track has its table');
  invariant(tracks === state.manager.inspect.openSequences, 'every table has its track');
  for (const { sequence, track } of state.tables.values()) {
    invariant(state.sequences.get(sequence.id) === sequence, 'a table belongs to a known sequence');
    invariant((held.get(track) ?? 0) === track.held, 'a track knows how many of its units are held');
    invariant(track.units === Math.ceil(track.tokens / track.column.tokensPerUnit), 'a track has its units');
  }
  for (const { holders } of state.records.values()) {
    for (const block of holders) {
      const alive = state.sequences.get(block.sequenceId)?.descriptors.has(block) === true;
      invariant(alive, 'a holder of a block holds it');
    }
  }
}

function checkBlock(block: KVBlockDescriptor): void {
  const [start, end] = block.tokenRange;
  invariant(start < end && block.units.length > 0, 'a block holds something');
  invariant(block.record.holders.has(block), 'a block is among its holders');
  const bytes = block.units.reduce((sum, unit) => {
    const { layerStart, layerEnd, headStart, headEnd, tokenStart, tokenEnd } = block.boxOf(unit);
    return sum + (layerEnd - layerStart) * (headEnd - headStart) * (tokenEnd - tokenStart);
  }, 0);
  invariant(
    bytes === block.layerIds.length * block.headIds.length * (end - start),
    'the units of a block hold its layers, heads and tokens',
  );
}
