/**
 * Partial last blocks. A prompt's tail can be sealed under a key of its own, of the tokens that it has, and
 * be found again by a prompt that goes on from it. It is never written again: a prompt that finds it gets a
 * copy.
 */

import { Entry, type Sequence } from '../runtime/index.ts';
import { type RequestContext, sealBlock, settled } from './context.ts';
import { unlessAborted } from './managerLoop.ts';
import type { GroupTable, SequenceState } from './sequenceState.ts';
import type { TokenList } from './tenancy.ts';

/** A cached tail: the same tokens in every group, pinned. */
export interface FoundTail {
  readonly tokens: number;
  /** The sequence's block that it is the beginning of. */
  readonly block: number;
  /** The table of each group, one block long. */
  readonly tables: readonly Sequence[];
}

/**
 * Seals the partial last block, if there is one, under its tokens. The caller seals the full blocks before.
 */
export function sealTail(context: RequestContext, sequence: SequenceState): void {
  const { blockTokens } = context;
  const { length, isRecovering } = sequence;
  const block = Math.floor(length / blockTokens);
  const tokens = length % blockTokens;
  if (tokens === 0 || isRecovering) return;
  const key = new Uint32Array(4);
  for (const { table, chain, keys } of sequence.groups) {
    if (table.state[block] !== Entry.OPEN) continue;
    chain.hashTail(sequence.tokens.words, block, tokens, keys, key);
    sealBlock(context, table, block, key, 0, tokens);
  }
}

/** The longest cached tail behind the sequence's full cached blocks, pinned. */
export function findTail(
  context: RequestContext,
  sequence: SequenceState,
  cachedBlocks: number,
): FoundTail | null {
  const longest = longestTail(context, sequence.groups, sequence.tokens, cachedBlocks);
  if (longest === null) return null;
  const { tokens, keys } = longest;
  const tables = sequence.groups.map(({ table: { owner } }, g) =>
    context.manager.open(keys[g], 1, context.nowUs(), 1, owner),
  );
  return { tokens, block: cachedBlocks, tables };
}

/**
 * Tokens and keys, one a group, of the longest cached tail behind `cachedBlocks` full blocks; the last token is
 * always left to compute. Each length costs a hash, so a length that no sealed block has had is skipped.
 */
export function longestTail(
  { manager, blockTokens }: RequestContext,
  groups: readonly Pick<GroupTable, 'chain' | 'keys'>[],
  list: TokenList,
  cachedBlocks: number,
): { readonly tokens: number; readonly keys: readonly Uint32Array[] } | null {
  const most = Math.min(list.length - 1 - cachedBlocks * blockTokens, blockTokens - 1);
  for (let tokens = most; tokens > 0; tokens--) {
    if (!manager.inspect.hasHadBlocksOf(tokens)) continue;
    const keys = groups.map((group) => {
      const key = new Uint32Array(4);
      group.chain.hashPartial(list.words, cachedBlocks, tokens, group.keys, key);
      return key;
    });
    if (keys.every((key) => manager.matchLength(key, 1) === 1)) return { tokens, keys };
  }
  return null;
}

/** A tail that lies in a sequence's own block, for as long as nothing undoes that block. */
interface TakenTail {
  readonly tokens: number;
  /** `disturbances` of each group's table when the copy was in place. */
  readonly disturbances: readonly number[];
}

/** Whether the copy is still the one that was made: a loss may have taken it and another block its place. */
export function isInPlace({ disturbances }: TakenTail, sequence: SequenceState): boolean {
  return sequence.groups.every(({ table }, g) => table.disturbances === disturbances[g]);
}

/**
 * Begins to copy the tail, which is in HBM, into the sequence's own block of a group. The copy takes the room
 * that the block has already. @returns false when it could not
 */
export function copyTail(
  { manager, nowUs }: RequestContext,
  sequence: SequenceState,
  { tables, block, tokens }: FoundTail,
  group: number,
): boolean {
  const { table } = sequence.groups[group];
  manager.releaseRange(table, block, block + 1, nowUs());
  return manager.copy(tables[group], 0, table, block, nowUs(), tokens);
}

/**
 * Brings the tail up and copies it into the sequence's first block that is not cached.
 * @returns null when it could not be brought
 * @throws the reason of a signal; the tail's own tables are closed then too
 */
export async function takeTail(
  context: RequestContext,
  sequence: SequenceState,
  tail: FoundTail,
  signals: readonly AbortSignal[],
): Promise<TakenTail | null> {
  const { manager, loop } = context;
  try {
    const loads = tail.tables.every((table) => manager.load(table, context.nowUs()));
    if (loads)
      await unlessAborted(signals, () => Promise.all(tail.tables.map((table) => loop.settled(table))));
    if (!loads || tail.tables.some((table) => table.state[0] !== Entry.READY)) return null;
    const copied = sequence.groups.every((_, g) => copyTail(context, sequence, tail, g));
    await unlessAborted(signals, () => settled(context, sequence));
    const whole = sequence.groups.every(({ table }) => table.state[tail.block] === Entry.OPEN);
    if (!copied || !whole) return null;
    return { tokens: tail.tokens, disturbances: sequence.groups.map(({ table }) => table.disturbances) };
  } finally {
    // Cancelling is releasing, and calls off the loads that an abort leaves under way.
    for (const table of tail.tables) manager.cancel(table, context.nowUs());
  }
}
