/**
 * How a request gets its blocks: its cached ones are pinned, what lower tiers hold is brought up, the rest is
 * opened to be computed. A request that finds no room is refused, or waits for it. What cannot be brought is
 * among the open blocks.
 */

import { type BlockKeys, type KeyElements, TierKVError } from '../../runtime/index.ts';
import { throwIfAborted, unlessAborted, type WaitOptions } from '../abort.ts';
import { ArrivingPrefix } from '../arriving/arrivingPrefix.ts';
import { expectTail } from '../arriving/arrivingTail.ts';
import { takeRoomFromBothEnds } from '../arriving/prefillParts.ts';
import { requireList, TokenList } from '../prompts/tokenList.ts';
import {
  bytesOf,
  freshKeys,
  full,
  given,
  isWhole,
  type RequestContext,
  requireFits,
  settled,
} from './context.ts';
import { type GroupTable, SequenceState } from './kvSequence.ts';
import { scrub } from './scrubbing.ts';
import { type FoundTail, findTail, isInPlace, takeTail } from './tails.ts';

export interface BeginOptions extends WaitOptions {
  /** Who may share this KV: from your own authentication, never from the request's body. */
  readonly tenant: string;
  /** Lower numbers are served first when requests wait for room. Default 0. */
  readonly priority?: number | undefined;
  /** Wait for room instead of being refused with TKV_FULL. Default false. */
  readonly wait?: boolean | undefined;
  /**
   * How long to wait, in milliseconds, for blocks of the same prompt that another request is computing just
   * now; after that they are computed once more. 0: not at all. Default 1000.
   */
  readonly shareWaitMs?: number | undefined;
  /**
   * Do not wait for blocks that lower tiers hold: they are handed over as they come. Prefill then goes by
   * `nextPart`, or, where there are layer groups, by `readyLayers`. Default false.
   */
  readonly arriving?: boolean | undefined;
  /** How its blocks should be kept once it lets them go; a hint to the eviction policy. */
  readonly retention?: RetentionHint | undefined;
}

/** A hint: nothing is kept for ever. */
export interface RetentionHint {
  /** From -100 to 100: higher is kept longer. Default 0. */
  readonly priority?: number;
  /** Stays for so many milliseconds from now on, if it can. Default: no wish. */
  readonly keepMs?: number;
}

/** A thousand years, which whole microseconds can still count. */
const KEEP_MS_MAX = 1000 * 366 * 86_400_000;

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
  const signals = signalsOf(context, given(options));
  throwIfAborted(signals);
  const priority = checkedPriority(options.priority);
  const shareWaitMs = checkedWait(options.shareWaitMs);
  if (options.retention !== undefined) checkHint(options.retention);
  requireList(tokens);
  requireFits(context, Math.ceil(tokens.length / blockTokens));
  const list = new TokenList(tokens);
  const chains = context.chains.of(options.tenant);
  if (!keeper.present) await unlessAborted(signals, () => keeper.ready());
  const groups = chains.map((chain, g) => {
    const keys = freshKeys(Math.ceil(list.length / blockTokens));
    chain.hashBlocks(list.words, 0, keys, list.length);
    return { chain, keys, sizeClass: context.units.sizeClass[g] };
  });
  await waitForSame(context, groups[0].keys, list.length, shareWaitMs, signals);
  const owner = context.owners.of(options.tenant);
  const arrives = options.arriving === true;
  const wish = { tokens: list.length, owner, priority, wait: options.wait === true, arrives };
  for (let isFirst = true; ; isFirst = false) {
    const admitted = await admit(context, groups, wish, signals, isFirst);
    const sequence = new SequenceState(options.tenant, list, admitted, blockTokens);
    try {
      if (arrives) fillAsItComes(context, sequence, options.retention);
      else await fill(context, sequence, options.retention, signals);
    } catch (error) {
      for (const { table } of admitted) {
        if (signals.some(({ aborted }) => aborted)) manager.cancel(table, context.nowUs());
        else manager.release(table, context.nowUs());
      }
      const full = error instanceof TierKVError && error.code === 'TKV_FULL';
      if (wish.wait && full) continue;
      throw error;
    }
    if (shareWaitMs > 0) context.computing.begin(sequence, admitted[0].keys, admitted[0].sealed);
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
  for (const group of sequence.groups) {
    group.sealed = isWhole ? group.table.matched : group.table.readyPrefix();
    group.disturbances = group.table.disturbances;
  }
  sequence.cachedTokens = Math.min(...sequence.groups.map(({ sealed }) => sealed)) * context.blockTokens;
  scrub(context, sequence, 0);
  expectTail(context, sequence);
  if (isWhole) sequence.cachedTokens += sequence.tail?.tokens ?? 0;
}

