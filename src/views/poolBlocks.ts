/**
 * How a pool's blocks come and go: allocated, forked, truncated, released and committed. An allocation gives every
 * block that was asked for, or throws and changes nothing. Tokens go behind the sequence's tokens in these layers and
 * heads; if those end inside a unit, its rest is used first and its block grows.
 */

import { inputError, TierKVError } from '../runtime/errors.ts';
import { Granularity } from '../runtime/geometry/box.ts';
import type { KeyElements } from '../runtime/keys/keyChain.ts';
import * as is from '../runtime/kinds.ts';
import { Entry } from '../runtime/manager/sequence.ts';
import { checkInputs, type Kinds, optionTable } from '../runtime/options.ts';
import { Tier } from '../runtime/tier/tier.ts';
import {
  type BlockRecord,
  KVBlockDescriptor,
  ordered,
  type PoolUnit,
  type Track,
} from './kvBlockDescriptor.ts';
import { type Column, columnsOf } from './poolConfig.ts';
import {
  type AllocateRequest,
  allocateRequestTable,
  count,
  PoolSequence,
  type PoolState,
  recordName,
  requireTokens,
  stateError,
  unknownId,
} from './poolState.ts';

/** One column's part of an allocation. */
interface AllocatedPart {
  readonly column: Column;
  readonly units: number;
  /** Units of the sequence before. */
  readonly before: number;
  readonly track: Track | undefined;
  /** Leading units that were found in the cache. */
  matched: number;
  readonly keys: Uint32Array;
}

/**
 * @returns the blocks that hold the tokens, in order
 * @throws TKV_INPUT for a malformed argument, TKV_CAPACITY for a request that HBM can never hold, TKV_FULL if room
 * is missing now, TKV_STATE if the last unit cannot be written on
 */
