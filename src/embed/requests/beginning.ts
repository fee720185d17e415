/**
 * How a request gets its blocks: its cached ones are pinned, what lower tiers hold is brought up, the rest is opened to be computed.
 * A request that finds no room is refused, or waits for it. What cannot be brought is among the open blocks.
 */

import { type KeyElements, TierKVError } from '../../runtime/index.ts';
import { throwIfAborted, unlessAborted, type WaitOptions } from '../abort.ts';
import { bytesOf, freshKeys, full, isWhole, type RequestContext, requireFits, settled } from './context.ts';
import { type GroupTable, KVSequence } from './kvSequence.ts';
import { TokenList } from './tokenList.ts';

export interface BeginOptions extends WaitOptions {
  /** Who may share this KV: from your own authentication, never from the request's body. */
  readonly tenant: string;
  /** Lower numbers are served first when requests wait for room. Default 0. */
  readonly priority?: number | undefined;
  /** Wait for room instead of being refused with TKV_FULL. Default false. */
  readonly wait?: boolean | undefined;
}

/** Loads and openings of one sequence before it is given up: each can be undone by a loss or refused once more. */
const ATTEMPTS_MAX = 8;

export async function begin(
  context: RequestContext,
  tokens: KeyElements,
  options: BeginOptions,
): Promise<KVSequence> {
  const { manager, keeper, blockTokens } = context;
  const signals = signalsOf(context, options);
  throwIfAborted(signals);
  const priority = checkedPriority(options.priority);
  requireFits(context, Math.ceil(tokens.length / blockTokens));
  const list = new TokenList(tokens);
  const chains = context.chains.of(options.tenant);
  if (!keeper.present) await unlessAborted(signals, () => keeper.ready());
  const groups = chains.map((chain, g) => {
    const keys = freshKeys(Math.ceil(list.length / blockTokens));
    chain.hashBlocks(list.words, 0, keys, list.length);
    return { chain, keys, sizeClass: context.units.sizeClass[g] };
  });
  const admitted = await admit(context, groups, list.length, priority, options.wait === true, signals);
  const sequence = new KVSequence(options.tenant, list, admitted, blockTokens);
  try {
    await bring(context, sequence, signals);
  } catch (error) {
    for (const { table } of admitted) {
      if (signals.some(({ aborted }) => aborted)) manager.cancel(table, context.nowUs());
      else manager.release(table, context.nowUs());
    }
    throw error;
  }
  sequence.cachedTokens = sequence.readyTokens;
  for (const group of admitted) group.sealed = sequence.cachedTokens / blockTokens;
  return sequence;
}

/** Tables of a request that has room, with its cached blocks pinned. @throws TKV_FULL, and the reason of a signal */
async function admit(
  context: RequestContext,
  groups: readonly Pick<GroupTable, 'chain' | 'keys' | 'sizeClass'>[],
  tokens: number,
  priority: number,
  wait: boolean,
  signals: readonly AbortSignal[],
): Promise<GroupTable[]> {
  const { admission, blockTokens } = context;
  const blocks = Math.ceil(tokens / blockTokens);
  if (!admission.isBehindOthers(priority)) {
    const tables = openTables(context, groups, tokens);
    if (tables !== null) return tables;
  }
  if (!wait) throw full(context, blocks);
  const ticket = admission.join(priority);
  try {
    for (;;) {
      const tables = admission.isFirst(ticket) ? openTables(context, groups, tokens) : null;
      if (tables !== null) return tables;
      await unlessAborted(signals, () => admission.turn(ticket));
    }
  } finally {
    admission.leave(ticket);
  }
}

/** Opens a table for each group, or none where they do not all fit. The last token is always left to compute. */
function openTables(
  context: RequestContext,
  groups: readonly Pick<GroupTable, 'chain' | 'keys' | 'sizeClass'>[],
  tokens: number,
): GroupTable[] | null {
  const { manager, blockTokens } = context;
  const blocks = Math.ceil(tokens / blockTokens);
  const limit = Math.floor(Math.max(tokens - 1, 0) / blockTokens);
  const nowUs = context.nowUs();
  if (groups.length === 1) {
    const [{ keys, sizeClass, chain }] = groups;
    const table = manager.openIfFits(keys.words, keys.length, nowUs, limit, blocks, sizeClass);
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
    const table = manager.open(keys.words, keys.length, nowUs, matched);
    return { table, keys, sizeClass, chain, sealed: 0, disturbances: 0 };
  });
}

/**
 * Every block of the sequence is brought to HBM or opened to be computed: once, and again for as long as losses and errors
 * undo it. @throws TKV_FULL when its blocks find no room any more
 */
export async function bring(
  context: RequestContext,
  sequence: KVSequence,
  signals: readonly AbortSignal[],
): Promise<void> {
  const { manager, keeper } = context;
  const { blocks } = sequence;
  for (let attempt = 0; attempt < ATTEMPTS_MAX; attempt++) {
    if (!keeper.present) await unlessAborted(signals, () => keeper.ready());
    const fits = sequence.groups.every(({ table, sizeClass }) => {
      const nowUs = context.nowUs();
      return (
        manager.load(table, nowUs, 0, table.length) && manager.allocate(table, 0, blocks, nowUs, sizeClass)
      );
    });
    if (!fits) break;
    await unlessAborted(signals, () => settled(context, sequence));
    if (isWhole(context, sequence)) {
      for (const group of sequence.groups) group.disturbances = group.table.disturbances;
      return;
    }
  }
  throw full(context, blocks);
}

/** What ends a wait: the end of the runtime, and the caller's signal where there is one. */
export function signalsOf({ closing }: RequestContext, { signal }: WaitOptions): AbortSignal[] {
  return signal === undefined ? [closing] : [closing, signal];
}

function checkedPriority(priority = 0): number {
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
