/**
 * One sequence from another, and back. A fork shares full blocks and has its own copy of the partial one;
 * tokens that are taken back leave the blocks before them as they are. A block that others may read is never
 * written again: a sequence that goes on within one gets a private copy.
 */

import { described, inputError } from '../runtime/errors.ts';
import { Entry } from '../runtime/index.ts';

import {
  freshKeys,
  full,
  handOver,
  isHandedOver,
  isWhole,
  type RequestContext,
  requireLive,
  type StepEnd,
  settled,
} from './context.ts';
import { seal } from './grow.ts';
import { cutTail } from './partialPrefill.ts';
import { type GroupTable, SequenceState } from './sequenceState.ts';
import { TokenList } from './tenancy.ts';

/**
 * A sequence of its own with the first `atToken` tokens. Full blocks are sealed first and shared; a partial
 * block is copied on the device, behind the work submitted so far.
 * @throws TKV_FULL without room, TKV_STATE when the sequence is interrupted
 */
export async function fork(
  context: RequestContext,
  sequence: SequenceState,
  atToken: number,
): Promise<SequenceState | 'interrupted'> {
  requireLive(sequence);
  requireTokens('atToken', atToken, sequence.length);
  const end = await seal(context, sequence);
  // Nothing may come between the last look and the copies.
  if (end === 'interrupted' || !isHandedOver(context, sequence)) return 'interrupted';
  const tokens = new TokenList(sequence.tokens.words.subarray(0, atToken));
  const groups: GroupTable[] = [];
  try {
    for (const group of sequence.groups) groups.push(forkGroup(context, group, tokens));
    const forked = new SequenceState(context, sequence.tenant, tokens, groups);
    await settled(context, forked);
    forked.cachedTokens = atToken;
    for (const group of groups) group.disturbances = group.table.disturbances;
    if (isWhole(context, forked)) {
      handOver(context, forked);
      return forked;
    }
  } catch (error) {
    for (const { table } of groups) context.manager.cancel(table, context.nowUs());
    throw error;
  }
  for (const { table } of groups) context.manager.cancel(table, context.nowUs());
  return 'interrupted';
}

function forkGroup(context: RequestContext, from: GroupTable, tokens: TokenList): GroupTable {
  const { manager, blockTokens } = context;
  const shared = Math.floor(tokens.length / blockTokens);
  const blocks = Math.ceil(tokens.length / blockTokens);
  const keys = freshKeys(blocks);
  for (let i = 0; i < shared; i++) keys.append(from.keys.words, i * 4);
  const { chain, sizeClass } = from;
  const table = manager.open(keys.words, shared, context.nowUs(), shared, from.table.owner);
  // Blocks that others cannot find, such as one whose digest differs from its first copy's, are copied like the partial
  // one.
  for (let i = table.matched; i < blocks; i++) {
    const own = Math.min(blockTokens, tokens.length - i * blockTokens);
    if (!manager.copy(from.table, i, table, i, context.nowUs(), own)) {
      manager.release(table, context.nowUs());
      throw full(context, 1);
    }
  }
  return { table, keys, sizeClass, chain, sealed: table.matched, disturbances: table.disturbances };
}

/**
 * The sequence ends after `tokens` tokens: drafts that were not accepted are taken back. A partial last block
 * that was sealed becomes a private copy, so that it can be written on.
 * @throws TKV_FULL when that copy finds no room; the sequence is as it was then
 */
export async function truncate(
  context: RequestContext,
  sequence: SequenceState,
  tokens: number,
): Promise<StepEnd> {
  requireLive(sequence);
  requireTokens('tokens', tokens, sequence.length);
  const { manager, blockTokens } = context;
  const blocks = Math.ceil(tokens / blockTokens);
  const whole = Math.floor(tokens / blockTokens);
  cutTail(context, sequence, tokens);
  await settled(context, sequence);
  if (sequence.ended) return 'interrupted';
  const shared = sequence.groups.filter(({ table }) => blocks > whole && table.state[whole] === Entry.READY);
  const bytes = shared.reduce((sum, { sizeClass }) => sum + context.units.unitBytes[sizeClass], 0);
  if (!manager.hasRoomFor(bytes)) throw full(context, shared.length);
  sequence.tokens.truncate(tokens);
  sequence.cachedTokens = Math.min(sequence.cachedTokens, tokens);
  sequence.arriving?.truncate(tokens);
  const { isComing } = sequence;
  const own = tokens - whole * blockTokens;
  for (const group of sequence.groups) {
    if (blocks < group.table.length) manager.truncate(group.table, blocks, context.nowUs());
    manager.openings.takeBack(group.table, whole, whole + 1, own);
    if (shared.includes(group)) manager.copy(group.table, whole, group.table, whole, context.nowUs(), own);
    group.keys.truncate(Math.min(group.keys.length, whole));
    group.sealed = Math.min(group.sealed, whole);
  }
  await settled(context, sequence);
  if (sequence.isRecovering) return 'interrupted';
  const isDone = isComing ? isWhole(context, sequence) : isHandedOver(context, sequence);
  return isDone ? 'done' : 'interrupted';
}

function requireTokens(field: string, tokens: number, length: number): void {
  if (Number.isInteger(tokens) && tokens >= 0 && tokens <= length) return;
  const [count, remedy] = length === 0 ? ['no', 'Name 0.'] : [length, `Name 0 to ${length}.`];
  throw inputError(field, `is ${described(tokens)}, and the sequence has ${count} tokens. ${remedy}`);
}
