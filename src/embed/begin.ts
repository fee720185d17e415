/**
 * How a request gets its blocks: it gets its room, then what lower tiers hold is brought up. What cannot be
 * brought is among the open blocks.
 */

import type { ChainPart } from '../backends/tierRow.ts';
import { described, inputError } from '../runtime/errors.ts';
import {
  JobPriority,
  type KeyElements,
  type RequestExtras,
  requireElements,
  TierKVError,
} from '../runtime/index.ts';
import * as is from '../runtime/kinds.ts';
import { type Kinds, optionTable } from '../runtime/options.ts';
import {
  bytesOf,
  freshKeys,
  full,
  handOver,
  isWhole,
  type RequestContext,
  requireFits,
  settled,
} from './context.ts';
import { throwIfAborted, unlessAborted, type WaitOptions } from './managerLoop.ts';
import { expectTail, takeRoomFromBothEnds } from './partialPrefill.ts';
import { ArrivingPrefix, type GroupTable, SequenceState, SharedWait } from './sequenceState.ts';
import { type FoundTail, findTail, isInPlace, longestTail, takeTail } from './tails.ts';
import { TokenList } from './tenancy.ts';

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
  beginOptionsTable.read(options);
  const signals = signalsOf(context, options);
  throwIfAborted(signals);
  const priority = checkedPriority(options.priority);
  const shareWaitMs = checkedWait(options.shareWaitMs);
  if (options.retention !== undefined) checkHint(options.retention);
  requireElements(tokens);
  requireFits(context, Math.ceil(tokens.length / blockTokens));
  const list = new TokenList(tokens);
  const { tenant: asker, extras } = options;
  const asked = { id: undefined, tenant: asker, promptTokens: list.length, prompt: list, extras };
  const chains = context.chains.of(options.tenant, options.extras);
  const watch = context.observers.asked(asked, context.nowUs());
  try {
    if (!keeper.present) await unlessAborted(signals, () => keeper.ready());
    const groups = chains.map((chain, g) => {
      const keys = freshKeys(Math.ceil(list.length / blockTokens));
      chain.hashBlocks(list.words, 0, keys, list.length);
      return { chain, keys, sizeClass: context.units.sizeClass[g] };
    });
    const owner = context.owners.of(options.tenant);
    await findShared(context, groups, list.length, owner, signals);
    const arrives = options.arriving === true;
    const { tenant } = options;
    const wish = { tenant, list, owner, priority, wait: options.wait === true, arrives };
    const sharing = new SharedWait(context, groups, list.length, shareWaitMs);
    watch?.hashed(context.nowUs());
    for (let isFirst = true; ; isFirst = false) {
      const sequence = await admit(context, groups, wish, { signals, isFirst, sharing });
      sequence.watch = watch;
      watch?.placed(context.nowUs());
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
      watch?.filled(context.nowUs(), sequence.cachedTokens, sequence.groups[0].table.id);
      const [{ keys, sealed }] = sequence.groups;
      context.computing.begin(sequence, keys, sealed); // also what could not be brought
      return sequence;
    }
  } catch (error) {
    watch?.ended(context.nowUs(), 'refused');
    throw error;
  }
}

/**
 * Asks the shared tier for the blocks that no tier of this runtime has, and makes known what it has: they are matched
 * and loaded as those of any tier. One request, which ends by its deadline; without a shared tier, nothing.
 */
export async function findShared(
  context: RequestContext,
  groups: readonly Pick<GroupTable, 'keys' | 'sizeClass'>[],
  tokens: number,
  owner: number,
  signals: readonly AbortSignal[],
): Promise<void> {
  const { shared, manager, nowUs } = context;
  const parts = partsToFind(context, groups, tokens);
  if (shared === undefined || parts === undefined) return;
  const found = await unlessAborted(signals, () => shared.tier.lookup(parts));
  for (const block of found.flat()) {
    const place = manager.adoptFound(shared.position, { ...block, owner }, nowUs());
    if (place !== undefined) shared.tier.believe(place, block.key);
  }
}

/** Blocks of a prompt that the shared tier is to be asked for; undefined without such blocks or without such a tier. */
export function partsToFind(
  { shared, manager, blockTokens }: RequestContext,
  groups: readonly Pick<GroupTable, 'keys' | 'sizeClass'>[],
  tokens: number,
): ChainPart[] | undefined {
  if (shared === undefined) return undefined;
  const to = Math.floor(Math.max(tokens - 1, 0) / blockTokens);
  const parts = groups.map(({ keys: { words }, sizeClass }) => {
    return { keys: words, from: manager.matchLength(words, to), to, sizeClass };
  });
  return parts.every(({ from }) => from >= to) ? undefined : parts;
}

