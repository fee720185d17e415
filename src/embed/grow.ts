/**
 * A running sequence: it gets room for more tokens, and its full blocks are sealed once their KV is written.
 * Keys are made when a block is sealed, of the tokens that the sequence has then.
 */

import { described, inputError } from '../runtime/errors.ts';
import { Entry, type KeyElements, requireElements, TierKVError } from '../runtime/index.ts';
import * as is from '../runtime/kinds.ts';
import { doubtful } from '../runtime/manager/openings.ts';
import { type Kinds, optionTable } from '../runtime/options.ts';
import {
  full,
  handOver,
  hashFullBlocks,
  isHandedOver,
  isTold,
  isWhole,
  type RequestContext,
  requireFits,
  requireLive,
  requireNoErrors,
  type StepEnd,
  sealBlock,
  settled,
} from './context.ts';
import { type KVSequence, type SequenceState, stateOf } from './sequenceState.ts';
import { sealTail } from './tails.ts';
import { copyOfTokens, requireTokenIds } from './tenancy.ts';

/** Room for `tokens`, which begin with all that the sequence has. */
export async function append(
  context: RequestContext,
  sequence: SequenceState,
  tokens: KeyElements,
): Promise<StepEnd> {
  requireLive(sequence);
  requireElements(tokens);
  const asked = copyOfTokens(tokens);
  // one after the other: the second goes on from what the first has handed over
  while (sequence.appending !== undefined) await sequence.appending;
  requireLive(sequence);
  const { promise, resolve } = Promise.withResolvers<void>();
  sequence.appending = promise;
  try {
    return await appendAlone(context, sequence, asked);
  } finally {
    sequence.appending = undefined;
    resolve();
  }
}

async function appendAlone(
  context: RequestContext,
  sequence: SequenceState,
  tokens: KeyElements,
): Promise<StepEnd> {
  await settled(context, sequence);
  const at = sequence.tokens.firstDifference(tokens);
  if (at !== -1) {
    throw inputError(
      `tokens[${at}]`,
      `is ${described(tokens[at])}, but the sequence has ${sequence.tokens.words[at]} there. ` +
        'Pass all tokens of the sequence and the new ones behind them; take tokens back with truncate first.',
    );
  }
  requireFits(context, Math.ceil(tokens.length / context.blockTokens));
  if (!isReadyToGrow(context, sequence)) return 'interrupted';
  const { isComing } = sequence;
  extend(context, sequence, tokens, sequence.tokens.length);
  await settled(context, sequence);
  if (sequence.isRecovering || !isWhole(context, sequence)) return 'interrupted';
  if (!isComing) handOver(context, sequence);
  return 'done';
}

/** Whether the sequence may grow. Blocks that still come are handed over by the calls that wait for them. */
function isReadyToGrow(context: RequestContext, sequence: SequenceState): boolean {
  if (sequence.isComing) return !sequence.isRecovering && isWhole(context, sequence);
  return isHandedOver(context, sequence);
}

/** One sequence's part of a decode step. */
export interface StepEntry {
  readonly sequence: KVSequence;
  /** The new tokens behind the sequence's own: usually the one that was sampled. */
  readonly tokens: KeyElements;
}

const stepEntryTable = optionTable({ sequence: is.passed(), tokens: is.passed() } satisfies Kinds<StepEntry>);

/**
 * How an entry of a decode step ended: as `StepEnd` says, or `full`: there was no room, and the sequence is as it was. Release or
 * preempt others, and step it again.
 */
export type EntryEnd = StepEnd | 'full';

/**
 * Blocks that have become full are handed over to be sealed, which goes on behind the device's work, and each
 * sequence gets room for its new tokens. Looks at the ends of the tables only. Waits for the seal of a tail
 * that is to be written on, and for no other.
 * @throws TKV_INPUT for an invalid token id, TKV_CAPACITY for a sequence that HBM cannot hold,
 * TKV_UNKNOWN_ID for one that has ended; no sequence has grown then
 */
