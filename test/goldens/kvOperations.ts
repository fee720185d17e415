/**
 * Operation traces of upstream's block store, and the scheduler's way to the manager on the same operations.
 */

import { existsSync, readFileSync } from 'node:fs';
import type { ManagerPort } from '../../src/runtime/batching/kvPort.ts';
import type { BlockKeys, KVManager, Sequence } from '../../src/runtime/index.ts';
import { instantTiers, keysOf } from './schedulerRun.ts';
import { type Repairs, type UpstreamState, UpstreamStore } from './upstream/upstreamStore.ts';

export interface KVOperation {
  readonly op: 'admit' | 'extend' | 'release' | 'mirror+clock+poll+consume';
  readonly req: string;
  readonly start: number;
  readonly end: number;
  readonly input?: readonly number[];
  readonly output?: readonly number[];
  readonly ok?: boolean;
  readonly state: UpstreamState & TierState;
}

export function loadOperations(folder: URL, name: string): KVOperation[] {
  const file = new URL(`kvops-${name}.json`, folder);
  return existsSync(file) ? (JSON.parse(readFileSync(file, 'utf8')) as { ops: KVOperation[] }).ops : [];
}

/** What lower tiers have done so far; absent without lower tiers. */
interface TierState {
  readonly cpu_hits?: number;
  readonly reloads?: number;
  readonly promotions?: number;
  readonly deferrals?: number;
}

/** The first operation in which a lower tier brings blocks or makes a request wait, or -1. */
export function firstTierAct(operations: readonly KVOperation[]): number {
  return operations.findIndex(({ state: { cpu_hits, reloads, promotions, deferrals } }) =>
    [cpu_hits, reloads, promotions, deferrals].some((count) => (count ?? 0) > 0),
  );
}

/** The upstream state of one tier, in the form of the model. */
export function hbmState({
  blocks,
  free,
  map,
  hash_entries,
  hits,
  misses,
  used,
}: UpstreamState): UpstreamState {
  return { blocks: blocks ?? [], free: free ?? [], map: map ?? {}, hash_entries, hits, misses, used };
}

/** What an operation came to, in numbers that do not depend on which slot a block lies in. */
export interface Effect {
  readonly op: string;
  readonly ok: boolean;
  readonly cached: number;
  readonly hits: number;
  readonly misses: number;
  readonly used: number;
}

interface Known {
  readonly tokens: readonly number[];
  readonly input: readonly number[];
  stored: number;
}

/**
 * Tokens [start, end) of an admission after a lookup of its own: the trace's end stays, where it is not
 * cached already.
 */
function rangeOf(operation: KVOperation, cachedTokens: number): [number, number] {
  return [cachedTokens, Math.max(operation.end, cachedTokens)];
}

/** Upstream's store as the model has it, and the whole state after each operation. */
export function runModel(
  operations: readonly KVOperation[],
  blocks: number,
  blockTokens: number,
  repairs: Repairs,
): { effects: Effect[]; states: UpstreamState[] } {
  const store = new UpstreamStore(blocks, blockTokens, repairs);
  const requests = new Map<string, Known>();
  const effects: Effect[] = [];
  const states: UpstreamState[] = [];
  for (const operation of operations) {
    const { op, req, end } = operation;
    let ok = true;
    let cached: number[] = [];
    const request = requests.get(req);
    if (op === 'admit') {
      const input = operation.input ?? [];
      // What the trace could not admit may run here already: like a scheduler, end it first.
      if (request !== undefined) store.release(req);
      requests.delete(req);
      cached = store.cached(input);
      const [from, to] = rangeOf(operation, cached.length * blockTokens);
      ok = store.allocate(req, input.slice(from, to), cached, true);
      if (ok) requests.set(req, { tokens: [...input, ...(operation.output ?? [])], input, stored: to });
    } else if (op === 'extend') {
      ok = request !== undefined;
      if (request !== undefined && end > request.stored) {
        const isPrefill = request.stored < request.input.length;
        ok = store.allocate(req, request.tokens.slice(request.stored, end), [], isPrefill);
        if (ok) request.stored = end;
      }
    } else if (op === 'release') {
      store.release(req);
      requests.delete(req);
    }
    const { hits, misses, used } = store;
    effects.push({ op, ok, cached: cached.length, hits, misses, used });
    states.push(store.state());
  }
  return { effects, states };
}

interface Opened extends Known {
  readonly keys: BlockKeys;
  readonly sequence: Sequence;
}

/**
 * The manager through the scheduler's port, in the scheduler's order of calls: match, check, open, allocate,
 * seal.
 */
export function runPort(
  operations: readonly KVOperation[],
  blocks: number,
  blockTokens: number,
  hostBlocks = 0,
): Effect[] {
  const { manager, port } = instantTiers(blocks, blockTokens, hostBlocks);
  const requests = new Map<string, Opened>();
  const counts = { hits: 0, misses: 0 };
  return operations.map((operation, i) => {
    const { op, req, end } = operation;
    let ok = true;
    let cached = 0;
    const request = requests.get(req);
    if (op === 'admit') {
      const input = operation.input ?? [];
      if (request !== undefined) port.release(request.sequence, i);
      requests.delete(req);
      const tokens = [...input, ...(operation.output ?? [])];
      const keys = keysOf(tokens, blockTokens);
      cached = port.matchLength(keys, Math.floor((input.length - 1) / blockTokens));
      const [, to] = rangeOf(operation, cached * blockTokens);
      ok = port.canOpen(keys, cached, Math.ceil(to / blockTokens));
      if (ok) {
        const sequence = port.open(keys, keys.length, cached, i);
        counts.hits += sequence.matched;
        port.load(sequence, i);
        const opened = { tokens, input, keys, sequence, stored: cached * blockTokens };
        requests.set(req, opened);
        ok = store(port, opened, to, i, counts);
      }
    } else if (op === 'extend') {
      ok = request !== undefined && (end <= request.stored || store(port, request, end, i, counts));
    } else if (op === 'release' && request !== undefined) {
      port.release(request.sequence, i);
      requests.delete(req);
    }
    manager.checkIntegrity();
    return { op, ok, cached, ...counts, used: usedBlocks(manager) };
  });
}

function store(
  port: ManagerPort,
  request: Opened,
  end: number,
  nowUs: number,
  counts: { misses: number },
): boolean {
  const { blockTokens } = port;
  const blocks = Math.ceil(request.stored / blockTokens);
  const needed = Math.ceil(end / blockTokens);
  if (!port.allocate(request.sequence, blocks, needed, nowUs)) return false;
  counts.misses += needed - blocks;
  const [from, to] = [Math.floor(request.stored / blockTokens), Math.floor(end / blockTokens)];
  port.seal(request.sequence, from, to, request.keys, nowUs);
  request.stored = end;
  return true;
}

function usedBlocks(manager: KVManager): number {
  return manager.inspect.usage(0).heldBytes;
}