/** The sequence's blocks are in the top tier, cached or open. */
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
    await bring(context, sequence, signals, true);
    return 0;
  }
  const taken = await takeTail(context, sequence, tail, signals);
  await bring(context, sequence, signals, false); // the tail's block was let go for its copy
  const goesOn = sequence.readyTokens === tail.block * context.blockTokens;
  return taken !== null && goesOn && isInPlace(taken, sequence) ? taken.tokens : 0;
}

/**
 * Every block of the sequence is brought to the top tier or opened to be computed: once, and again for as long as
 * losses and errors undo it.
 * @param hasRoom whether its loads and openings were begun by the caller: the first attempt then only waits
 * @throws TKV_FULL when its blocks find no room any more, TKV_DEVICE when the device undoes them every time
 */
export async function bring(
  context: RequestContext,
  sequence: SequenceState,
  signals: readonly AbortSignal[],
  hasRoom: boolean,
): Promise<void> {
  const { keeper } = context;
  const { blocks } = sequence;
  for (let attempt = 0; attempt < ATTEMPTS_MAX; attempt++) {
    if (!keeper.present) await unlessAborted(signals, () => keeper.ready());
    const isBegun = attempt === 0 && hasRoom;
    if (!isBegun && !takeRoom(context, sequence.groups, blocks)) throw full(context, blocks);
    await unlessAborted(signals, () => settled(context, sequence));
    if (isWhole(context, sequence)) {
      for (const group of sequence.groups) group.disturbances = group.table.disturbances;
      return;
    }
  }
  throw new TierKVError(
    'TKV_DEVICE',
    `the device has undone ${blocks} blocks ${ATTEMPTS_MAX} times. Give it more memory, or try again later.`,
    { field: context.stores.sizeField },
  );
}

// Options of a request beside its tokens, and their checks.

