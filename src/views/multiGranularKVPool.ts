/**
 * The multi-granular pool of the original notes: blocks of a sequence's KV at four granularities, in one
 * manager. A thin view: places, sharing, eviction and moves are the manager's. What the pool adds is which
 * units make up a block, who holds them, and how often they are used.
 *
 *     allocate -> the units are open in HBM -> written by kernels or by TieredKVStorage.writeBlocks
 *         -> commit (their KV is written: they are sealed) -> shared, moved, read -> deallocate
 *
 * What is let go after it was sealed stays cached until its room is needed, and can be found by its tokens.
 */

import { invariant, TierKVError } from '../runtime/errors.ts';
import { Granularity } from '../runtime/geometry/box.ts';
import type { KVLayout } from '../runtime/geometry/layout.ts';
import type { KeyElements } from '../runtime/keys/keyChain.ts';
import type { DecisionSink } from '../runtime/log/decisionSink.ts';
import type { ManagerListener } from '../runtime/manager/core.ts';
import type { KVManager } from '../runtime/manager/manager.ts';
import { Entry, type Sequence } from '../runtime/manager/sequence.ts';
import { optionNames, requireOptions } from '../runtime/options.ts';
import { JobPriority } from '../runtime/tables/jobTable.ts';
import { Outcome, outcomeNames, Tier, type TierName, tierName } from '../runtime/tier/tier.ts';
import type { MigrationPort, MigrationTier, MoveEnd } from './kvMigrator.ts';
import {
  type BlockRecord,
  type Column,
  columnsOf,
  inputError,
  KVBlockDescriptor,
  type KVPoolConfig,
  ordered,
  type PoolUnit,
  type Track,
  type UnitPlace,
} from './poolConfig.ts';
import {
  type AllocateRequest,
  allocateRequestNames,
  checkPool,
  type FoundBlock,
  findPrefix,
  PoolSequence,
  PoolState,
  type PrefixOptions,
  recordName,
  requireCount,
  requireName,
  requireTokens,
  stateError,
  unknownId,
} from './poolState.ts';

export interface PoolTierUsage {
  readonly tier: Tier;
  /** Units that lie there, or are on their way. */
  readonly numBlocks: number;
  readonly usedBytes: number;
  readonly capacityBytes: number;
  /** Used bytes over capacity. */
  readonly utilization: number;
}

export interface PoolStats {
  readonly totalAllocations: number;
  readonly totalDeallocations: number;
  /** Blocks that have arrived in the tier they were sent to. */
  readonly totalMigrations: number;
  /** Units that were asked for with their tokens, and found. */
  readonly cacheHits: number;
  /** Units that were asked for with their tokens, and not found. */
  readonly cacheMisses: number;
  /** Blocks that sequences hold. */
  readonly totalBlocks: number;
  readonly tierUsage: Readonly<Partial<Record<TierName, PoolTierUsage>>>;
}

export class MultiGranularKVPool implements MigrationPort<KVBlockDescriptor> {
  readonly tiers: readonly MigrationTier[];
  /** What whoever listens to the manager has to hand on; the pool listens itself until then. */
  readonly listener: ManagerListener;
  readonly #state: PoolState;
  readonly #moves: PoolMoves;

  /**
   * @param sink where the manager's decision log goes
   * @throws TKV_CONFIG with the field that is wrong and the remedy
   */
  constructor(config: KVPoolConfig, sink: DecisionSink | null = null) {
    this.#state = new PoolState(config, sink);
    const { manager } = this.#state;
    this.tiers = manager.config.tiers.map(({ tier, capacityBytes }) => ({ tier, capacityBytes }));
    this.#moves = new PoolMoves(manager, () => this.#state.nowUs());
    this.listener = {
      settled: (table) => this.#settled(table),
      moved: (position, key, outcome) => this.#moves.moved(position, key, outcome),
    };
    manager.listen(this.listener);
  }

  /** The one manager: its jobs are for a driver, its books for whoever wants to look. */
  get manager(): KVManager {
    return this.#state.manager;
  }

  get layout(): KVLayout {
    return this.#state.layout;
  }

  get nowUs(): number {
    return this.#state.nowUs();
  }

  /** Tells the pool the time, in integer microseconds. It never goes back. */
  setClock(nowUs: number): void {
    this.#state.setClock(nowUs);
  }

