/** One sequence from another, and back to fewer tokens; and blocks that are let go. */

import { Entry } from '../../manager/sequences/blockTable/sequence.ts';
import { inputError } from '../columns.ts';
import { KVBlockDescriptor, type PoolUnit } from '../descriptor.ts';
import { requireCount, requireName, stateError, unknownId } from '../requests.ts';
import type { PoolState } from '../state.ts';
import { full } from './allocating.ts';
import { PoolSequence } from './poolSequence.ts';
import type { Track } from './track.ts';

/**
 * Another sequence with the first `tokens` tokens of this one. Full units are shared, wherever they lie; a
 * partial one is copied within HBM.
 * @throws TKV_UNKNOWN_ID, TKV_INPUT for a name that is taken or tokens that it has not, TKV_STATE for units
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
export function truncate(state: PoolState, sequenceId: string, tokens: number): void {
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
export function deallocate(state: PoolState, blocks: readonly KVBlockDescriptor[]): void {
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

export function requireSequence(state: PoolState, sequenceId: string): PoolSequence {
  const sequence = state.sequences.get(sequenceId);
  if (sequence === undefined) throw unknownId('sequenceId', sequenceId, state.sequences.keys());
  return sequence;
}