/** Options of `kv.begin` beside the tokens: the tenant, extras of the request, and how it waits for room. */
export interface BeginOptions extends WaitOptions {
  /** Who may share this KV: from your own authentication, never from the request's body. */
  readonly tenant: string;
  /**
   * Other facts that determine the KV of this request: adapters, images, a salt. They are part of the keys from the
   * block on that has `fromToken` (0): blocks before it are shared with requests without, blocks from there on only
   * with requests that have the same extras. Default: none.
   */
  readonly extras?: RequestExtras | undefined;
  /** Lower numbers are served first when requests wait for room; among equals, tenants in turn. Default 0. */
  readonly priority?: number | undefined;
  /**
   * Wait for room instead of being refused with TKV_FULL. While most of the top tier is held, what lies far below is
   * read into the tier under it before room is taken. Default false.
   */
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

const beginOptionsTable = optionTable({
  signal: is.optional(is.passed()),
  tenant: is.passed(),
  extras: is.optional(is.passed()),
  priority: is.optional(is.passed(), 0),
  wait: is.optional(is.flag()),
  shareWaitMs: is.optional(is.passed()),
  arriving: is.optional(is.flag()),
  retention: is.optional(is.passed()),
} satisfies Kinds<BeginOptions>);

/** How long the blocks of a request should stay cached beside others. It is a hint: nothing is kept for ever. */
export interface RetentionHint {
  /** From -100 to 100: higher is kept longer. Default 0. */
  readonly priority?: number;
  /** Milliseconds from now on for which it should stay. Default: no wish. */
  readonly keepMs?: number;
}

const retentionHintTable = optionTable({
  priority: is.optional(is.passed(), 0),
  keepMs: is.optional(is.passed(), 0),
} satisfies Kinds<RetentionHint>);

/** A thousand years, which whole microseconds can still count. */
const KEEP_MS_MAX = 1000 * 366 * 86_400_000;

/** @throws TKV_INPUT naming the invalid part of the hint */
function checkHint(hint: RetentionHint): Required<RetentionHint> {
  const { priority, keepMs } = retentionHintTable.read(hint, 'retention');
  const fault = (field: string, value: unknown, what: string): TierKVError =>
    inputError(field, `is ${described(value)}, not ${what}. Leave it out for none.`);
  if (!Number.isInteger(priority) || Math.abs(priority) > 100) {
    throw fault('retention.priority', priority, 'an integer from -100 to 100');
  }
  if (!Number.isFinite(keepMs) || keepMs < 0 || keepMs > KEEP_MS_MAX) {
    throw fault('retention.keepMs', keepMs, 'milliseconds from 0 on');
  }
  return { priority, keepMs };
}

/** @throws TKV_INPUT naming the invalid part of the hint, with nothing retained */
export function retain(context: RequestContext, sequence: SequenceState, hint: RetentionHint): void {
  const { priority, keepMs } = checkHint(hint);
  const nowUs = context.nowUs();
  const keepUntilUs = keepMs > 0 ? nowUs + Math.ceil(keepMs * 1000) : 0;
  for (const { table } of sequence.groups) context.manager.retain(table, { priority, keepUntilUs }, nowUs);
}

/** Signals that end a wait: the end of the runtime, and the caller's signal where there is one. */
export function signalsOf({ closing }: RequestContext, { signal }: WaitOptions): AbortSignal[] {
  if (signal !== undefined && !(signal instanceof AbortSignal)) {
    throw inputError(
      'signal',
      `must be an AbortSignal, and it is ${described(signal)}. Pass the signal of an AbortController.`,
    );
  }
  return signal === undefined ? [closing] : [closing, signal];
}

function checkedWait(waitMs = 1000): number {
  if (typeof waitMs === 'number' && waitMs >= 0 && waitMs < 2 ** 31) return waitMs;
  throw inputError('shareWaitMs', `is ${described(waitMs)}, not milliseconds from 0 on.`);
}

/** @throws TKV_INPUT unless it is a finite number */
export function checkedPriority(priority = 0): number {
  if (Number.isFinite(priority)) return priority;
  throw inputError('priority', `is ${described(priority)}, not a number. Lower is served first.`);
}

// How a request gets its room: its cached blocks are pinned, what lower tiers hold is on its way, the rest is
// opened to be computed, all in one turn. A request that finds no room is refused, or waits for it.

interface Wish {
  readonly tenant: string;
  readonly list: TokenList;
  readonly owner: number;
  readonly priority: number;
  readonly wait: boolean;
  readonly arrives: boolean;
}

type Group = Pick<GroupTable, 'chain' | 'keys' | 'sizeClass'>;

/**
 * Most reads into host memory. Blocks may be evicted from there before there is room in HBM; then they are read again.
 */
const STAGINGS_MAX = 3;

/** How a request waits. */
interface Admission {
  readonly signals: readonly AbortSignal[];
  /** False: it had room before and lost it, and waits ahead of those of its priority. */
  readonly isFirst: boolean;
  /** The wait for blocks that others compute. */
  readonly sharing: SharedWait;
}

/**
 * A request that has room, with its cached blocks pinned and room taken for all others. In the turn in which
 * it takes its room, others learn which blocks it computes: equal requests wait for those, wherever they
 * stand.
 * @throws TKV_FULL, and the reason of a signal
 */
async function admit(
  context: RequestContext,
  groups: readonly Group[],
  wish: Wish,
  { signals, isFirst, sharing }: Admission,
): Promise<SequenceState> {
  const { admission, blockTokens } = context;
  const { list, priority, wait } = wish;
  const stages = wait && !wish.arrives;
  const toStage = (): Uint32Array[] => (stages ? keysToStage(context, groups, list) : []);
  for (let other = sharing.other(); other !== undefined; other = sharing.other()) {
    await sharing.wait(other, signals);
  }
  if (!admission.isBehindOthers(priority) && toStage().length === 0) {
    const sequence = openSequence(context, groups, wish);
    if (sequence !== null) return sequence;
  }
  if (!wait) throw full(context, Math.ceil(list.length / blockTokens));
  const ticket = admission.join(wish.owner, priority, !isFirst);
  let hasRoom = false;
  try {
    for (let stagings = 0; ; ) {
      const keys = stagings < STAGINGS_MAX && (stagings === 0 || admission.isFirst(ticket)) ? toStage() : [];
      if (keys.length > 0) {
        stagings++;
        await admission.aside(ticket, () => stage(context, keys, signals));
        continue;
      }
      const other = admission.isFirst(ticket) ? sharing.other() : undefined;
      if (other !== undefined) {
        await admission.aside(ticket, () => sharing.wait(other, signals));
        continue;
      }
      const sequence = admission.isFirst(ticket) ? openSequence(context, groups, wish) : null;
      hasRoom = sequence !== null;
      if (sequence !== null) return sequence;
      await unlessAborted(signals, () => admission.turn(ticket));
    }
  } finally {
    if (hasRoom) admission.take(ticket);
    else admission.leave(ticket);
  }
}

/** Takes the room and announces the blocks that it computes, in one turn. @returns null without room */
function openSequence(context: RequestContext, groups: readonly Group[], wish: Wish): SequenceState | null {
  const tables = openTables(context, groups, wish);
  if (tables === null) return null;
  const sequence = new SequenceState(context, wish.tenant, wish.list, tables);
  const matched = Math.min(...tables.map(({ table }) => table.matched));
  context.computing.begin(sequence, groups[0].keys, matched);
  return sequence;
}

/**
 * A table for each group whose blocks have their room, or none where they do not all fit. The last token is
 * always left to compute. All in one turn: no other request can take the room between the look and the taking.
 */
function openTables(context: RequestContext, groups: readonly Group[], wish: Wish): GroupTable[] | null {
  const tables = openWhatFits(context, groups, wish);
  if (tables === null) return null;
  const isAlone = tables.length === 1;
  if (isAlone && !wish.arrives) return tables; // admitted with its room
  const blocks = Math.ceil(wish.list.length / context.blockTokens);
  const isTaken = isAlone && takeRoomFromBothEnds(context, tables[0], blocks);
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
  groups: readonly Group[],
  { list, owner, arrives }: Wish,
): GroupTable[] | null {
  const { manager, blockTokens } = context;
  const blocks = Math.ceil(list.length / blockTokens);
  const limit = Math.floor(Math.max(list.length - 1, 0) / blockTokens);
  const nowUs = context.nowUs();
  if (groups.length === 1) {
    const [{ keys, sizeClass, chain }] = groups;
    const wish = [keys.words, keys.length, nowUs, limit, blocks, sizeClass, owner] as const;
    const table = arrives ? manager.openIfFits(...wish) : manager.admit(...wish);
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

/** How much room new requests can have, as `kv.room` shows it. */
export interface Room {
  /** Bytes of HBM that a request could take now: free, evictable, or of speculative loads. */
  readonly bytes: number;
  /** The same in whole blocks. */
  readonly blocks: number;
  /** Requests that wait for room. */
  readonly waiting: number;
}

export function roomOf(context: RequestContext): Room {
  const { manager } = context;
  const { residentBytes, cachedBytes } = manager.inspect.usage(0);
  const { capacityBytes } = manager.config.tiers[0].shape;
  const fixedBytes = residentBytes - cachedBytes - manager.inspect.speculativeBytes();
  const bytes = Math.max(0, capacityBytes - fixedBytes);
  const blocks = Math.floor(bytes / bytesOf(context.units, 1));
  return { bytes, blocks, waiting: context.admission.waiting };
}

// Blocks on a slow tier are read into host memory before their request takes room in HBM, so that no other
// request waits for room that waits for a disk. While most of HBM is free, they are read right into it.

/** Share of HBM in use from which on it is not held for reads of slower tiers than host memory. */
const HELD_SHARE = 0.5;

/** Keys of the request's cached blocks, its tail's among them, that host memory does not have yet. */
function keysToStage(
  context: RequestContext,
  groups: readonly Pick<GroupTable, 'chain' | 'keys'>[],
  list: TokenList,
): Uint32Array[] {
  const { manager, blockTokens, stores } = context;
  const host = stores.hostPosition;
  if (host === undefined || host === manager.inspect.tiers.length - 1 || !isHeld(context)) return [];
  const limit = Math.floor(Math.max(list.length - 1, 0) / blockTokens);
  const matched = Math.min(...groups.map(({ keys }) => manager.matchLength(keys.words, limit)));
  const wanted = groups.flatMap(({ keys }) =>
    Array.from({ length: matched }, (_, i) => keys.words.subarray(i * 4, i * 4 + 4)),
  );
  wanted.push(...(longestTail(context, groups, list, matched)?.keys ?? []));
  return wanted.filter((key) => {
    const { byTier, pending } = manager.lookup(key, 1);
    const position = byTier.indexOf(1);
    return position > host || (position === host && pending > 0);
  });
}

/** Fulfilled when each of the blocks is in host memory, or is not to be had there. */
async function stage(
  { moves, nowUs, stores: { hostPosition } }: RequestContext,
  keys: readonly Uint32Array[],
  signals: readonly AbortSignal[],
): Promise<void> {
  if (hostPosition === undefined) return;
  const staged = keys.map(
    (key) =>
      new Promise<unknown>((ended) => moves.move(key, hostPosition, JobPriority.DEMAND_LOAD, nowUs(), ended)),
  );
  await unlessAborted(signals, () => Promise.all(staged));
}

function isHeld({ manager }: RequestContext): boolean {
  const { residentBytes, cachedBytes, capacityBytes } = manager.inspect.usage(0);
  return residentBytes - cachedBytes > HELD_SHARE * capacityBytes;
}
