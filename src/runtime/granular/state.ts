/** What a pool keeps: its manager, its sequences, and what is known of each block, held or only cached. */

import { BlockKeys, type KeyElements } from '../keys/index.ts';
import type { DecisionSink } from '../log/decisionSink.ts';
import { KVManager } from '../manager/kvManager.ts';
import type { Sequence } from '../manager/sequences/blockTable/sequence.ts';
import { slotOffsetBytes } from '../pool/shape.ts';
import type { Tier } from '../tier/tier.ts';
import { BlockUse, type UseRates, useRates } from '../usage/index.ts';
import { ColumnChains } from './chains.ts';
import type { Column } from './columns.ts';
import { inputError } from './columns.ts';
import { type KVPoolConfig, type ResolvedPoolConfig, resolvePoolConfig } from './config.ts';
import type { BlockRecord, DescriptorHost, PoolUnit, UnitPlace } from './descriptor.ts';
import type { PoolSequence } from './sequences/poolSequence.ts';
import { Track } from './sequences/track.ts';

export class PoolState implements DescriptorHost {
  readonly config: ResolvedPoolConfig;
  readonly manager: KVManager;
  readonly sequences: Map<string, PoolSequence> = new Map();
  /** Which table belongs to whom, by the manager's number. */
  readonly tables: Map<number, { readonly sequence: PoolSequence; readonly track: Track }> = new Map();
  /** Blocks that can be found by their tokens, by the keys of their units. */
  readonly records: Map<string, BlockRecord> = new Map();
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

  /** The pool's clock: what it was told last, or what the manager was, if that is later. */
  nowUs(): number {
    return Math.max(this.#nowUs, this.manager.nowUs);
  }

  setClock(nowUs: number): void {
    if (!(nowUs >= this.#nowUs))
      throw inputError('nowUs', `went back to ${nowUs}. Pass a clock that does not.`);
    this.#nowUs = nowUs;
  }

  /** Position of a tier. @throws TKV_INPUT for one that the pool has not */
  positionOf(field: string, tier: Tier): number {
    const position = this.manager.config.tiers.findIndex((each) => each.tier === tier);
    if (position !== -1) return position;
    const name = ['HBM', 'DDR', 'NVME', 'REMOTE'][tier] ?? String(tier);
    const remedy = this.config.enableTiering ? 'Give it capacity.' : 'Switch enableTiering on.';
    throw inputError(field, `is ${name}, which this pool has not. ${remedy}`);
  }

  placeOf({ track, unit }: PoolUnit): UnitPlace | undefined {
    const place = this.manager.place(track.table, unit);
    if (place === undefined) return undefined;
    const { tier, shape } = this.manager.config.tiers[place.position];
    return { ...place, tier, offset: slotOffsetBytes(shape, place.slot, place.sizeClass) };
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

  /** What is known of a block that is found by its keys. */
  recordOf(name: string): BlockRecord {
    const known = this.records.get(name);
    if (known !== undefined) return known;
    const record = this.freshRecord();
    this.remember(name, record);
    return record;
  }

  /** From now on whoever finds the block by its keys shares the record. */
  remember(name: string, record: BlockRecord): void {
    if (this.records.has(name)) return;
    this.records.set(name, record);
    if (this.records.size >= this.#pruneAt) this.#prune();
  }

  /** Forgets blocks that nobody holds and no tier has any more. */
  #prune(): void {
    for (const [name, { holders }] of this.records) {
      if (holders.size > 0) continue;
      const key = Uint32Array.from(name.slice(0, name.indexOf('/')).split(' '), Number);
      if (this.manager.matchLength(key, 1) === 0) this.records.delete(name);
    }
    this.#pruneAt = Math.max(1024, 2 * this.records.size);
  }

  /** The sequence's table ends when none of its units is held any more. */
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
