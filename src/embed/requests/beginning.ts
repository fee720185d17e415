/**
 * How a request gets its blocks: it gets its room, then what lower tiers hold is brought up. What cannot be
 * brought is among the open blocks.
 */

import { type KeyElements, requireElements, TierKVError } from '../../runtime/index.ts';
import { requireFlag, requireOptions } from '../../runtime/options.ts';
import { throwIfAborted, unlessAborted } from '../abort.ts';
import { ArrivingPrefix } from '../arriving/arrivingPrefix.ts';
import { expectTail } from '../arriving/arrivingTail.ts';
import { TokenList } from '../prompts/tokenList.ts';
import {
  type BeginOptions,
  beginOptionsNames,
  checkedPriority,
  checkedWait,
  checkHint,
  type RetentionHint,
  retain,
  signalsOf,
} from './beginOptions.ts';
import { SharedWait } from './computing.ts';
import { freshKeys, full, handOver, isWhole, type RequestContext, requireFits, settled } from './context.ts';
import type { SequenceState } from './kvSequence.ts';
import { admit, takeRoom } from './room/admitting.ts';
import { scrub } from './scrubbing.ts';
import { type FoundTail, findTail, isInPlace, takeTail } from './tails.ts';

/**
 * Loads and openings of one sequence before it is given up: each can be undone by a loss or refused once
 * more.
 */
const ATTEMPTS_MAX = 8;

export async function begin(
  context: RequestContext,
  tokens: KeyElements,
  options: BeginOptions,
): Promise<SequenceState> {
  const { manager, keeper, blockTokens } = context;
  requireOptions(options, beginOptionsNames);
  requireFlag(options.wait, 'wait');
  requireFlag(options.arriving, 'arriving');
  const signals = signalsOf(context, options);
  throwIfAborted(signals);
  const priority = checkedPriority(options.priority);
  const shareWaitMs = checkedWait(options.shareWaitMs);
  if (options.retention !== undefined) checkHint(options.retention);
  requireElements(tokens);
  requireFits(context, Math.ceil(tokens.length / blockTokens));
  const list = new TokenList(tokens);
  const chains = context.chains.of(options.tenant, options.extras);
  if (!keeper.present) await unlessAborted(signals, () => keeper.ready());
  const groups = chains.map((chain, g) => {
    const keys = freshKeys(Math.ceil(list.length / blockTokens));
    chain.hashBlocks(list.words, 0, keys, list.length);
    return { chain, keys, sizeClass: context.units.sizeClass[g] };
  });
  const owner = context.owners.of(options.tenant);
  const arrives = options.arriving === true;
  const { tenant } = options;
  const wish = { tenant, list, owner, priority, wait: options.wait === true, arrives };
  await Promise.resolve(); // a loss of the device in the caller's turn is seen before anything is loaded
  const sharing = new SharedWait(context, groups, list.length, shareWaitMs);
  for (let isFirst = true; ; isFirst = false) {
    const sequence = await admit(context, groups, wish, { signals, isFirst, sharing });
    try {
      if (arrives) fillAsItComes(context, sequence, options.retention);
      else await fill(context, sequence, options.retention, signals);
    } catch (error) {
      context.computing.end(sequence);
      for (const { table } of sequence.groups) {
        if (signals.some(({ aborted }) => aborted)) manager.cancel(table, context.nowUs());
        else manager.release(table, context.nowUs());
      }
      const full = error instanceof TierKVError && error.code === 'TKV_FULL';
      if (wish.wait && full) continue;
      throw error;
    }
    const [{ keys, sealed }] = sequence.groups;
    context.computing.begin(sequence, keys, sealed); // also what could not be brought
    return sequence;
  }
}

/** The sequence's blocks are in HBM, cached or open. */
async function fill(
  context: RequestContext,
  sequence: SequenceState,
  retention: RetentionHint | undefined,
  signals: readonly AbortSignal[],
): Promise<void> {
  if (retention !== undefined) retain(context, sequence, retention);
  const tail = findTail(context, sequence, Math.min(...sequence.groups.map(({ table }) => table.matched)));
  const tailTokens = await bringWithTail(context, sequence, tail, signals);
  const ready = sequence.readyTokens / context.blockTokens;
  sequence.cachedTokens = sequence.readyTokens + tailTokens;
  for (const group of sequence.groups) group.sealed = ready;
  handOver(context, sequence);
}

/** Its blocks have their room. What lower tiers hold is on its way, or is computed by its first part. */
function fillAsItComes(
  context: RequestContext,
  sequence: SequenceState,
  retention: RetentionHint | undefined,
): void {
  if (retention !== undefined) retain(context, sequence, retention);
  const isWhole = sequence.groups.length > 1;
  sequence.arriving = isWhole ? undefined : new ArrivingPrefix();
  sequence.isComing = true;
  for (const group of sequence.groups) {
    group.sealed = isWhole ? group.table.matched : group.table.readyPrefix();
    group.disturbances = group.table.disturbances;
  }
  sequence.cachedTokens = Math.min(...sequence.groups.map(({ sealed }) => sealed)) * context.blockTokens;
  scrub(context, sequence, 0);
  expectTail(context, sequence);
  if (isWhole) sequence.cachedTokens += sequence.tail?.tokens ?? 0;
}

/** @returns tokens behind the cached blocks that a cached tail brought */
async function bringWithTail(
  context: RequestContext,
  sequence: SequenceState,
  tail: FoundTail | null,
  signals: readonly AbortSignal[],
): Promise<number> {
  if (tail === null) {
    await bring(context, sequence, signals);
    return 0;
  }
  const taken = await takeTail(context, sequence, tail, signals);
  await bring(context, sequence, signals);
  const goesOn = sequence.readyTokens === tail.block * context.blockTokens;
  return taken !== null && goesOn && isInPlace(taken, sequence) ? taken.tokens : 0;
}

/**
 * Every block of the sequence is brought to HBM or opened to be computed: once, and again for as long as
 * losses and errors undo it.
 * @throws TKV_FULL when its blocks find no room any more, TKV_DEVICE when the device undoes them every time
 */
export async function bring(
  context: RequestContext,
  sequence: SequenceState,
  signals: readonly AbortSignal[],
): Promise<void> {
  const { keeper } = context;
  const { blocks } = sequence;
  for (let attempt = 0; attempt < ATTEMPTS_MAX; attempt++) {
    if (!keeper.present) await unlessAborted(signals, () => keeper.ready());
    if (!takeRoom(context, sequence.groups, blocks)) throw full(context, blocks);
    await unlessAborted(signals, () => settled(context, sequence));
    if (isWhole(context, sequence)) {
      for (const group of sequence.groups) group.disturbances = group.table.disturbances;
      scrub(context, sequence, 0);
      return;
    }
  }
  throw new TierKVError(
    'TKV_DEVICE',
    `the device has undone ${blocks} blocks ${ATTEMPTS_MAX} times. Give it more memory, or try again later.`,
    { field: 'hbmBytes' },
  );
}
