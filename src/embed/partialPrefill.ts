/**
 * A sequence whose found blocks are handed over as they come. Its prefill goes in parts: of what is away, the
 * first blocks are computed while the last ones are loaded, until front and back meet; then what was not
 * found follows. How much is computed is decided before each part, by loads and parts measured so far.
 *
 *     begin({ arriving: true }) -> nextPart -> kernels -> nextPart -> kernels -> ... -> null -> seal
 */

import { runningClock } from '../backends/runningClock.ts';
import {
  Entry,
  type FoundPrefix,
  isOurs,
  nextPart as nextTwoEndedPart,
  passArrived,
  type Sequence,
  squaresOf,
  TierKVError,
  type TwoEndedPart,
} from '../runtime/index.ts';
import { type DeviceBlockTable, isTold, placesIn, type RequestContext, readableBlocks } from './context.ts';
import type { LayerGroup } from './layerGroups.ts';
import { unlessAborted } from './managerLoop.ts';
import {
  type ArrivingPrefix,
  type ArrivingTail,
  type GroupTable,
  type PrefillPart,
  placedBlocks,
  type SequenceState,
  type TailStage,
} from './sequenceState.ts';
import { copyTail, findTail } from './tails.ts';

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
  if (placedBlocks(table) * blockTokens < arriving.computed) return 'lost';
  const prefix = prefixOf(context, group);
  arriving.computed = passArrived(prefix, arriving.computed);
  const tail = tailNow(context, sequence, arriving.computed);
  if ('waitUs' in tail) return lookAgainMs(tail.waitUs);
  arriving.computed += tail.tokens;
  const start = arriving.computed;
  // A block that was opened again behind the caller's back lacks what was computed in it.
  const { openings } = context.manager;
  if (openings.firstUntold(table, 0, Math.ceil(start / blockTokens), blockTokens, start) !== -1)
    return 'lost';
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
): TwoEndedPart {
  const { manager, pace, nowUs, blockTokens } = context;
  const { sequence, blocks } = prefix;
  const load = manager.inspect.loadEstimate(sequence, Math.ceil(computed / blockTokens), blocks, nowUs());
  return nextTwoEndedPart(prefix, computed, pace.estimate(stepTokens), load);
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
  const { blockTokens } = context;
  const first = Math.floor(part.start / blockTokens);
  const end = Math.ceil(part.end / blockTokens);
  context.manager.openings.tell(sequence.groups[0].table, first, end, blockTokens, part.end);
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
  // Without a device the caller has computed the part by now, since it asks for the next one.
  if (context.stores.hasDevice) void context.device().queue.onSubmittedWorkDone().then(learn, unwatch);
  else learn();
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

/** Found blocks that the sequence still has: tokens may have been taken back. */
function foundBlocks({ matched, length }: Sequence): number {
  return Math.min(matched, length);
}

// A cached tail of a sequence that arrives: it is loaded beside the blocks before it, and copied into the
// sequence's own block as soon as it is in HBM. Until then a table of its own pins it, which `dropTail` closes
// at the end of the arrival. A tail that fails to come leaves that block to be computed, as it was.

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
function tailStage(
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
 * The tokens that the tail adds to a sequence of one group of which `computed` tokens are in place.
 * @returns the tokens that it adds: 0 without a tail, while blocks before it are missing, and where its tokens are
 * computed sooner than they come. Or, while they come, the time after which to look again
 */
function tailNow(
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

/** The tail is no longer waited for. A copy that has begun goes on; the block is the sequence's own. */
export function dropTail({ manager, nowUs }: RequestContext, sequence: SequenceState): void {
  const { tail } = sequence;
  if (tail === undefined) return;
  sequence.tail = undefined;
  tail.tables.forEach((table, g) => {
    if (tail.stages[g] === 'coming') manager.cancel(table, nowUs());
  });
}

/**
 * Ends a sequence: its sealed blocks stay cached, here and below; blocks never sealed are gone.
 * @param how `cancelled` also gives up loads that no other sequence waits for
 */
export function releaseSequence(
  context: RequestContext,
  sequence: SequenceState,
  how: 'released' | 'cancelled' = 'released',
): void {
  const { manager, nowUs } = context;
  context.computing.end(sequence);
  dropTail(context, sequence);
  for (const { table } of sequence.groups) {
    if (how === 'cancelled') manager.cancel(table, nowUs());
    else manager.release(table, nowUs());
  }
  sequence.ended = true;
  sequence.watch?.ended(nowUs(), how);
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
  const load = manager.inspect.loadEstimate(sequence, 0, 1, nowUs());
  const { to, plan } = nextTwoEndedPart(prefix, 0, pace.estimate(tokens), load);
  return to > 0 ? null : plan.loadUs;
}

// Layers that are used as they come: group g computes while group g + 1 is loaded. The handle of a group is
// made only behind the end of all its transfers, each of which was verified, so kernels that ask for one
// cannot attend over bytes that are still on their way. A unit that failed to come makes the whole sequence
// `interrupted`: what the groups before it have computed of its block is not used.

const proof: unique symbol = Symbol('all transfers of the group have ended');

/** Layers [first, end) of a sequence, every block of which is in HBM: verified, or open. */
export class ReadyLayers implements LayerGroup {
  readonly group: number;
  readonly first: number;
  readonly end: number;
  readonly blockTable: DeviceBlockTable;
  /** Blocks that are to be written in these layers; no others are. */
  readonly open: readonly number[];

  /** Only `readyLayers` has the proof. @throws TKV_STATE without it */
  constructor(
    given: typeof proof,
    group: number,
    layers: LayerGroup,
    blockTable: DeviceBlockTable,
    open: readonly number[],
  ) {
    if (given !== proof) {
      throw new TierKVError(
        'TKV_STATE',
        'ReadyLayers are made by kv.readyLayers, behind the end of the transfers. Call it.',
        { field: 'ReadyLayers' },
      );
    }
    const { first, end } = layers;
    this.group = group;
    this.first = first;
    this.end = end;
    this.blockTable = blockTable;
    this.open = open;
  }
}

export async function readyLayers(
  context: RequestContext,
  sequence: SequenceState,
  group: number,
  signals: readonly AbortSignal[],
): Promise<ReadyLayers | 'interrupted'> {
  const { loop, manager, keeper, units } = context;
  const { table } = sequence.groups[group];
  const isTailThere = await tailSettled(context, sequence, group, signals);
  while (table.pending > 0) await unlessAborted(signals, () => loop.settled(table));
  const { blocks } = sequence;
  const isLive = !sequence.ended && !sequence.isRecovering && keeper.present;
  const isHere = isTailThere && isLive && placedBlocks(table) >= blocks;
  if (!isHere) return 'interrupted';
  const open: number[] = [];
  for (let i = 0; i < blocks; i++) if (manager.openBlock(table, i) !== undefined) open.push(i);
  sequence.groups[group].disturbances = table.disturbances;
  if (sequence.isComing) {
    manager.openings.tell(table, 0, blocks, context.blockTokens, sequence.length);
    sequence.isComing = sequence.pending > 0 || !isTold(context, sequence, 0);
  }
  const places = placesIn(context, readableBlocks(manager, table, blocks).blocks);
  return new ReadyLayers(proof, group, units.groups[group], places, open);
}

/** Waits for the sequence's tail in this group. @returns false where it failed to come */
async function tailSettled(
  context: RequestContext,
  sequence: SequenceState,
  group: number,
  signals: readonly AbortSignal[],
): Promise<boolean> {
  const { table } = sequence.groups[group];
  for (;;) {
    const { tail } = sequence;
    const stage = tail === undefined ? 'inPlace' : tailStage(context, sequence, tail, group);
    if (stage === 'inPlace' || stage === 'failed') return stage === 'inPlace';
    // A tail that has come up may still wait for the sequence's own block to get its slot.
    const isUp = tail === undefined || stage !== 'coming' || tail.tables[group].pending === 0;
    const awaited = isUp ? table : tail.tables[group];
    await unlessAborted(signals, () => context.loop.settled(awaited));
  }
}
