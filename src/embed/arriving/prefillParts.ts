/**
 * A sequence whose found blocks are handed over as they come. Its prefill goes in parts: of what is away, the
 * first blocks are computed while the last ones are loaded, until front and back meet; then what was not
 * found follows. How much is computed is decided before each part, by loads and parts measured so far.
 *
 *     begin({ arriving: true }) -> nextPart -> kernels -> nextPart -> kernels -> ... -> null -> seal
 */

import { runningClock } from '../../backends/runningClock.ts';
import {
  Entry,
  type FoundPrefix,
  isOurs,
  type MeetingPart,
  nextPart as nextMeetingPart,
  passArrived,
  type Sequence,
  squaresOf,
} from '../../runtime/index.ts';
import { unlessAborted } from '../abort.ts';
import type { RequestContext } from '../requests/context.ts';
import type { GroupTable, SequenceState } from '../requests/kvSequence.ts';
import { scrub } from '../requests/scrubbing.ts';
import type { ArrivingPrefix, PrefillPart } from './arrivingPrefix.ts';
import { dropTail, tailNow } from './arrivingTail.ts';
import { placedBlocks } from './placed.ts';

/** Most tokens of a part where the caller does not say. */
export const PART_TOKENS = 512;
/** Shortest and longest time between two looks at blocks that are late. */
const LOOK_AGAIN_MS = 1;
const LOOK_AGAIN_MS_MOST = 1000;

/**
 * Room for all blocks of a table: the loads of the last found ones begin, the first ones are opened.
 * @returns false, with some of it done, when it does not fit
 */
export function takeRoomFromBothEnds(
  context: RequestContext,
  { table, sizeClass }: GroupTable,
  blocks: number,
): boolean {
  const { manager, nowUs } = context;
  const prefix = prefixOf(context, { table, sizeClass });
  const { loadFrom } = decide(context, prefix, passArrived(prefix, 0), PART_TOKENS);
  return (
    takeOver(context, { table, sizeClass }, 0, loadFrom) &&
    loadFromBack(context, { table }, loadFrom) &&
    manager.allocate(table, table.matched, blocks, nowUs(), sizeClass)
  );
}

/**
 * Waits until there is something to compute. The call says that the work of the part before it is submitted.
 * @param most tokens of the part at most
 * @returns null when all of the sequence is computed or found
 */
export async function nextPart(
  context: RequestContext,
  sequence: SequenceState,
  most: number,
  signals: readonly AbortSignal[],
): Promise<PrefillPart | null | 'interrupted'> {
  const { arriving } = sequence;
  if (arriving === undefined) return null;
  noteDone(context, arriving);
  const [group] = sequence.groups;
  for (;;) {
    if (sequence.ended || sequence.isRecovering || !context.keeper.present) return 'interrupted';
    const part = partNow(context, sequence, arriving, most);
    if (part === 'lost') return 'interrupted';
    if (part === 'all') return endArriving(context, sequence);
    if (typeof part !== 'number') return handOut(context, sequence, arriving, part);
    const isComing = group.table.pending > 0 || sequence.tail !== undefined;
    if (!isComing) return 'interrupted'; // nothing will come any more
    await nextEnd(context, part, signals);
  }
}

/** @returns `all` when nothing is left, `lost` when computed blocks are gone, or how long to wait, in ms */
function partNow(
  context: RequestContext,
  sequence: SequenceState,
  arriving: ArrivingPrefix,
  most: number,
): PrefillPart | 'all' | 'lost' | number {
  const { blockTokens } = context;
  const [group] = sequence.groups;
  const { table } = group;
  const [told] = sequence.told;
  const { count } = context.deviceErrors();
  if (placedBlocks(table) * blockTokens < arriving.computed) return 'lost';
  const prefix = prefixOf(context, group);
  arriving.computed = passArrived(prefix, arriving.computed);
  const tail = tailNow(context, sequence, arriving.computed);
  if ('waitUs' in tail) return lookAgainMs(tail.waitUs);
  if (tail.tokens > 0) {
    // The copy has the KV of these tokens.
    const block = Math.floor(arriving.computed / blockTokens);
    told.tell(block, block + 1, arriving.computed + tail.tokens, count);
  }
  arriving.computed += tail.tokens;
  const start = arriving.computed;
  // A block that was opened again behind the caller's back lacks what was computed in it.
  if (!told.hasAll(0, Math.ceil(start / blockTokens))) return 'lost';
  if (start >= sequence.length) return 'all';
  let end = sequence.length;
  let waitUs = Number.POSITIVE_INFINITY;
  if (start < prefix.blocks * blockTokens) {
    const { front, to, loadFrom, plan } = decide(context, prefix, start, most);
    loadFromBack(context, group, loadFrom);
    // Where no found block is left to come, the part goes on behind them, unless a tail does.
    const goesOn = to === prefix.blocks && sequence.tail === undefined;
    // A sequence that was taken back may end within a found block.
    if (!goesOn) end = Math.min(end, Math.max(front, to) * blockTokens);
    takeOver(context, group, front, Math.min(to, Math.ceil((start + most) / blockTokens)));
    waitUs = plan.loadUs;
  }
  end = Math.min(end, start + most, placedBlocks(table) * blockTokens);
  if (end > start) return { start, end };
  return lookAgainMs(waitUs);
}