export async function step(context: RequestContext, asked: readonly StepEntry[]): Promise<EntryEnd[]> {
  const entries = entriesOf(context, asked);
  entries.forEach(({ sequence, tokens }, i) => {
    requireLive(sequence, `entries[${i}].sequence`);
    requireTokenIds(tokens);
    requireFits(context, Math.ceil((sequence.tokens.length + tokens.length) / context.blockTokens));
  });
  await Promise.all(entries.map(({ sequence }) => tailSealed(context, sequence)));
  entries.forEach(({ sequence }, i) => {
    requireNoErrors(context, sequence, `entries[${i}].sequence`);
  });
  const losses = context.keeper.losses;
  const from = entries.map(({ sequence }) => Math.floor(sequence.length / context.blockTokens));
  const ends = entries.map(({ sequence, tokens }): EntryEnd => {
    if (!context.keeper.present || sequence.ended || !isUndisturbed(context, sequence)) return 'interrupted';
    sealFull(context, sequence);
    try {
      extend(context, sequence, tokens, 0);
    } catch (error) {
      if (error instanceof TierKVError && error.code === 'TKV_FULL') return 'full';
      throw error;
    }
    return 'done';
  });
  await Promise.all(
    entries.map(({ sequence }, i) => (ends[i] === 'done' ? opened(context, sequence, from[i]) : null)),
  );
  return ends.map((end, i) => {
    if (end !== 'done') return end;
    const { sequence } = entries[i];
    const gone = context.keeper.losses !== losses || sequence.isRecovering || isDisturbed(sequence);
    if (gone) return 'interrupted';
    handOver(context, sequence, from[i]);
    sequence.watch?.token(context.nowUs());
    return 'done';
  });
}

interface CheckedEntry {
  readonly sequence: SequenceState;
  readonly tokens: KeyElements;
}

/** @throws TKV_INPUT naming the invalid entry */
function entriesOf(context: RequestContext, asked: readonly StepEntry[]): CheckedEntry[] {
  if (!Array.isArray(asked)) {
    throw inputError('entries', 'must be an array. Pass { sequence, tokens } for each sequence.');
  }
  const seen = new Set<KVSequence>();
  return asked.map((entry: StepEntry | undefined | null, i) => {
    const field = `entries[${i}].sequence`;
    const named = entry?.sequence as KVSequence | undefined | null; // what is missing is refused as a sequence
    if (entry !== undefined && entry !== null && named !== null) {
      stepEntryTable.check(entry, `entries[${i}]`);
    }
    const sequence = stateOf(context, named as KVSequence, field);
    if (seen.has(sequence)) {
      throw inputError(field, `is in the batch twice. Pass its new tokens in one entry.`);
    }
    seen.add(sequence);
    const { tokens } = entry as StepEntry;
    requireElements(tokens);
    return { sequence, tokens: copyOfTokens(tokens) };
  });
}

/** Whether a block of the sequence from `from` on is in this state. */
function hasBlock({ groups, blocks }: SequenceState, state: Entry, from: number): boolean {
  return groups.some(({ table }) => {
    for (let i = from; i < blocks; i++) if (table.state[i] === state) return true;
    return false;
  });
}

/** Fulfilled when some transfer that the sequence waits for has ended. */
async function oneSettled({ loop }: RequestContext, { groups }: SequenceState): Promise<void> {
  await Promise.race(groups.filter(({ table }) => table.pending > 0).map(({ table }) => loop.settled(table)));
}

/** Waits for slots and copies of the blocks from `from` on; seals under way are not waited for. */
async function opened(context: RequestContext, sequence: SequenceState, from: number): Promise<void> {
  while (hasBlock(sequence, Entry.WAITING, from)) await oneSettled(context, sequence);
}

/** A partial last block that is being sealed is not written on until its digest is taken. */
async function tailSealed(context: RequestContext, sequence: SequenceState): Promise<void> {
  const { length } = sequence;
  if (length % context.blockTokens === 0) return;
  const last = Math.floor(length / context.blockTokens);
  while (hasBlock(sequence, Entry.SEALING, last)) await oneSettled(context, sequence);
}

/** Whether no block was lost, and the caller was told of all tokens; looks at the blocks that are not sealed. */
function isUndisturbed(context: RequestContext, sequence: SequenceState): boolean {
  const { groups, isComing, isRecovering } = sequence;
  if (isRecovering || isComing || isDisturbed(sequence)) return false;
  return isTold(context, sequence, Math.min(...groups.map(({ sealed }) => sealed)));
}

