/**
 * The KV of a sequence's tokens has been written: its full units are sealed, and can be shared, moved and
 * read from then on.
 */

import type { KeyElements } from '../../keys/index.ts';
import { Entry } from '../../manager/sequences/blockTable/sequence.ts';
import { optionNames, requireOptions } from '../../options.ts';
import { inputError } from '../columns.ts';
import { requireTokens, stateError, unknownId } from '../requests.ts';
import { type PoolState, recordName } from '../state.ts';
import type { PoolSequence } from './poolSequence.ts';
import type { Track } from './track.ts';

export interface CommitOptions {
  /** Seals the last units too, although they have room for more tokens. Default false. */
  readonly tail?: boolean;
}

export const commitOptionsNames: readonly string[] = optionNames<CommitOptions>({ tail: true });

/** @throws TKV_UNKNOWN_ID, TKV_INPUT for tokens that differ from those told before; nothing is sealed then */
export function commit(
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
