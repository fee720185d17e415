/**
 * Giving out blocks: all of what is asked for, or an error and nothing. Tokens go behind those that the
 * sequence has in these layers and heads; where those end inside a unit, its rest is used first, and the
 * block that has it grows.
 */

import { TierKVError } from '../../errors.ts';
import { Granularity } from '../../geometry/index.ts';
import type { KeyElements } from '../../keys/index.ts';
import { Entry } from '../../manager/sequences/blockTable/sequence.ts';
import { requireOptions } from '../../options.ts';
import { Tier } from '../../tier/tier.ts';
import { type Column, columnsOf, inputError } from '../columns.ts';
import { type BlockRecord, KVBlockDescriptor, ordered, type PoolUnit } from '../descriptor.ts';
import {
  type AllocateRequest,
  allocateRequestNames,
  requireCount,
  requireName,
  requireTokens,
  stateError,
} from '../requests.ts';
import { type PoolState, recordName } from '../state.ts';
import { PoolSequence } from './poolSequence.ts';
import type { Track } from './track.ts';

/** One column's part of an allocation. */
interface Part {
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
export function allocate(state: PoolState, request: AllocateRequest): KVBlockDescriptor[] {
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
): Part {
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
function requireRoom(state: PoolState, parts: readonly Part[], start: number): void {
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
  { column, units, track: known, matched, keys }: Part,
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
  parts: readonly Part[],
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
  parts: readonly Part[],
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

export function full({ manager }: PoolState, why: string): TierKVError {
  const { heldBytes } = manager.usage(0);
  const { capacityBytes } = manager.config.tiers[0].shape;
  return new TierKVError(
    'TKV_FULL',
    `HBM is full: ${why}, and ${heldBytes} of ${capacityBytes} bytes are held. Deallocate blocks or move ` +
      'them down first.',
    { field: 'hbmCapacityBytes' },
  );
}
