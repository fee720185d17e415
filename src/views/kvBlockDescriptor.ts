/**
 * A pool's description of one block that it gave out, in the words of the original notes, and the parts behind it: key
 * chains and the block tables of columns. A descriptor is a live view: tier, offset and reference count are the current
 * ones. BLOCK and TOKEN descriptors stand for one unit, HEAD and LAYER descriptors for all units of their layers, heads
 * and tokens, which may lie in several tiers; `places` has each of them, `tier` is the slowest.
 */

import type { Granularity, KVBox } from '../runtime/geometry/box.ts';
import type { KVLayout } from '../runtime/geometry/layout.ts';
import {
  BlockKeys,
  KeyChain,
  type KeyElements,
  type KeyNamespace,
  keyToHex,
} from '../runtime/keys/keyChain.ts';
import * as is from '../runtime/kinds.ts';
import { Entry, type Sequence } from '../runtime/manager/sequence.ts';
import type { BlockUse, UseHistory } from '../runtime/tables/contentTable.ts';
import type { Tier } from '../runtime/tier/tier.ts';
import { type Column, type ResolvedPoolConfig, unitBoxOf } from './poolConfig.ts';

/** One unit of a descriptor: where it lies and what it holds. */
export interface UnitPlace {
  readonly tier: Tier;
  readonly position: number;
  readonly slot: number;
  readonly generation: number;
  readonly sizeClass: number;
  /** Whether its bytes are its own, and differ from the bytes that its key names elsewhere. */
  readonly diverged: boolean;
  /** Offset of its first byte in the tier's pool. */
  readonly offset: number;
}

export interface PoolUnit {
  readonly track: Track;
  readonly unit: number;
}

/** A block as its holders share it. */
export interface BlockRecord {
  readonly blockId: number;
  readonly use: BlockUse;
  readonly holders: Set<KVBlockDescriptor>;
}

/** The part of its pool that a descriptor needs. */
export interface DescriptorHost {
  readonly layout: KVLayout;
  readonly deviceId: number;
  readonly slowestTier: Tier;
  nowUs(): number;
  placeOf(unit: PoolUnit): UnitPlace | undefined;
  /** Whether a quota or a hint keeps the unit in its tier. */
  isKept(unit: PoolUnit): boolean;
}

/** A run of units that a sequence allocated in a `MultiGranularKVPool`. */
export class KVBlockDescriptor {
  readonly granularity: Granularity;
  readonly layerIds: readonly number[];
  readonly headIds: readonly number[];
  readonly sequenceId: string;
  readonly requestId: string;
  /** Where it should lie once it is sealed. */
  readonly preferredTier: Tier;
  /** For the holder's own use; the pool ignores it. */
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
    is.object().read(host, 'host');
    is.object().read(about, 'about');
    is.array().read(tokenRange, 'tokenRange');
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

  /** Equal for all holders of the block. */
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

  /** Where each part lies; undefined if it has no place. */
  get places(): readonly (UnitPlace | undefined)[] {
    return this.#units.map((unit) => this.#host.placeOf(unit));
  }

  /** The slowest tier that has a part of it. HBM: it can be read there. */
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

  /** Whether a quota or a hint keeps a part of it in its tier. */
  get isKept(): boolean {
    return this.#units.some((unit) => this.#host.isKept(unit));
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

  /** Uses per second as of now; it falls without uses. */
  get accessFrequency(): number {
    return this.record.use.frequencyAt(this.#host.nowUs());
  }

  /**
   * 32 hexadecimal digits that stand for everything that determines the bytes of its last unit, including the tenant
   * and all tokens before it; undefined until it is sealed.
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

  /** Whether a part of it is gone, because a write, a transfer or a device failed. It must be computed again. */
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

  /** For the pool: adds tokens in further units. */
  extend(units: readonly PoolUnit[], tokenEnd: number): void {
    this.#units = ordered([...this.#units, ...units]);
    this.#tokenEnd = tokenEnd;
  }

  /** For the pool: makes it a block of its own. */
  leave(record: BlockRecord): void {
    this.#record.holders.delete(this);
    this.#record = record;
    record.holders.add(this);
    this.updateAccess();
  }

  /** For the pool: cuts its tokens at `tokenEnd`. */
  shorten(tokenEnd: number): void {
    this.#tokenEnd = Math.min(this.#tokenEnd, tokenEnd);
    this.#units = this.#units.filter(({ track, unit }) => unit * track.column.tokensPerUnit < tokenEnd);
  }
}

/** Orders units by token range, then layer, then head. */
export function ordered(units: readonly PoolUnit[]): PoolUnit[] {
  return [...units].sort(
    (a, b) =>
      a.unit - b.unit ||
      a.track.column.layerStart - b.track.column.layerStart ||
      a.track.column.headStart - b.track.column.headStart,
  );
}

// Key chains of a pool's columns, one for each tenant and column, made on first use. The chains used least recently
// are dropped and made again.

/** Chains of 300 bytes each: 5 MB at most. */
const CHAINS_MAX = 16_384;

export class ColumnChains {
  readonly #config: ResolvedPoolConfig;
  /** The least recently used first. */
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

// One column of one sequence: a block table of the manager, with the keys of its units. Units are numbered from the
// start of the sequence.
//
// Units whose tokens are unknown, or that may not be shared, have private keys. All units behind such a unit are
// private too, since the key of a shared unit names everything before it.

export class Track {
  readonly column: Column;
  readonly table: Sequence;
  /** Keys of the leading full units, as far as they were sealed or found. */
  readonly keys: BlockKeys = new BlockKeys();
  /** Tokens that have room. */
  tokens = 0;
  /** Units held by blocks; a unit counts once for each. */
  held = 0;
  /** Leading units that were found or handed over to be sealed. */
  sealed = 0;
  readonly #chain: KeyChain | null;
  readonly #freshKey: () => Uint32Array;
  #private: boolean;
  /** A unit that was sealed with fewer tokens than it has room for. */
  #tail: { readonly unit: number; readonly key: Uint32Array } | null = null;

  /** @param chain null if nothing is shared, @param freshKey gives a unique key */
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

  /** Whether further units can no longer be found by their tokens. */
  get isPrivate(): boolean {
    return this.#private;
  }

  stateOf(unit: number): Entry {
    return (unit < this.table.length ? this.table.state[unit] : Entry.NONE) as Entry;
  }

  /** The four words of the unit's key; undefined if it was not sealed. */
  keyOf(unit: number): Uint32Array | undefined {
    if (unit < this.keys.length) return this.keys.words.slice(unit * 4, unit * 4 + 4);
    return this.#tail?.unit === unit ? this.#tail.key : undefined;
  }

  /** Makes the keys of the first `units` full units. @param tokens undefined if they are unknown */
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

  /** The unit is written on, so its sealed content is no longer its own. */
  reopen(unit: number): void {
    if (this.#tail?.unit === unit) this.#tail = null;
    this.shortenKeys(unit);
  }

  /** Forgets the keys of all but the first `units` units. */
  shortenKeys(units: number): void {
    if (this.keys.length > units) this.keys.truncate(units);
    this.sealed = Math.min(this.sealed, units);
    if (this.#tail !== null && this.#tail.unit >= units) this.#tail = null;
  }
}