function isDisturbed(sequence: SequenceState): boolean {
  return sequence.groups.some((group) => group.table.disturbances !== group.disturbances);
}

/** @throws TKV_FULL with nothing changed, TKV_INPUT for an invalid token id */
function extend(context: RequestContext, sequence: SequenceState, tokens: KeyElements, from: number): void {
  const { manager, blockTokens, units } = context;
  const blocks = Math.ceil((sequence.tokens.length + tokens.length - from) / blockTokens);
  const last =
    sequence.tokens.length % blockTokens === 0 ? -1 : Math.floor(sequence.tokens.length / blockTokens);
  // A sealed tail is written on in a copy, which needs room before the tail gives up its own.
  const missing = sequence.groups.reduce((sum, { table, sizeClass }) => {
    const copies = last !== -1 && table.state[last] === Entry.READY ? 1 : 0;
    return sum + (Math.max(0, blocks - table.length) + copies) * units.unitBytes[sizeClass];
  }, 0);
  if (blocks > sequence.blocks) requireFits(context, blocks);
  if (!manager.hasRoomFor(missing)) throw full(context, blocks - sequence.blocks);
  unshareTail(context, sequence);
  sequence.tokens.append(tokens, from);
  for (const { table, sizeClass } of sequence.groups) {
    if (table.length < blocks) manager.allocate(table, table.length, blocks, context.nowUs(), sizeClass);
  }
}

/**
 * A partial last block that was sealed, and may be read by others, is written on in a copy. @throws TKV_FULL
 */
function unshareTail(context: RequestContext, sequence: SequenceState): void {
  const { manager, blockTokens } = context;
  const last = Math.floor(sequence.tokens.length / blockTokens);
  if (sequence.tokens.length % blockTokens === 0) return;
  for (const { table } of sequence.groups) {
    if (table.state[last] !== Entry.READY) continue;
    const tokens = sequence.tokens.length % blockTokens;
    if (!manager.copy(table, last, table, last, context.nowUs(), tokens)) throw full(context, 1);
  }
}

/**
 * Hands the full open blocks that the caller was told to write over to be sealed, behind the device work
 * submitted so far.
 */
function sealFull(context: RequestContext, sequence: SequenceState): void {
  const { blockTokens } = context;
  const end = Math.floor(sequence.tokens.length / blockTokens);
  if (sequence.isRecovering || sequence.groups.every(({ sealed }) => sealed >= end)) return;
  hashFullBlocks(sequence);
  for (const group of sequence.groups) {
    const { table, keys } = group;
    let leads = true;
    for (let i = group.sealed; i < end; i++) {
      const isSealed =
        table.state[i] === Entry.OPEN
          ? sealBlock(context, table, i, keys.words, i * 4, blockTokens)
          : table.state[i] === Entry.READY || table.state[i] === Entry.SEALING;
      leads &&= isSealed;
      if (leads) group.sealed = i + 1;
    }
  }
}

/**
 * Seals the full blocks and waits until others can find them.
 * @throws TKV_DEVICE when the device reported an error after a block that is not sealed was opened
 */
export async function seal(context: RequestContext, sequence: SequenceState, tail = false): Promise<StepEnd> {
  const { keeper, blockTokens } = context;
  requireLive(sequence);
  requireNoErrors(context, sequence);
  const full = Math.floor(sequence.length / blockTokens);
  const { losses } = keeper;
  const { count } = context.keeper.errors;
  sealFull(context, sequence);
  if (tail) sealTail(context, sequence);
  await settled(context, sequence);
  context.computing.end(sequence);
  if (isHandedOver(context, sequence) && isSealed(sequence, full)) {
    sequence.watch?.prefilled(context.nowUs());
    return 'done';
  }
  const hasErrors = keeper.losses === losses && context.keeper.errors.count !== count;
  if (hasErrors && !sequence.ended) throw doubtful(keeper, 'the blocks of sequence were', 'sequence');
  return 'interrupted';
}

/** Whether the first `full` blocks are published. */
function isSealed({ groups }: SequenceState, full: number): boolean {
  return groups.every(({ table }) => {
    for (let i = 0; i < Math.min(full, table.length); i++) if (table.state[i] !== Entry.READY) return false;
    return true;
  });
}
