/**
 * A cached tail of a sequence that arrives: it is loaded beside the blocks before it, and copied into the
 * sequence's own block as soon as it is in HBM. Until then a table of its own pins it, which whoever ends the
 * arriving closes with `dropTail`. A tail that fails to come leaves that block to be computed, as it was.
 */

import { Entry, type FoundPrefix, nextPart as nextMeetingPart } from '../../runtime/index.ts';
import type { RequestContext } from '../requests/context.ts';
import type { SequenceState } from '../requests/kvSequence.ts';
import { copyTail, findTail } from '../requests/tails.ts';
import type { ArrivingTail, TailStage } from './arrivingPrefix.ts';

/** Looks for a tail behind the blocks that were found, and begins to load it. */
export function expectTail(context: RequestContext, sequence: SequenceState): void {
  const { manager, nowUs } = context;
  const found = Math.min(...sequence.groups.map(({ table }) => table.matched));
  const tail = findTail(context, sequence, found);
  if (tail === null) return;
  sequence.tail = { ...tail, stages: tail.tables.map(() => 'coming') };
  if (!tail.tables.every((table) => manager.load(table, nowUs()))) dropTail(context, sequence);
}

/** How far the tail is in a group now. What has come up is copied. */
export function tailStage(
  context: RequestContext,
  sequence: SequenceState,
  tail: ArrivingTail,
  group: number,
): TailStage {
  const { stages, tables, block } = tail;
  const { table } = sequence.groups[group];
  const isSettled = (): boolean => table.state[block] !== Entry.WAITING;
  const isOpen = (): boolean => table.state[block] === Entry.OPEN;
  if (stages[group] === 'coming' && tables[group].pending === 0 && isSettled()) {
    const isReady = tables[group].state[0] === Entry.READY && isOpen();
    stages[group] = isReady && copyTail(context, sequence, tail, group) ? 'copying' : 'failed';
    context.manager.cancel(tables[group], context.nowUs());
  }
  if (stages[group] === 'copying' && isSettled()) stages[group] = isOpen() ? 'inPlace' : 'failed';
  return stages[group];
}

/**
 * What the tail adds to a sequence of one group of which `computed` tokens are in place.
 * @returns the tokens that it adds: 0 where there is no tail, while blocks before it are missing, and where
 * its tokens are computed sooner than they come. Or, while they come, the time after which to look again
 */
export function tailNow(
  context: RequestContext,
  sequence: SequenceState,
  computed: number,
): { readonly tokens: number } | { readonly waitUs: number } {
  const { tail } = sequence;
  if (tail === undefined) return { tokens: 0 };
  const stage = tailStage(context, sequence, tail, 0);
  if (computed < tail.block * context.blockTokens) return { tokens: 0 };
  if (stage === 'copying') return { waitUs: Number.POSITIVE_INFINITY };
  if (stage === 'coming') {
    const waitUs = worthWaitingUs(context, sequence, tail);
    if (waitUs !== null) return { waitUs };
  }
  dropTail(context, sequence);
  const isThere = stage === 'inPlace' && sequence.groups[0].table.state[tail.block] === Entry.OPEN;
  return { tokens: isThere ? tail.tokens : 0 };
}

/** Nobody waits for the tail any more. A copy that has begun goes on; the block is the sequence's own. */
export function dropTail({ manager, nowUs }: RequestContext, sequence: SequenceState): void {
  const { tail } = sequence;
  if (tail === undefined) return;
  sequence.tail = undefined;
  tail.tables.forEach((table, g) => {
    if (tail.stages[g] === 'coming') manager.cancel(table, nowUs());
  });
}

/** The sequence ends after `tokens` tokens now: a tail with more of them is not its own any more. */
export function cutTail(context: RequestContext, sequence: SequenceState, tokens: number): void {
  const { tail, arriving } = sequence;
  if (tail === undefined || tokens >= tail.block * context.blockTokens + tail.tokens) return;
  dropTail(context, sequence);
  if (arriving !== undefined) return;
  // Groups that have it keep it; the caller counts on it in the others too, and is told there.
  const stages = tail.stages.map((stage): TailStage => (stage === 'inPlace' ? stage : 'failed'));
  sequence.tail = { ...tail, stages };
}

/** @returns how long the tail's load still takes, or null when its tokens are computed sooner */
function worthWaitingUs(
  { manager, units, pace, nowUs }: RequestContext,
  { groups: [{ sizeClass }] }: SequenceState,
  { tokens, tables: [sequence] }: ArrivingTail,
): number | null {
  const blockBytes = units.unitBytes[sizeClass];
  const prefix: FoundPrefix = { sequence, blocks: 1, blockTokens: tokens, blockBytes };
  const load = manager.loadEstimate(sequence, 0, 1, nowUs());
  const { to, plan } = nextMeetingPart(prefix, 0, pace.estimate(tokens), load);
  return to > 0 ? null : plan.loadUs;
}