export function allocate(state: PoolState, request: AllocateRequest): KVBlockDescriptor[] {
  allocateRequestTable.readFlat(request, 'request');
  const { sequenceId, requestId, numTokens, layerIds, headIds, tokenIds, tenant = '' } = request;
  const { granularity = state.config.defaultGranularity, preferredTier = Tier.HBM } = request;
  state.positionOf('preferredTier', preferredTier);
  const columns = columnsOf(state.config.shapes, granularity, layerIds, headIds);
  const known = state.sequences.get(sequenceId);
  if (known !== undefined && known.tenant !== tenant) {
    throw inputError('tenant', `must be the tenant of sequence ${sequenceId}. Begin another sequence.`);
  }
  const start = startOf(known, columns, sequenceId);
  if (known !== undefined) requireSameBlock(known, columns, start);
  if (tokenIds !== undefined) {
    requireTokens(tokenIds, start + numTokens);
    known?.requireSame(tokenIds);
  }
  const parts = columns.map((column) => partOf(state, known, column, start, numTokens, tokenIds, tenant));
  const matched = Math.min(...parts.map((part) => part.matched));
  for (const part of parts) part.matched = Math.min(part.matched, matched);
  const sequence = known ?? new PoolSequence(sequenceId, tenant, state.owners.of(tenant));
  requireRoom(state, sequence, parts, start);

  const opened: Track[] = [];
  for (const part of parts) opened.push(open(state, sequence, part, start, numTokens));
  if (opened.some((track) => anyFailed(track, start)) || !unshareTails(state, parts, opened, start)) {
    undo(state, sequence, parts, opened, start);
    throw full(state, 'its free pages are cut for other sizes');
  }
  state.sequences.set(sequenceId, sequence);
  if (tokenIds !== undefined) sequence.ask(tokenIds, start + numTokens);
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

/** If the tokens before end inside a unit, its block grows, so the allocation must have the same columns. */
function requireSameBlock(sequence: PoolSequence, columns: readonly Column[], start: number): void {
  if (start % columns[0].tokensPerUnit === 0) return;
  const tracks = columns.map(({ id }) => sequence.tracks.get(id));
  const [first] = tracks;
  const block = first === undefined ? undefined : sequence.last.get(first);
  const has = new Set(block?.units.map(({ track }) => track));
  if (has.size === tracks.length && tracks.every((track) => track !== undefined && has.has(track))) return;
  throw stateError(
    'layerIds',
    'and headIds must equal those of the block that has room left. Name the same ones, or fill it first.',
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
function requireRoom(
  state: PoolState,
  { owner }: PoolSequence,
  parts: readonly AllocatedPart[],
  start: number,
): void {
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
    bytes += manager.config.unitBytes[sizeClass]; // the sequence goes on in a copy of its own
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
  if (!manager.hasRoomFor(bytes, owner)) throw full(state, `${bytes} bytes find no room`);
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
    const table = manager.open(keys, matched, nowUs, matched, sequence.owner);
    track = state.addTrack(sequence, column, table);
    for (let i = 0; i < matched; i++) track.keys.append(keys, i * 4);
    track.sealed = matched;
  }
  manager.allocate(track.table, track.units, units, nowUs, column.sizeClass);
  track.tokens = start + numTokens;
  return track;
}

/** Copies sealed last units that get more tokens, so that the sequence goes on in copies of its own. */
function unshareTails(
  state: PoolState,
  parts: readonly AllocatedPart[],
  opened: readonly Track[],
  start: number,
): boolean {
  return opened.every((track, i) => {
    const last = parts[i].before - 1;
    if (start % track.column.tokensPerUnit === 0 || track.stateOf(last) !== Entry.READY) return true;
    const tokens = start % track.column.tokensPerUnit;
    if (!state.manager.copy(track.table, last, track.table, last, state.nowUs(), tokens)) return false;
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

/** The blocks of tokens [start, end): new ones, and the last block before them if it grows. */
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
  const { heldBytes } = manager.inspect.usage(0);
  const { capacityBytes } = manager.config.tiers[0].shape;
  return new TierKVError(
    'TKV_FULL',
    `HBM is full: ${why}, and ${heldBytes} of ${capacityBytes} bytes are held. Deallocate blocks or move ` +
      'them down first.',
    { field: 'hbmCapacityBytes' },
  );
}

// Forks, truncation and release.

/**
 * Another sequence with the first `tokens` tokens of this one. Full units are shared, in any tier; a partial one is
 * copied within HBM.
 * @throws TKV_UNKNOWN_ID, TKV_INPUT for a name in use or for more tokens than the sequence has, TKV_STATE for units
 * that are not committed, or a partial one below HBM, TKV_FULL; nothing has changed then
 */
export function fork(
  state: PoolState,
  sequenceId: string,
  forkId: string,
  requestId: string,
  tokens: number,
): KVBlockDescriptor[] {
  const from = requireSequence(state, sequenceId);
  checkInputs({ forkId, requestId, tokens }, { forkId: is.name(), requestId: is.name(), tokens: count(1) });
  if (state.sequences.has(forkId)) throw inputError('forkId', `${forkId} is taken. Choose another name.`);
  const longest = Math.max(...[...from.tracks.values()].map((track) => track.tokens));
  if (tokens > longest) throw inputError('tokens', `is ${tokens}, and the sequence has ${longest}.`);
  requireForkable(state, from, tokens);

  const to = new PoolSequence(forkId, from.tenant, from.owner);
  to.follow(from, tokens);
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
    // A unit whose bytes differ from the bytes that its key names elsewhere cannot be shared.
    const diverged = Array.from(
      { length: whole },
      (_, i) => state.manager.inspect.place(track.table, i)?.diverged,
    );
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
  if (!state.manager.hasRoomFor(bytes, from.owner)) throw full(state, `${bytes} bytes to copy find no room`);
}

function forkTrack(state: PoolState, to: PoolSequence, track: Track, tokens: number): Track {
  const { manager } = state;
  const has = Math.min(tokens, track.tokens);
  const whole = Math.floor(has / track.column.tokensPerUnit);
  const table = manager.open(track.keys.words, whole, state.nowUs(), whole, to.owner);
  const copy = state.addTrack(to, track.column, table);
  copy.takeKeys(track, whole);
  copy.sealed = whole;
  copy.tokens = has;
  const rest = has % track.column.tokensPerUnit;
  if (rest !== 0) manager.copy(track.table, whole, table, whole, state.nowUs(), rest);
  return copy;
}

/**
 * Removes tokens: the sequence ends after `tokens` of them.
 * @throws TKV_UNKNOWN_ID, TKV_INPUT for a count out of range
 */
export function truncate(state: PoolState, sequenceId: string, tokens: number): void {
  const sequence = requireSequence(state, sequenceId);
  count(0).read(tokens, 'tokens');
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
    else {
      state.manager.truncate(track.table, units, state.nowUs());
      const rest = tokens - (units - 1) * track.column.tokensPerUnit;
      state.manager.openings.takeBack(track.table, units - 1, units, rest);
    }
  }
  for (const track of [...sequence.tracks.values()]) trim(state, sequence, track);
  sequence.forgetFrom(tokens);
  if (sequence.descriptors.size === 0) state.sequences.delete(sequenceId);
}

/** The block holds fewer tokens, so it is no longer the block that others share or find. */
function shorten(state: PoolState, sequence: PoolSequence, block: KVBlockDescriptor, tokens: number): void {
  sequence.alter(block, () => block.shorten(tokens));
  for (const { track } of block.units) sequence.last.set(track, block);
  block.leave(state.freshRecord());
}

/**
 * Releases blocks. Sealed blocks stay cached until their room is needed.
 * @throws TKV_UNKNOWN_ID for a block that was released before; none is released then
 */
export function deallocate(state: PoolState, blocks: readonly KVBlockDescriptor[]): void {
  const unique = new Set(blocks);
  for (const block of unique) {
    if (state.sequences.get(block.sequenceId)?.descriptors.has(block) !== true) {
      throw unknownId('blockId', block.blockId);
    }
  }
  // The last goes first, so that the tail of a prefix is evicted before its head.
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

export function requireSequence(state: PoolState, sequenceId: string): PoolSequence {
  const sequence = state.sequences.get(sequenceId);
  if (sequence === undefined) throw unknownId('sequenceId', sequenceId, state.sequences.keys());
  return sequence;
}

// Committing: the KV of a sequence's tokens has been written. Its full units are sealed, and can be shared, moved and
// read from then on.

export interface CommitOptions {
  /** Seals the last units too, although they have room for more tokens. Default false. */
  readonly tail?: boolean;
}

const commitOptionsTable = optionTable({
  tail: is.optional(is.flag(), false),
} satisfies Kinds<CommitOptions>);

/**
 * @throws TKV_UNKNOWN_ID, TKV_INPUT for tokens that differ from the ones given before, TKV_STATE for blocks that were not
 * written, TKV_DEVICE for blocks that an error of the device may have hit; nothing is sealed then
 */
export function commit(
  state: PoolState,
  sequenceId: string,
  tokenIds: KeyElements | undefined,
  options: CommitOptions,
): void {
  const { tail } = commitOptionsTable.read(options);
  const sequence = state.sequences.get(sequenceId);
  if (sequence === undefined) throw unknownId('sequenceId', sequenceId, state.sequences.keys());
  if (tokenIds !== undefined) {
    requireTokens(tokenIds, 0);
    sequence.requireSame(tokenIds);
  }
  const count = tokenIds === undefined ? undefined : Math.max(tokenIds.length, sequence.tokens.length);
  for (const track of sequence.tracks.values()) {
    requirePlaces(track);
    requireWritten(state, track, count, tail);
  }
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

/** Full units among the tokens that are told to be written, and tokens behind them. */
function writtenUnits(
  track: Track,
  tokens: number | undefined,
): { readonly full: number; readonly rest: number } {
  const { tokensPerUnit } = track.column;
  const written = Math.min(track.tokens, tokens ?? track.tokens);
  const full = Math.floor(written / tokensPerUnit);
  return { full, rest: written - full * tokensPerUnit };
}

function requireWritten(state: PoolState, track: Track, tokens: number | undefined, tail: boolean): void {
  const { openings } = state.manager;
  const { full, rest } = writtenUnits(track, tokens);
  openings.requireWritten(track.table, track.sealed, full, track.column.tokensPerUnit);
  if (tail && rest > 0) openings.requireWritten(track.table, full, full + 1, rest);
}

function seal(state: PoolState, track: Track, tokens: readonly number[] | undefined, tail: boolean): void {
  const { tokensPerUnit } = track.column;
  const { full, rest } = writtenUnits(track, tokens?.length);
  const { manager } = state;
  track.hash(full, tokens);
  for (let i = track.sealed; i < full; i++) {
    if (track.stateOf(i) !== Entry.OPEN) continue;
    manager.seal(track.table, i, i + 1, track.keys.words, i * 4, tokensPerUnit, state.nowUs());
  }
  track.sealed = Math.max(track.sealed, full);
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