/** Waits, for a while, as long as somebody computes the first block that this request misses. */
async function waitForSame(
  { manager, computing, blockTokens }: RequestContext,
  keys: BlockKeys,
  tokens: number,
  waitMs: number,
  signals: readonly AbortSignal[],
): Promise<void> {
  if (waitMs === 0) return;
  const limit = Math.min(keys.length, Math.floor(Math.max(tokens - 1, 0) / blockTokens));
  const missing = (): Promise<void> | undefined => {
    const matched = manager.matchLength(keys.words, limit);
    return matched < limit ? computing.wait(keys, matched) : undefined;
  };
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<'late'>((resolve) => {
    if (missing() !== undefined) timer = setTimeout(() => resolve('late'), waitMs);
  });
  try {
    for (let other = missing(); other !== undefined; other = missing()) {
      const end = await unlessAborted(signals, () => Promise.race([other, late]));
      if (end === 'late') return;
    }
  } finally {
    clearTimeout(timer);
  }
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

/** @throws TKV_INPUT naming the part of the hint that is none */
function checkHint(hint: RetentionHint): Required<RetentionHint> {
  const { priority = 0, keepMs = 0 } = given(hint, 'retention');
  const fault = (field: string, value: unknown, what: string): TierKVError =>
    new TierKVError('TKV_INPUT', `${field} is ${String(value)}, not ${what}. Leave it out for none.`, {
      field,
    });
  if (!Number.isInteger(priority) || Math.abs(priority) > 100) {
    throw fault('retention.priority', priority, 'an integer from -100 to 100');
  }
  if (!Number.isFinite(keepMs) || keepMs < 0 || keepMs > KEEP_MS_MAX) {
    throw fault('retention.keepMs', keepMs, 'milliseconds from 0 on');
  }
  return { priority, keepMs };
}

/** @throws TKV_INPUT naming the part of the hint that is none; nothing is retained then */
export function retain(context: RequestContext, sequence: SequenceState, hint: RetentionHint): void {
  const { priority, keepMs } = checkHint(hint);
  const nowUs = context.nowUs();
  const keepUntilUs = keepMs > 0 ? nowUs + Math.ceil(keepMs * 1000) : 0;
  for (const { table } of sequence.groups) context.manager.retain(table, { priority, keepUntilUs }, nowUs);
}

interface Wish {
  readonly tokens: number;
  readonly owner: number;
  readonly priority: number;
  readonly wait: boolean;
  readonly arrives: boolean;
}

/**
 * Tables of a request that has room, with its cached blocks pinned and room taken for all others.
 * @param isFirst false: it had room before and lost it, and waits ahead of those of its priority
 * @throws TKV_FULL, and the reason of a signal
 */
async function admit(
  context: RequestContext,
  groups: readonly Pick<GroupTable, 'chain' | 'keys' | 'sizeClass'>[],
  wish: Wish,
  signals: readonly AbortSignal[],
  isFirst: boolean,
): Promise<GroupTable[]> {
  const { admission, blockTokens } = context;
  const { priority, wait } = wish;
  const blocks = Math.ceil(wish.tokens / blockTokens);
  if (!admission.isBehindOthers(priority)) {
    const tables = openTables(context, groups, wish);
    if (tables !== null) return tables;
  }
  if (!wait) throw full(context, blocks);
  const ticket = admission.join(priority, !isFirst);
  try {
    for (;;) {
      const tables = admission.isFirst(ticket) ? openTables(context, groups, wish) : null;
      if (tables !== null) return tables;
      await unlessAborted(signals, () => admission.turn(ticket));
    }
  } finally {
    admission.leave(ticket);
  }
}

/**
 * A table for each group whose blocks have their room, or none where they do not all fit. The last token is
 * always left to compute. All in one turn: nobody else can take the room between the look and the taking.
 */
function openTables(
  context: RequestContext,
  groups: readonly Pick<GroupTable, 'chain' | 'keys' | 'sizeClass'>[],
  wish: Wish,
): GroupTable[] | null {
  const tables = openWhatFits(context, groups, wish);
  if (tables === null) return null;
  const blocks = Math.ceil(wish.tokens / context.blockTokens);
  const isTaken = wish.arrives && tables.length === 1 && takeRoomFromBothEnds(context, tables[0], blocks);
  if (!isTaken) takeRoom(context, tables, blocks);
  return tables;
}

/** Starts the loads of what lower tiers hold, and opens blocks for the rest. @returns false without room */
function takeRoom(
  { manager, nowUs }: RequestContext,
  groups: readonly GroupTable[],
  blocks: number,
): boolean {
  return groups.every(
    ({ table, sizeClass }) =>
      manager.load(table, nowUs(), 0, table.length) && manager.allocate(table, 0, blocks, nowUs(), sizeClass),
  );
}

function openWhatFits(
  context: RequestContext,
  groups: readonly Pick<GroupTable, 'chain' | 'keys' | 'sizeClass'>[],
  { tokens, owner }: Wish,
): GroupTable[] | null {
  const { manager, blockTokens } = context;
  const blocks = Math.ceil(tokens / blockTokens);
  const limit = Math.floor(Math.max(tokens - 1, 0) / blockTokens);
  const nowUs = context.nowUs();
  if (groups.length === 1) {
    const [{ keys, sizeClass, chain }] = groups;
    const table = manager.openIfFits(keys.words, keys.length, nowUs, limit, blocks, sizeClass, owner);
    return table === null ? null : [{ table, keys, sizeClass, chain, sealed: 0, disturbances: 0 }];
  }
  // A block counts as cached where every group has its unit.
  let matched = limit;
  for (const { keys } of groups) {
    matched = Math.min(matched, manager.matchLength(keys.words, Math.min(keys.length, matched)));
  }
  let bytes = 0;
  for (const { keys, sizeClass } of groups)
    bytes += manager.bytesToOpen(keys.words, matched, blocks, sizeClass);
  if (!manager.hasRoomFor(bytes)) return null;
  return groups.map(({ chain, keys, sizeClass }) => {
    const table = manager.open(keys.words, keys.length, nowUs, matched, owner);
    return { table, keys, sizeClass, chain, sealed: 0, disturbances: 0 };
  });
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

/** What ends a wait: the end of the runtime, and the caller's signal where there is one. */
export function signalsOf({ closing }: RequestContext, { signal }: WaitOptions): AbortSignal[] {
  if (signal !== undefined && !(signal instanceof AbortSignal)) {
    throw new TierKVError('TKV_INPUT', 'signal is no AbortSignal. Pass the signal of an AbortController.', {
      field: 'signal',
    });
  }
  return signal === undefined ? [closing] : [closing, signal];
}

function checkedWait(waitMs = 1000): number {
  if (typeof waitMs === 'number' && waitMs >= 0 && waitMs < 2 ** 31) return waitMs;
  throw new TierKVError('TKV_INPUT', `shareWaitMs is ${String(waitMs)}, not milliseconds from 0 on.`, {
    field: 'shareWaitMs',
  });
}

/** @throws TKV_INPUT for what is no number */
export function checkedPriority(priority = 0): number {
  if (Number.isFinite(priority)) return priority;
  throw new TierKVError(
    'TKV_INPUT',
    `priority is ${String(priority)}, not a number. Lower is served first.`,
    {
      field: 'priority',
    },
  );
}

/** Room as `kv.room` shows it. */
export interface Room {
  /** Bytes of HBM that a request could take now: free, or evictable. */
  readonly bytes: number;
  /** The same in whole blocks. */
  readonly blocks: number;
  /** Requests that wait for room. */
  readonly waiting: number;
}

export function roomOf(context: RequestContext): Room {
  const { manager } = context;
  const { residentBytes, cachedBytes } = manager.usage(0);
  const { capacityBytes } = manager.config.tiers[0].shape;
  const bytes = Math.max(0, capacityBytes - (residentBytes - cachedBytes));
  const blocks = Math.floor(bytes / bytesOf(context.units, 1));
  return { bytes, blocks, waiting: context.admission.waiting };
}