function lookAgainMs(waitUs: number): number {
  return Math.min(Math.max(Math.ceil(waitUs / 1000), LOOK_AGAIN_MS), LOOK_AGAIN_MS_MOST);
}

function decide(
  context: RequestContext,
  prefix: FoundPrefix,
  computed: number,
  stepTokens: number,
): MeetingPart {
  const { manager, pace, nowUs, blockTokens } = context;
  const { sequence, blocks } = prefix;
  const load = manager.loadEstimate(sequence, Math.ceil(computed / blockTokens), blocks, nowUs());
  return nextMeetingPart(prefix, computed, pace.estimate(stepTokens), load);
}

/** Found blocks from `from` on that lie below HBM. @returns false, with nothing begun, without room */
function loadFromBack(
  { manager, nowUs }: RequestContext,
  { table }: Pick<GroupTable, 'table'>,
  from: number,
): boolean {
  const to = foundBlocks(table);
  for (let i = from; i < to; i++) {
    if (table.state[i] === Entry.MATCHED) return manager.loadFromBack(table, from, to, nowUs());
  }
  return true;
}

/** Blocks of [from, to) that are away are opened, to be computed. @returns false when some found no room */
function takeOver(
  { manager, nowUs }: RequestContext,
  { table, sizeClass }: Pick<GroupTable, 'table' | 'sizeClass'>,
  from: number,
  to: number,
): boolean {
  for (let i = from; i < to; i++) {
    if (manager.readableBlock(table, i) !== undefined || isOurs(table.state[i])) continue;
    if (!manager.recompute(table, i, i + 1, nowUs(), sizeClass)) return false;
  }
  return true;
}

function handOut(
  context: RequestContext,
  sequence: SequenceState,
  arriving: ArrivingPrefix,
  part: PrefillPart,
): PrefillPart {
  const first = Math.floor(part.start / context.blockTokens);
  scrub(context, sequence, first);
  const end = Math.ceil(part.end / context.blockTokens);
  sequence.told[0].tell(first, end, part.end, context.deviceErrors().count);
  arriving.part = part;
  arriving.computed = part.end;
  arriving.handedOut += part.end - part.start;
  arriving.handedOutUs = context.nowUs();
  context.manager.computing(true, arriving.handedOutUs);
  sequence.cachedTokens = part.end - arriving.handedOut;
  return part;
}

function endArriving(context: RequestContext, sequence: SequenceState): null {
  dropTail(context, sequence);
  for (const group of sequence.groups) group.disturbances = group.table.disturbances;
  sequence.cachedTokens = sequence.length - (sequence.arriving?.handedOut ?? 0);
  sequence.arriving = undefined;
  sequence.isComing = false;
  // All blocks are found, or were handed out.
  sequence.told[0].tell(0, 0, sequence.length, context.deviceErrors().count);
  return null;
}

/** How long the device took for the part, from when it was free for it: learnt when its work is done. */
function noteDone(context: RequestContext, arriving: ArrivingPrefix): void {
  const { part, handedOutUs } = arriving;
  if (part === null) return;
  arriving.part = null;
  const squares = squaresOf(part.start, part.end);
  const unwatch = runningClock.watch();
  const learn = (): void => {
    unwatch();
    const nowUs = context.nowUs();
    context.pace.stepEnded(part.end - part.start, squares, nowUs - Math.max(handedOutUs, arriving.doneUs));
    arriving.doneUs = nowUs;
    if (arriving.part === null) context.manager.computing(false, nowUs);
  };
  void context.device().queue.onSubmittedWorkDone().then(learn, unwatch);
}

/** Fulfilled when some job has ended, or after a while. */
async function nextEnd(
  { loop }: RequestContext,
  waitMs: number,
  signals: readonly AbortSignal[],
): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  const stopListening = loop.onRoom(resolve);
  const alarm = setTimeout(resolve, waitMs);
  try {
    await unlessAborted(signals, () => promise);
  } finally {
    stopListening();
    clearTimeout(alarm);
  }
}

function prefixOf(
  { units, blockTokens }: RequestContext,
  { table, sizeClass }: { readonly table: Sequence; readonly sizeClass: number },
): FoundPrefix {
  const blockBytes = units.unitBytes[sizeClass];
  return { sequence: table, blocks: foundBlocks(table), blockTokens, blockBytes };
}

/** Of the blocks that were found, those that the sequence still has: it may have been taken back. */
function foundBlocks({ matched, length }: Sequence): number {
  return Math.min(matched, length);
}
