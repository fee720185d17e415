/**
 * What a pool says of one block that it gave out, in the words of the original notes. A descriptor is a live
 * view: tier, offset and reference count are those of now. BLOCK and TOKEN descriptors stand for one unit,
 * HEAD and LAYER descriptors for all units of their layers, heads and tokens, which may lie in several tiers;
 * `places` has each of them, `tier` is the slowest.
 */

import type { Granularity, KVBox, KVLayout } from '../geometry/index.ts';
import { keyToHex } from '../keys/index.ts';
import { Entry } from '../manager/sequences/blockTable/sequence.ts';
import type { Tier } from '../tier/tier.ts';
import type { BlockUse, UseHistory } from '../usage/index.ts';
import { unitBoxOf } from './columns.ts';
import type { Track } from './sequences/track.ts';

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