  /**
   * Room for more tokens of a sequence in some layers and heads: BLOCK gives a block for each `blockSize`
   * tokens, TOKEN one for each token, HEAD and LAYER one for all of them. They are to be written in HBM.
   * @returns the blocks that hold these tokens, in order; the first may be one that had room left
   * @throws TKV_INPUT for what is malformed, TKV_CAPACITY for what HBM can never hold, TKV_FULL when there is
   * no room now; nothing is allocated then
   */
  allocate(request: AllocateRequest): KVBlockDescriptor[] {
    return allocate(this.#state, request);
  }

  /**
   * Lets blocks go; others that share them keep them. What was sealed stays cached until its room is needed.
   * @throws TKV_UNKNOWN_ID for one that was let go before; none is let go then
   */
  deallocate(blocks: readonly KVBlockDescriptor[]): void {
    deallocate(this.#state, blocks);
  }

  /**
   * The KV of the sequence's tokens is written, or the work that writes it was given to the device: its full
   * units are sealed. @param tokenIds all tokens of the sequence; left out, nobody else can find the blocks
   * @throws TKV_UNKNOWN_ID, TKV_INPUT for tokens that differ from those told before; nothing is sealed then
   */
  commit(sequenceId: string, tokenIds?: KeyElements, options: CommitOptions = {}): void {
    commit(this.#state, sequenceId, tokenIds, options);
  }

  /** Another sequence with the first tokens of this one. See `branching.ts`. */
  fork(sequenceId: string, forkId: string, requestId: string, tokens: number): KVBlockDescriptor[] {
    return fork(this.#state, sequenceId, forkId, requestId, tokens);
  }

  /** Takes tokens back: the sequence ends after `tokens` of them. */
  truncate(sequenceId: string, tokens: number): void {
    truncate(this.#state, sequenceId, tokens);
  }

  /** The sequence's blocks, in the order in which they were allocated. @throws TKV_UNKNOWN_ID */
  getBlocksBySequence(sequenceId: string): KVBlockDescriptor[] {
    return [...requireSequence(this.#state, sequenceId).descriptors];
  }

  /**
   * The longest cached prefix of these tokens in whole units, found in one pass, wherever it lies. Nothing
   * holds it: allocate with `tokenIds` to share it.
   * @returns nothing where fewer than `minMatchLength` tokens match
   */
  queryByPrefix(tokenIds: KeyElements, minMatchLength = 1, options: PrefixOptions = {}): FoundBlock[] {
    return findPrefix(this.#state, tokenIds, minMatchLength, options);
  }

  /** @throws TKV_INPUT for a tier that the pool has not */
  getTierUsage(tier: Tier): PoolTierUsage {
    const { residentBytes, capacityBytes, slots } = this.manager.usage(this.#state.positionOf('tier', tier));
    const numBlocks = slots.ready + slots.open + slots.filling + slots.reserved;
    const utilization = residentBytes / capacityBytes;
    return { tier, numBlocks, usedBytes: residentBytes, capacityBytes, utilization };
  }

  getStats(): PoolStats {
    const { counts, sequences } = this.#state;
    let totalBlocks = 0;
    for (const { descriptors } of sequences.values()) totalBlocks += descriptors.size;
    return {
      totalAllocations: counts.allocations,
      totalDeallocations: counts.deallocations,
      totalMigrations: this.#moves.arrived,
      cacheHits: counts.hits,
      cacheMisses: counts.misses,
      totalBlocks,
      tierUsage: Object.fromEntries(this.tiers.map(({ tier }) => [tierName(tier), this.getTierUsage(tier)])),
    };
  }

  /** Where a part of a block lies; undefined while it has no place. */
  placeOf(unit: PoolUnit): UnitPlace | undefined {
    return this.#state.placeOf(unit);
  }

  pressure(position: number): number {
    const { residentBytes, capacityBytes } = this.manager.usage(position);
    return residentBytes / capacityBytes;
  }

  /** Sealed blocks that sequences hold, each once, whose slowest part lies in the tier. */
  candidates(position: number): KVBlockDescriptor[] {
    const { tier } = this.tiers[position];
    const found = new Map<number, KVBlockDescriptor>();
    for (const { descriptors } of this.#state.sequences.values()) {
      for (const block of descriptors) {
        if (!found.has(block.blockId) && block.isSealed && block.tier === tier)
          found.set(block.blockId, block);
      }
    }
    return [...found.values()];
  }

  /**
   * Moves all parts of a block to a tier, for all who share it; at the priority of a demand load, up to HBM
   * for this sequence. Parts that cannot be moved stay where they are, and the block is whole all the same.
   * @param ended told once, at the end of the last transfer
   * @throws TKV_UNKNOWN_ID for a block that was let go, TKV_INPUT for a tier that the pool has not
   */
  move(
    block: KVBlockDescriptor,
    to: Tier,
    priority: JobPriority,
    nowUs: number,
    ended: (end: MoveEnd) => void,
  ): void {
    this.requireHeld(block);
    const position = this.#state.positionOf('toTier', to);
    this.#moves.move(block, position, priority, Math.max(nowUs, this.nowUs), ended);
  }

  /** @throws TKV_UNKNOWN_ID for a block that no sequence of this pool holds */
  requireHeld(block: KVBlockDescriptor): void {
    if (this.#state.sequences.get(block.sequenceId)?.descriptors.has(block) === true) return;
    throw unknownId('blockId', block.blockId);
  }

  checkIntegrity(): void {
    checkPool(this.#state);
  }

  #settled(table: Sequence): void {
    this.#moves.settled(table.id);
    const owner = this.#state.tables.get(table.id);
    if (owner === undefined) return;
    invariant(owner.track.table === table, 'a table has one track');
    for (const block of [...owner.sequence.leaving]) {
      if (!block.isSealed || block.units.some((u) => u.track.stateOf(u.unit) === Entry.LOADING)) continue;
      owner.sequence.leaving.delete(block);
      this.move(block, block.preferredTier, JobPriority.WRITE_THROUGH, this.nowUs, () => {});
    }
  }
}

// Giving out blocks: all of what is asked for, or an error and nothing. Tokens go behind those that the
// sequence has in these layers and heads; where those end inside a unit, its rest is used first, and the
// block that has it grows.

/** One column's part of an allocation. */
interface AllocatedPart {
  readonly column: Column;
  readonly units: number;
  /** Units of the sequence before. */
  readonly before: number;
  readonly track: Track | undefined;
  /** Leading units that are found. */
  matched: number;
  readonly keys: Uint32Array;
}

/**
 * @returns the blocks that hold the tokens, in order
 * @throws TKV_INPUT for what is malformed, TKV_CAPACITY for what HBM can never hold, TKV_FULL when there is
 * no room now, TKV_STATE where the last unit cannot be written on
 */
function allocate(state: PoolState, request: AllocateRequest): KVBlockDescriptor[] {
  requireOptions(request, allocateRequestNames, 'request');
  const { sequenceId, requestId, numTokens, layerIds, headIds, tokenIds, tenant = '' } = request;
  const { granularity = state.config.defaultGranularity, preferredTier = Tier.HBM } = request;
  requireName('sequenceId', sequenceId);
  requireName('requestId', requestId);
  requireCount('numTokens', numTokens, 1);
  state.positionOf('preferredTier', preferredTier);
  const columns = columnsOf(state.config.shapes, granularity, layerIds, headIds);
  const known = state.sequences.get(sequenceId);
  if (known !== undefined && known.tenant !== tenant) {
    throw inputError('tenant', `is another one than that of sequence ${sequenceId}. Begin another sequence.`);
  }
  const start = startOf(known, columns, sequenceId);
  if (known !== undefined) requireSameBlock(known, columns, start);
  if (tokenIds !== undefined) requireTokens('tokenIds', tokenIds, start + numTokens);
  const parts = columns.map((column) => partOf(state, known, column, start, numTokens, tokenIds, tenant));
  const matched = Math.min(...parts.map((part) => part.matched));
  for (const part of parts) part.matched = Math.min(part.matched, matched);
  requireRoom(state, parts, start);

  const sequence = known ?? new PoolSequence(sequenceId, tenant);
  const opened: Track[] = [];
  for (const part of parts) opened.push(open(state, sequence, part, start, numTokens));
  if (opened.some((track) => anyFailed(track, start)) || !unshareTails(state, parts, opened, start)) {
    undo(state, sequence, parts, opened, start);
    throw full(state, 'its free pages are cut for other sizes');
  }
  state.sequences.set(sequenceId, sequence);
  if (tokenIds !== undefined && start === 0 && state.config.enableSharing) {
    state.counts.hits += matched * parts.length;
    state.counts.misses += parts.reduce((sum, { units }) => sum + units - matched, 0);
  }
  const about = {
    granularity,
    sequenceId,
    requestId,
    preferredTier,
    layerIds: idsOf(columns, 'layerStart', 'layerEnd'),
    headIds: idsOf(columns, 'headStart', 'headEnd'),
  };
  const blocks = describe(state, sequence, opened, about, start, start + numTokens);
  state.counts.allocations += blocks.length;
  return blocks;
}

function startOf(sequence: PoolSequence | undefined, columns: readonly Column[], sequenceId: string): number {
  const starts = columns.map(({ id }) => sequence?.tracks.get(id)?.tokens ?? 0);
  if (starts.every((start) => start === starts[0])) return starts[0];
  const counts = [...new Set(starts)].join(' and ');
  throw stateError(
    'layerIds',
    `of sequence ${sequenceId} have ${counts} tokens. Allocate layers and heads together that have as many.`,
  );
}

/** Where the tokens before end inside a unit, the block that has it grows, and so it has the same columns. */
function requireSameBlock(sequence: PoolSequence, columns: readonly Column[], start: number): void {
  if (start % columns[0].tokensPerUnit === 0) return;
  const tracks = columns.map(({ id }) => sequence.tracks.get(id));
  const [first] = tracks;
  const block = first === undefined ? undefined : sequence.last.get(first);
  const has = new Set(block?.units.map(({ track }) => track));
  if (has.size === tracks.length && tracks.every((track) => track !== undefined && has.has(track))) return;
  throw stateError(
    'layerIds',
    'or headIds are others than those of the block that has room left. Name the same ones, or fill it first.',
  );
}

function partOf(
  state: PoolState,
  sequence: PoolSequence | undefined,
  column: Column,
  start: number,
  numTokens: number,
  tokenIds: KeyElements | undefined,
  tenant: string,
): AllocatedPart {
  const track = sequence?.tracks.get(column.id);
  const units = Math.ceil((start + numTokens) / column.tokensPerUnit);
  const before = track?.units ?? 0;
  const shares = state.config.enableSharing && tokenIds !== undefined && start === 0;
  const keys = shares ? state.keysOf(tenant, column, tokenIds, numTokens) : undefined;
  const words = keys?.words.slice(0, keys.length * 4) ?? new Uint32Array(0);
  const matched = state.manager.matchLength(words, words.length / 4);
  return { column, units, before, track, matched, keys: words };
}

/** @throws TKV_CAPACITY, TKV_FULL, TKV_STATE */
function requireRoom(state: PoolState, parts: readonly AllocatedPart[], start: number): void {
  const { manager } = state;
  let bytes = 0;
  for (const { column, units, before, track, matched, keys } of parts) {
    const { sizeClass, tokensPerUnit } = column;
    if (track === undefined) bytes += manager.bytesToOpen(keys, matched, units, sizeClass);
    else bytes += (units - before) * manager.config.unitBytes[sizeClass];
    const last = before - 1;
    if (track === undefined || start % tokensPerUnit === 0) continue;
    const entry = track.stateOf(last);
    if (entry === Entry.OPEN || entry === Entry.WAITING) continue;
    if (entry !== Entry.READY) {
      throw stateError('sequenceId', `has a last block that is not in HBM. Read it there first.`);
    }
    bytes += manager.config.unitBytes[sizeClass]; // it is written on in a copy of its own
  }
  const { capacityBytes } = manager.config.tiers[0].shape;
  if (bytes > capacityBytes) {
    throw new TierKVError(
      'TKV_CAPACITY',
      `numTokens take ${bytes} bytes, more than the ${capacityBytes} of HBM. Ask for fewer, or raise ` +
        'hbmCapacityBytes.',
      { field: 'numTokens' },
    );
  }
  if (!manager.hasRoomFor(bytes)) throw full(state, `${bytes} bytes find no room`);
}

function open(
  state: PoolState,
  sequence: PoolSequence,
  { column, units, track: known, matched, keys }: AllocatedPart,
  start: number,
  numTokens: number,
): Track {
  const { manager } = state;
  const nowUs = state.nowUs();
  let track = known;
  if (track === undefined) {
    const table = manager.open(keys, matched, nowUs);
    track = state.addTrack(sequence, column, table);
    for (let i = 0; i < matched; i++) track.keys.append(keys, i * 4);
    track.sealed = matched;
  }
  manager.allocate(track.table, track.units, units, nowUs, column.sizeClass);
  track.tokens = start + numTokens;
  return track;
}

/** Last units that are sealed and get more tokens are written on in copies of their own. */
function unshareTails(
  state: PoolState,
  parts: readonly AllocatedPart[],
  opened: readonly Track[],
  start: number,
): boolean {
  return opened.every((track, i) => {
    const last = parts[i].before - 1;
    if (start % track.column.tokensPerUnit === 0 || track.stateOf(last) !== Entry.READY) return true;
    if (!state.manager.copy(track.table, last, track.table, last, state.nowUs())) return false;
    track.reopen(last);
    return true;
  });
}

function anyFailed(track: Track, start: number): boolean {
  const from = Math.floor(start / track.column.tokensPerUnit);
  for (let i = from; i < track.units; i++) if (track.stateOf(i) === Entry.FAILED) return true;
  return false;
}

function undo(
  state: PoolState,
  sequence: PoolSequence,
  parts: readonly AllocatedPart[],
  opened: readonly Track[],
  start: number,
): void {
  opened.forEach((track, i) => {
    const { before, track: known } = parts[i];
    if (known === undefined) {
      state.dropTrack(sequence, track);
      return;
    }
    state.manager.truncate(track.table, before, state.nowUs());
    track.tokens = start;
  });
}

/** The blocks of tokens [start, end): fresh ones, and the last one before where it grows. */
function describe(
  state: PoolState,
  sequence: PoolSequence,
  tracks: readonly Track[],
  about: Pick<
    KVBlockDescriptor,
    'granularity' | 'layerIds' | 'headIds' | 'sequenceId' | 'requestId' | 'preferredTier'
  >,
  start: number,
  end: number,
): KVBlockDescriptor[] {
  const { tokensPerUnit } = tracks[0].column;
  const single = about.granularity === Granularity.BLOCK || about.granularity === Granularity.TOKEN;
  const blocks: KVBlockDescriptor[] = [];
  let from = Math.floor(start / tokensPerUnit);
  const to = Math.ceil(end / tokensPerUnit);
  if (start % tokensPerUnit !== 0) {
    const grown = sequence.last.get(tracks[0]);
    if (grown !== undefined) {
      const upTo = single ? Math.min(end, (from + 1) * tokensPerUnit) : end;
      const units = single ? [] : unitsOf(tracks, from + 1, to);
      sequence.alter(grown, () => grown.extend(units, upTo));
      grown.updateAccess();
      blocks.push(grown);
      from = single ? from + 1 : to;
    }
  }
  const each = single ? 1 : to - from;
  for (let unit = from; unit < to; unit += each) {
    const units = unitsOf(tracks, unit, unit + each);
    const range = [unit * tokensPerUnit, Math.min(end, (unit + each) * tokensPerUnit)] as const;
    const record = recordFor(state, tracks, unit + each, units);
    const block = new KVBlockDescriptor(state, record, about, units, range);
    record.holders.add(block);
    block.updateAccess();
    sequence.add(block);
    blocks.push(block);
  }
  return blocks;
}

function recordFor(
  state: PoolState,
  tracks: readonly Track[],
  end: number,
  units: readonly PoolUnit[],
): BlockRecord {
  const found = tracks.every((track) => track.keys.length >= end);
  const name = found ? recordName(units) : undefined;
  return name === undefined ? state.freshRecord() : state.recordOf(name);
}

function unitsOf(tracks: readonly Track[], from: number, to: number): PoolUnit[] {
  const units: PoolUnit[] = [];
  for (const track of tracks) for (let unit = from; unit < to; unit++) units.push({ track, unit });
  return ordered(units);
}

function idsOf(
  columns: readonly Column[],
  start: 'layerStart' | 'headStart',
  end: 'layerEnd' | 'headEnd',
): number[] {
  const ids = new Set<number>();
  for (const column of columns) for (let id = column[start]; id < column[end]; id++) ids.add(id);
  return [...ids].sort((a, b) => a - b);
}

function full({ manager }: PoolState, why: string): TierKVError {
  const { heldBytes } = manager.usage(0);
  const { capacityBytes } = manager.config.tiers[0].shape;
  return new TierKVError(
    'TKV_FULL',
    `HBM is full: ${why}, and ${heldBytes} of ${capacityBytes} bytes are held. Deallocate blocks or move ` +
      'them down first.',
    { field: 'hbmCapacityBytes' },
  );
}

//  One sequence from another, and back to fewer tokens; and blocks that are let go.

/**
 * Another sequence with the first `tokens` tokens of this one. Full units are shared, wherever they lie; a
 * partial one is copied within HBM.
 * @throws TKV_UNKNOWN_ID, TKV_INPUT for a name that is taken or tokens that it has not, TKV_STATE for units
 * that are not committed, or a partial one below HBM, TKV_FULL; nothing has changed then
 */
function fork(
  state: PoolState,
  sequenceId: string,
  forkId: string,
  requestId: string,
  tokens: number,
): KVBlockDescriptor[] {
  const from = requireSequence(state, sequenceId);
  requireName('forkId', forkId);
  requireName('requestId', requestId);
  requireCount('tokens', tokens, 1);
  if (state.sequences.has(forkId)) throw inputError('forkId', `${forkId} is taken. Choose another name.`);
  const longest = Math.max(...[...from.tracks.values()].map((track) => track.tokens));
  if (tokens > longest) throw inputError('tokens', `is ${tokens}, and the sequence has ${longest}.`);
  requireForkable(state, from, tokens);

  const to = new PoolSequence(forkId, from.tenant);
  to.learn(from.tokens.slice(0, tokens));
  const tracks = new Map<Track, Track>();
  for (const track of from.tracks.values()) tracks.set(track, forkTrack(state, to, track, tokens));
  state.sequences.set(forkId, to);
  for (const block of from.descriptors) {
    const units = block.units.flatMap(({ track, unit }): PoolUnit[] => {
      const copy = tracks.get(track);
      return copy === undefined || unit >= copy.units ? [] : [{ track: copy, unit }];
    });
    if (units.length === 0) continue;
    const [start, end] = block.tokenRange;
    const isWhole = units.length === block.units.length && end <= tokens && end % unitTokens(block) === 0;
    const record = isWhole ? block.record : state.freshRecord();
    const { granularity, layerIds, headIds, preferredTier } = block;
    const about = { granularity, layerIds, headIds, preferredTier, sequenceId: forkId, requestId };
    const copy = new KVBlockDescriptor(state, record, about, units, [start, Math.min(end, tokens)]);
    record.holders.add(copy);
    copy.updateAccess();
    to.add(copy);
  }
  state.counts.allocations += to.descriptors.size;
  return [...to.descriptors];
}

function unitTokens(block: KVBlockDescriptor): number {
  return block.units[0].track.column.tokensPerUnit;
}

function requireForkable(state: PoolState, from: PoolSequence, tokens: number): void {
  let bytes = 0;
  for (const track of from.tracks.values()) {
    const has = Math.min(tokens, track.tokens);
    const whole = Math.floor(has / track.column.tokensPerUnit);
    for (let i = 0; i < whole; i++) {
      const entry = track.stateOf(i);
      if (entry === Entry.READY || entry === Entry.MATCHED || entry === Entry.LOADING) continue;
      throw stateError('sequenceId', `has blocks that are not sealed (unit ${i}). Commit it first.`);
    }
    // A unit whose bytes differ from those that its key stands for cannot be shared.
    const diverged = Array.from({ length: whole }, (_, i) => state.manager.place(track.table, i)?.diverged);
    if (diverged.includes(true) || state.manager.matchLength(track.keys.words, whole) < whole) {
      throw stateError('sequenceId', 'has blocks that only it can read. Begin another sequence.');
    }
    if (has % track.column.tokensPerUnit === 0) continue;
    const last = track.stateOf(whole);
    if (last !== Entry.OPEN && last !== Entry.READY) {
      throw stateError('sequenceId', 'has a last block that is not in HBM. Read it there first.');
    }
    bytes += state.manager.config.unitBytes[track.column.sizeClass];
  }
  if (!state.manager.hasRoomFor(bytes)) throw full(state, `${bytes} bytes to copy find no room`);
}

function forkTrack(state: PoolState, to: PoolSequence, track: Track, tokens: number): Track {
  const { manager } = state;
  const has = Math.min(tokens, track.tokens);
  const whole = Math.floor(has / track.column.tokensPerUnit);
  const table = manager.open(track.keys.words, whole, state.nowUs());
  const copy = state.addTrack(to, track.column, table);
  copy.takeKeys(track, whole);
  copy.sealed = whole;
  copy.tokens = has;
  if (has % track.column.tokensPerUnit !== 0) {
    manager.copy(track.table, whole, table, whole, state.nowUs());
  }
  return copy;
}

/**
 * Takes tokens back: the sequence ends after `tokens` of them.
 * @throws TKV_UNKNOWN_ID, TKV_INPUT for a count that is none
 */
function truncate(state: PoolState, sequenceId: string, tokens: number): void {
  const sequence = requireSequence(state, sequenceId);
  requireCount('tokens', tokens, 0);
  for (const block of [...sequence.descriptors]) {
    const [start, end] = block.tokenRange;
    if (start >= tokens) forget(state, sequence, block);
    else if (end > tokens) shorten(state, sequence, block, tokens);
  }
  for (const track of [...sequence.tracks.values()]) {
    if (track.tokens <= tokens) continue;
    const units = Math.ceil(tokens / track.column.tokensPerUnit);
    track.shortenKeys(units);
    track.tokens = tokens;
    if (units === 0) state.dropTrack(sequence, track);
    else state.manager.truncate(track.table, units, state.nowUs());
  }
  for (const track of [...sequence.tracks.values()]) trim(state, sequence, track);
  sequence.forgetFrom(tokens);
  if (sequence.descriptors.size === 0) state.sequences.delete(sequenceId);
}

/** The block holds fewer tokens: it is another one than that which others share or find. */
function shorten(state: PoolState, sequence: PoolSequence, block: KVBlockDescriptor, tokens: number): void {
  sequence.alter(block, () => block.shorten(tokens));
  for (const { track } of block.units) sequence.last.set(track, block);
  block.leave(state.freshRecord());
}

/**
 * Lets blocks go. What was sealed stays cached until its room is needed.
 * @throws TKV_UNKNOWN_ID for a block that was let go before; none is let go then
 */
function deallocate(state: PoolState, blocks: readonly KVBlockDescriptor[]): void {
  const unique = new Set(blocks);
  for (const block of unique) {
    if (state.sequences.get(block.sequenceId)?.descriptors.has(block) !== true) {
      throw unknownId('blockId', block.blockId);
    }
  }
  // The last first, so that the tail of a prefix is evicted before its head.
  for (const block of [...unique].reverse()) {
    const sequence = requireSequence(state, block.sequenceId);
    for (let i = block.units.length - 1; i >= 0; i--) {
      const { track, unit } = block.units[i];
      state.manager.releaseRange(track.table, unit, unit + 1, state.nowUs());
    }
    const tracks = new Set(block.units.map(({ track }) => track));
    forget(state, sequence, block);
    for (const track of tracks) trim(state, sequence, track);
    if (sequence.descriptors.size === 0) state.sequences.delete(sequence.id);
  }
}

/** A track ends behind the last unit that a block holds: the next tokens go there. */
function trim(state: PoolState, sequence: PoolSequence, track: Track): void {
  if (track.held === 0) {
    state.dropTrack(sequence, track);
    return;
  }
  let units = track.units;
  while (units > 0 && track.stateOf(units - 1) === Entry.NONE) units--;
  if (units === track.units) return;
  state.manager.truncate(track.table, units, state.nowUs());
  track.shortenKeys(units);
  track.tokens = Math.min(track.tokens, units * track.column.tokensPerUnit);
  sequence.forgetFrom(Math.max(...[...sequence.tracks.values()].map((each) => each.tokens)));
}

function forget(state: PoolState, sequence: PoolSequence, block: KVBlockDescriptor): void {
  sequence.remove(block);
  block.record.holders.delete(block);
  state.counts.deallocations++;
}

function requireSequence(state: PoolState, sequenceId: string): PoolSequence {
  const sequence = state.sequences.get(sequenceId);
  if (sequence === undefined) throw unknownId('sequenceId', sequenceId, state.sequences.keys());
  return sequence;
}

// The KV of a sequence's tokens has been written: its full units are sealed, and can be shared, moved and
// read from then on.

export interface CommitOptions {
  /** Seals the last units too, although they have room for more tokens. Default false. */
  readonly tail?: boolean;
}

const commitOptionsNames: readonly string[] = optionNames<CommitOptions>({ tail: true });

/** @throws TKV_UNKNOWN_ID, TKV_INPUT for tokens that differ from those told before; nothing is sealed then */
function commit(
  state: PoolState,
  sequenceId: string,
  tokenIds: KeyElements | undefined,
  options: CommitOptions,
): void {
  const { tail = false } = requireOptions(options, commitOptionsNames);
  const sequence = state.sequences.get(sequenceId);
  if (sequence === undefined) throw unknownId('sequenceId', sequenceId, state.sequences.keys());
  if (tokenIds !== undefined) {
    requireTokens('tokenIds', tokenIds, 0);
    const at = sequence.firstDifference(tokenIds);
    if (at !== -1) {
      throw inputError(
        `tokenIds[${at}]`,
        `is ${String(tokenIds[at])}, and was told to be ${sequence.tokens[at]}. Truncate the sequence first.`,
      );
    }
  }
  for (const track of sequence.tracks.values()) requirePlaces(track);
  if (tokenIds !== undefined) sequence.learn(tokenIds);
  const told = tokenIds === undefined ? undefined : sequence.tokens;
  for (const track of sequence.tracks.values()) seal(state, track, told, tail);
  nameBlocks(state, sequence);
}

function requirePlaces(track: Track): void {
  for (let i = track.sealed; i < track.units; i++) {
    if (track.stateOf(i) !== Entry.WAITING) continue;
    throw stateError('sequenceId', 'has blocks that wait for a place. Write them first, then commit.');
  }
}

function seal(state: PoolState, track: Track, tokens: readonly number[] | undefined, tail: boolean): void {
  const { tokensPerUnit } = track.column;
  const written = Math.min(track.tokens, tokens?.length ?? track.tokens);
  const full = Math.floor(written / tokensPerUnit);
  const { manager } = state;
  track.hash(full, tokens);
  for (let i = track.sealed; i < full; i++) {
    if (track.stateOf(i) !== Entry.OPEN) continue;
    manager.seal(track.table, i, i + 1, track.keys.words, i * 4, tokensPerUnit, state.nowUs());
  }
  track.sealed = Math.max(track.sealed, full);
  const rest = written - full * tokensPerUnit;
  if (!tail || rest === 0 || track.stateOf(full) !== Entry.OPEN) return;
  manager.seal(track.table, full, full + 1, track.hashTail(full, rest, tokens), 0, rest, state.nowUs());
}

/** Blocks whose units all have keys can be found by them from now on. */
function nameBlocks(state: PoolState, sequence: PoolSequence): void {
  for (const block of sequence.unnamed) {
    const name = recordName(block.units);
    if (name === undefined) continue;
    state.remember(name, block.record);
    sequence.unnamed.delete(block);
  }
}

// Moves of a pool's blocks between tiers. A part that goes down is copied first and held in the tier below
// only once its bytes have arrived there; until then it stays where it was. So a move that fails loses
// nothing, and its source is free as soon as it has arrived.

type PoolMoveEnded = (success: boolean, reason: string) => void;

class PoolMoves {
  readonly #manager: KVManager;
  readonly #nowUs: () => number;
  /** Who waits for a transfer, by key and tier. */
  readonly #byKey: Map<string, PoolMoveEnded[]> = new Map();
  /** Who waits for a table's loads, by table. */
  readonly #byTable: Map<number, (() => void)[]> = new Map();
  /** Blocks that have arrived where they were sent. */
  arrived = 0;

  constructor(manager: KVManager, nowUs: () => number) {
    this.#manager = manager;
    this.#nowUs = nowUs;
  }

  /** Moves all parts of the block; `ended` is told once, when the last one has ended. */
  move(
    block: KVBlockDescriptor,
    position: number,
    priority: JobPriority,
    nowUs: number,
    ended: (end: MoveEnd) => void,
  ): void {
    const { units, record } = block;
    let left = units.length + 1;
    let reason = '';
    let moved = 0;
    const settle = (success: boolean, why: string): void => {
      if (success) moved++;
      else reason = why;
      if (--left > 0) return;
      const all = moved === units.length + 1;
      if (all) this.arrived++;
      ended({ success: all, reason: all ? '' : reason, nowUs: this.#nowUs() });
    };
    for (const unit of units) this.#moveUnit(unit, record, position, priority, nowUs, settle);
    settle(true, '');
  }

  /** The manager's listener hands the ends of transfers on to here. */
  moved(position: number, key: Uint32Array, outcome: Outcome): void {
    const name = nameOf(position, key);
    const waiting = this.#byKey.get(name);
    if (waiting === undefined) return;
    this.#byKey.delete(name);
    for (const ended of waiting) ended(outcome === Outcome.LOADED, outcomeNames[outcome]);
  }

  /** And here it says that a table waits for nothing any more. */
  settled(table: number): void {
    const waiting = this.#byTable.get(table);
    if (waiting === undefined) return;
    this.#byTable.delete(table);
    for (const look of waiting) look();
  }

  #moveUnit(
    { track, unit }: PoolUnit,
    record: BlockRecord,
    position: number,
    priority: JobPriority,
    nowUs: number,
    ended: PoolMoveEnded,
  ): void {
    const state = track.stateOf(unit);
    const key = track.keyOf(unit);
    if (key === undefined || (state !== Entry.READY && state !== Entry.MATCHED)) {
      ended(false, state === Entry.FAILED ? 'lost' : 'not sealed yet');
      return;
    }
    if (position === 0 && priority === JobPriority.DEMAND_LOAD) {
      this.#load({ track, unit }, nowUs, ended);
      return;
    }
    if (this.#manager.place(track.table, unit)?.position === position) {
      ended(true, '');
      return;
    }
    const keep = (): void => {
      for (const holder of [...record.holders]) {
        for (const part of holder.units) {
          if (!sameKey(part.track.keyOf(part.unit), key)) continue;
          this.#manager.keepIn(part.track.table, part.unit, part.unit + 1, position, this.#nowUs());
        }
      }
      const kept = this.#manager.place(track.table, unit)?.position === position;
      ended(kept, 'it was evicted before it could be held there');
    };
    const answer = this.#manager.move(key, position, priority, nowUs);
    if (answer === 'there') keep();
    else if (answer === 'started' || answer === 'pending') {
      push(this.#byKey, nameOf(position, key), (success, why) => (success ? keep() : ended(false, why)));
    } else ended(false, answer);
  }

  /** Brings a part up for somebody who waits for it. */
  #load({ track, unit }: PoolUnit, nowUs: number, ended: PoolMoveEnded): void {
    if (!this.#manager.load(track.table, nowUs, unit, unit + 1)) {
      ended(false, 'full');
      return;
    }
    const look = (): void => {
      const state = track.stateOf(unit);
      if (state === Entry.LOADING) push(this.#byTable, track.table.id, look);
      else ended(state === Entry.READY, 'lost');
    };
    look();
  }
}

function push<Key, Value>(map: Map<Key, Value[]>, key: Key, value: Value): void {
  const list = map.get(key);
  if (list === undefined) map.set(key, [value]);
  else list.push(value);
}

function sameKey(a: Uint32Array | undefined, b: Uint32Array): boolean {
  return a?.every((word, i) => word === b[i]) === true;
}

function nameOf(position: number, key: Uint32Array): string {
  return `${position} ${key.join(' ')}`;
}
