/**
 * How a request gets its room: its cached blocks are pinned, what lower tiers hold is on its way, the rest is
 * opened to be computed, all in one turn. A request that finds no room is refused, or waits for it.
 */

import { JobPriority, Tier } from '../runtime/index.ts';
import { bytesOf, full, type RequestContext } from './context.ts';
import { unlessAborted } from './managerLoop.ts';
import { takeRoomFromBothEnds } from './partialPrefill.ts';
import { type GroupTable, SequenceState, type SharedWait } from './sequenceState.ts';
import { longestTail } from './tails.ts';
import type { TokenList } from './tenancy.ts';

export interface Wish {
  readonly tenant: string;
  readonly list: TokenList;
  readonly owner: number;
  readonly priority: number;
  readonly wait: boolean;
  readonly arrives: boolean;
}

type Group = Pick<GroupTable, 'chain' | 'keys' | 'sizeClass'>;

/** What was read into host memory may be evicted from there before there is room; then it is read again. */
const STAGINGS_MAX = 3;

/** How a request waits. */
export interface Admission {
  readonly signals: readonly AbortSignal[];
  /** False: it had room before and lost it, and waits ahead of those of its priority. */
  readonly isFirst: boolean;
  /** What it waits for blocks that others compute. */
  readonly sharing: SharedWait;
}

/**
 * A request that has room, with its cached blocks pinned and room taken for all others. In the turn in which
 * it takes its room, others learn which blocks it computes: equal requests wait for those, wherever they
 * stand.
 * @throws TKV_FULL, and the reason of a signal
 */
export async function admit(
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
  const ticket = admission.join(priority, !isFirst);
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
      if (sequence !== null) return sequence;
      await unlessAborted(signals, () => admission.turn(ticket));
    }
  } finally {
    admission.leave(ticket);
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
export function takeRoom(
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

/** Room as `kv.room` shows it. */
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
  const { residentBytes, cachedBytes } = manager.usage(0);
  const { capacityBytes } = manager.config.tiers[0].shape;
  const fixedBytes = residentBytes - cachedBytes - manager.speculativeBytes();
  const bytes = Math.max(0, capacityBytes - fixedBytes);
  const blocks = Math.floor(bytes / bytesOf(context.units, 1));
  return { bytes, blocks, waiting: context.admission.waiting };
}

// Blocks on a slow tier are read into host memory before their request takes room in HBM, so that no other
// request waits for room that waits for a disk. While most of HBM is free, they are read right into it.

/** Position of host memory among the tiers. */
const DDR = 1;
/** Share of HBM in use from which on it is not held for reads of slower tiers than host memory. */
const HELD_SHARE = 0.5;

/** Keys of the request's cached blocks, its tail's among them, that host memory does not have yet. */
export function keysToStage(
  context: RequestContext,
  groups: readonly Pick<GroupTable, 'chain' | 'keys'>[],
  list: TokenList,
): Uint32Array[] {
  const { manager, blockTokens } = context;
  if (manager.tiers.length <= 2 || manager.tiers[DDR] !== Tier.DDR || !isHeld(context)) return [];
  const limit = Math.floor(Math.max(list.length - 1, 0) / blockTokens);
  const matched = Math.min(...groups.map(({ keys }) => manager.matchLength(keys.words, limit)));
  const wanted = groups.flatMap(({ keys }) =>
    Array.from({ length: matched }, (_, i) => keys.words.subarray(i * 4, i * 4 + 4)),
  );
  wanted.push(...(longestTail(context, groups, list, matched)?.keys ?? []));
  return wanted.filter((key) => {
    const { byTier, pending } = manager.lookup(key, 1);
    const position = byTier.indexOf(1);
    return position > DDR || (position === DDR && pending > 0);
  });
}

/** Fulfilled when each of the blocks is in host memory, or is not to be had there. */
export async function stage(
  { moves, nowUs }: RequestContext,
  keys: readonly Uint32Array[],
  signals: readonly AbortSignal[],
): Promise<void> {
  const staged = keys.map(
    (key) => new Promise<unknown>((ended) => moves.move(key, DDR, JobPriority.DEMAND_LOAD, nowUs(), ended)),
  );
  await unlessAborted(signals, () => Promise.all(staged));
}

function isHeld({ manager }: RequestContext): boolean {
  const { residentBytes, cachedBytes, capacityBytes } = manager.usage(0);
  return residentBytes - cachedBytes > HELD_SHARE * capacityBytes;
}
