/**
 * Policies compared on a trace without moving a byte: chains of numbered blocks go through the manager at each capacity,
 * beside LRU and the clairvoyant optimum. Equal number means equal whole prefix; numbers are dense, so tables over all
 * blocks of a trace are plain arrays. A request's blocks are kept as runs of consecutive numbers:
 *
 *     runs of one request:   first, count,   first, count, ...
 */

import { setImmediate } from 'node:timers/promises';
import { inputError } from '../../io/files/inputErrors.ts';
import { TierKVError } from '../../runtime/errors.ts';
import {
  BlockKeys,
  type EvictionChoice,
  ExternalKeys,
  KVManager,
  type ManagerConfig,
  Outcome,
  TOP,
  tierNames,
} from '../../runtime/index.ts';
import { type Format, formatOf, openWorkload } from '../../sim/build/openWorkload.ts';
import type { WorkloadRequest } from '../../sim/workload/request.ts';
import { lowerTiers } from './sizedTiers.ts';

export interface PrefixTrace {
  readonly blockTokens: number;
  readonly runs: readonly Int32Array[];
  readonly arrivalUs: Float64Array;
  /** Blocks of each request. */
  readonly lengths: Int32Array;
  /** Blocks of all requests together. */
  readonly lookups: number;
  /** Different blocks: all numbers are below. */
  readonly blocks: number;
}

/**
 * Requests that name their blocks, or have tokens, of which every full block is numbered by its parent and
 * its tokens. Only prompts count: what was generated is not looked up again.
 * @param unitsPerToken entries of a prompt that stand for one token, as bytes of text do; default 1
 */
export function chainsOf(
  requests: Iterable<WorkloadRequest>,
  blockTokens: number,
  unitsPerToken = 1,
): PrefixTrace {
  const named = new NamedBlocks();
  const hashed = new HashedBlocks(blockTokens * unitsPerToken);
  const arrivals: number[] = [];
  for (const { prompt, arrivalUs } of requests) {
    arrivals.push(arrivalUs);
    if (prompt.kind === 'blocks') named.add(prompt.namespace, prompt.runs);
    else if (prompt.kind === 'tokens') hashed.add(prompt.tokens);
    else throw new TierKVError('TKV_INPUT', 'a request names neither blocks nor tokens. Give another trace.');
  }
  const { runs, blocks } = named.isEmpty ? hashed.finish() : named.finish();
  const lengths = Int32Array.from(runs, (own) => {
    let length = 0;
    for (let at = 1; at < own.length; at += 2) length += own[at];
    return length;
  });
  const lookups = lengths.reduce((sum, length) => sum + length, 0);
  return { blockTokens, runs, arrivalUs: Float64Array.from(arrivals), lengths, lookups, blocks };
}

interface Numbered {
  readonly runs: readonly Int32Array[];
  readonly blocks: number;
}

/** Ids count within their namespace, so each namespace gets a range of numbers. */
class NamedBlocks {
  readonly #requests: { readonly namespace: string; readonly runs: Int32Array }[] = [];
  readonly #sizes: Map<string, number> = new Map();

  get isEmpty(): boolean {
    return this.#requests.length === 0;
  }

  add(namespace: string, runs: Int32Array): void {
    let size = this.#sizes.get(namespace) ?? 0;
    for (let at = 0; at < runs.length; at += 2) size = Math.max(size, runs[at] + runs[at + 1]);
    this.#sizes.set(namespace, size);
    this.#requests.push({ namespace, runs });
  }

  finish(): Numbered {
    const bases = new Map<string, number>();
    let blocks = 0;
    for (const [namespace, size] of this.#sizes) {
      bases.set(namespace, blocks);
      blocks += size;
    }
    const runs = this.#requests.map(({ namespace, runs }) => {
      const base = bases.get(namespace) ?? 0;
      return runs.map((value, at) => (at % 2 === 0 ? value + base : value));
    });
    return { runs, blocks };
  }
}

class HashedBlocks {
  readonly #known: Map<string, number> = new Map();
  readonly #runs: Int32Array[] = [];
  readonly #units: number;

  constructor(units: number) {
    this.#units = units;
  }

  add(tokens: Int32Array): void {
    const own: number[] = [];
    let parent = -1;
    for (let at = 0; at + this.#units <= tokens.length; at += this.#units) {
      const key = `${parent}:${tokens.subarray(at, at + this.#units).join()}`;
      const number = this.#known.get(key) ?? this.#known.size;
      this.#known.set(key, number);
      if (number === parent + 1 && own.length > 0) own[own.length - 1]++;
      else own.push(number, 1);
      parent = number;
    }
    this.#runs.push(Int32Array.from(own));
  }

  finish(): Numbered {
    return { runs: this.#runs, blocks: this.#known.size };
  }
}

export function firstRequests(trace: PrefixTrace, requests: number): PrefixTrace {
  if (requests >= trace.runs.length) return trace;
  const lengths = trace.lengths.subarray(0, requests);
  const lookups = lengths.reduce((sum, length) => sum + length, 0);
  return { ...trace, runs: trace.runs.slice(0, requests), lengths, lookups };
}

/** Writes the request's blocks to `out`, the first one first. @returns how many */
export function expand(runs: Int32Array, out: Int32Array): number {
  let count = 0;
  for (let at = 0; at < runs.length; at += 2) {
    for (let i = 0; i < runs[at + 1]; i++) out[count++] = runs[at] + i;
  }
  return count;
}

// Runs each policy at each capacity, with LRU beside it, and the clairvoyant optimum of the same size: where
// there are lower tiers, of all tiers together.

export interface StudyRow {
  /** Blocks of HBM. */
  readonly capacity: number;
  readonly policy: string;
  /** Leading blocks found, of all requests together, in any tier. */
  readonly hits: number;
  readonly hitPercent: number;
  /** Share of the gap from LRU to the optimum, in percent; null without a gap. */
  readonly closedPercent: number | null;
  /** Against LRU, in percentage points. */
  readonly points: number;
  /** Processor time per block, the manager's included; null for the optimum, which has no policy to run. */
  readonly nsPerBlock: number | null;
}

export interface Study {
  readonly requests: number;
  readonly lookups: number;
  readonly blockTokens: number;
  /** Blocks of each lower tier, in the order of `lowerTiers`; 0 for none. */
  readonly lower: readonly number[];
  readonly rows: readonly StudyRow[];
}

interface StudyListener {
  readonly signal: AbortSignal;
  /** @param share done of all runs; `requests` counts those of all runs */
  progress(share: number, requests: number, run: string): void;
}

const LRU = 'lru';
/** Blocks between two looks at the signal. */
const SLICE_BLOCKS = 100_000;
/** Blocks of the run before the first, which makes the engine compile what is then timed. */
const WARM_BLOCKS = 30_000;

/** @throws the signal's reason after a stop */
export async function comparePolicies(
  trace: PrefixTrace,
  options: StudyOptions,
  listener: StudyListener,
): Promise<Study> {
  const policies = [LRU, ...options.policies.filter((policy) => policy !== LRU)];
  const runs = policies.length * options.capacities.length;
  let finished = 0;
  const run = async (capacity: number, policy: string): Promise<{ hits: number; nsPerBlock: number }> => {
    const study = new PoolStudy(trace, { capacity, lower: options.lower, eviction: { policy } });
    while (study.done < study.requests) {
      study.advance(SLICE_BLOCKS);
      await setImmediate();
      listener.signal.throwIfAborted();
      const share = (finished + study.done / study.requests) / runs;
      listener.progress(share, finished * study.requests + study.done, `${policy} at ${capacity}`);
    }
    finished++;
    return study.result();
  };
  for (const policy of policies) {
    const capacity = options.capacities[0] ?? 1;
    new PoolStudy(trace, { capacity, lower: options.lower, eviction: { policy } }).advance(WARM_BLOCKS);
  }
  const optimum = new Optimum(trace);
  const rows: StudyRow[] = [];
  for (const capacity of options.capacities) {
    const best = optimum.hits(options.lower.reduce((sum, blocks) => sum + blocks, capacity));
    let lru = 0;
    const add = (policy: string, hits: number, nsPerBlock: number | null): void => {
      rows.push({ capacity, policy, ...shareOf(hits, lru, best, trace.lookups), nsPerBlock });
    };
    for (const policy of policies) {
      const { hits, nsPerBlock } = await run(capacity, policy);
      if (policy === LRU) lru = hits;
      add(policy, hits, nsPerBlock);
    }
    add('optimum', best, null);
  }
  const { lookups, blockTokens } = trace;
  return { requests: trace.runs.length, lookups, blockTokens, lower: options.lower, rows };
}

/** Hits beside those of LRU and of the optimum. */
export function shareOf(
  hits: number,
  lru: number,
  best: number,
  lookups: number,
): Pick<StudyRow, 'hits' | 'hitPercent' | 'closedPercent' | 'points'> {
  return {
    hits,
    hitPercent: percent(hits, lookups),
    closedPercent: best === lru ? null : percent(hits - lru, best - lru),
    points: percent(hits - lru, lookups),
  };
}

function percent(part: number, whole: number): number {
  return whole === 0 ? 0 : (100 * part) / whole;
}

// The clairvoyant optimum for prefix caches (Belady's rule with whole prefixes): after each request keep, of
// the cache and the request, the blocks whose next use is nearest, and of equal ones those nearer to the
// start. Blocks may bypass the cache.
//
// All blocks whose next use is request r are blocks of r, and the block evicted first lies deepest. So what
// is kept for r is always the front of r's chain: one number says it all, and one pass from the back finds
// who is used next by whom.

/**
 * Who uses a request's blocks next: blocks before `ends[i]`, from the end before on, are next used by request
 * `users[i]`.
 */
interface NextUses {
  readonly users: Int32Array;
  readonly ends: Int32Array;
}

export class Optimum {
  readonly #trace: PrefixTrace;
  readonly #nextUses: readonly NextUses[];

  constructor(trace: PrefixTrace) {
    this.#trace = trace;
    this.#nextUses = nextUses(trace);
  }

  /** Blocks found, of all requests together, in a cache of `capacity` blocks. */
  hits(capacity: number): number {
    const requests = this.#trace.runs.length;
    const kept = new Int32Array(requests);
    let size = 0;
    let farthest = -1;
    let hits = 0;
    for (let r = 0; r < requests; r++) {
      hits += kept[r];
      size -= kept[r];
      kept[r] = 0;
      const { users, ends } = this.#nextUses[r];
      for (let i = 0; i < users.length; i++) {
        const from = i === 0 ? 0 : ends[i - 1];
        // Blocks kept for this user already lie deeper, so together they are the front of its chain.
        kept[users[i]] += ends[i] - from;
        size += ends[i] - from;
        farthest = Math.max(farthest, users[i]);
      }
      while (size > capacity) {
        while (kept[farthest] === 0) farthest--;
        const evicted = Math.min(kept[farthest], size - capacity);
        kept[farthest] -= evicted;
        size -= evicted;
      }
    }
    return hits;
  }
}

function nextUses(trace: PrefixTrace): NextUses[] {
  const requests = trace.runs.length;
  const next = new Int32Array(trace.blocks).fill(-1);
  const own = new Int32Array(trace.lengths.reduce((longest, length) => Math.max(longest, length), 0));
  const all = new Array<NextUses>(requests);
  for (let r = requests - 1; r >= 0; r--) {
    const count = expand(trace.runs[r], own);
    const users: number[] = [];
    const ends: number[] = [];
    for (let i = 0; i < count; i++) {
      const user = next[own[i]];
      next[own[i]] = r;
      if (user === -1) continue;
      if (users.length > 0 && users[users.length - 1] === user) ends[ends.length - 1] = i + 1;
      else {
        users.push(user);
        ends.push(i + 1);
      }
    }
    all[r] = { users: Int32Array.from(users), ends: Int32Array.from(ends) };
  }
  return all;
}

export interface StudyOptions {
  /** Beside LRU and the optimum. */
  readonly policies: readonly string[];
  /** Blocks of the top tier in each run. */
  readonly capacities: readonly number[];
  /** Blocks of each lower tier, in the order of `lowerTiers`; 0 for none. */
  readonly lower: readonly number[];
}

// A trace through the manager, one request at a time, as the definition of the traces' hit rates asks: look
// up the whole prefix, take part with every block of the request, let all go from the last to the first, then
// trim once to the capacity. HBM has room for the longest request beside its capacity, so that trimming comes
// last. Lower tiers, where there are any, are exclusive.
//
// No bytes move and no time is modeled: every job ends as soon as it is issued. The manager is driven, not
// the policy alone, so that what decides here is what decides in a server, tiers included; it costs about as
// much as the cheapest policy does. Time is the trace's, so a run decides the same wherever it runs.
//
// With `held`, HBM has the capacity and no more, and room is made before the request's blocks are computed,
// as in a server whose running requests share the room with the cache.

interface PoolRun {
  readonly hits: number;
  /** Blocks looked up. */
  readonly lookups: number;
  /** Time of this process per block, the manager's part included. */
  readonly nsPerBlock: number;
}

interface PoolOptions {
  /** Blocks of HBM. */
  readonly capacity: number;
  /** Blocks of each lower tier, in the order of `lowerTiers`; 0, the default, for none. */
  readonly lower?: readonly number[];
  readonly eviction: EvictionChoice;
  readonly held?: boolean;
  /** Requests to take, from the start of the trace. Default: all. */
  readonly requests?: number;
}

/** One run, some requests at a time, so that a caller can show progress or stop between. */
export class PoolStudy {
  readonly requests: number;
  readonly manager: KVManager;
  readonly #trace: PrefixTrace;
  readonly #capacity: number;
  readonly #chain: ExternalKeys = new ExternalKeys({ tenant: 'study', epoch: 0 });
  readonly #keys: BlockKeys;
  readonly #blocks: Int32Array;
  readonly #ids: Float64Array;
  #next = 0;
  #hits = 0;
  #lookups = 0;
  #cpuUs = 0;

  constructor(trace: PrefixTrace, options: PoolOptions) {
    const { capacity, eviction, held = false, lower = [] } = options;
    const longest = trace.lengths.reduce((most, length) => Math.max(most, length), 1);
    const tier = (blocks: number) => ({ capacityBytes: blocks, landingBytes: longest });
    const config: ManagerConfig = {
      unitBytes: [1],
      [tierNames[TOP]]: { capacityBytes: held ? Math.max(capacity, longest) : capacity + longest },
      ...Object.fromEntries(
        lowerTiers().flatMap((name, i) => (lower[i] > 0 ? [[name, tier(lower[i])]] : [])),
      ),
      lowerCopy: 'move',
      eviction,
      maxJobs: Math.max(16_384, 4 * longest),
    };
    this.requests = Math.min(options.requests ?? Number.POSITIVE_INFINITY, trace.runs.length);
    this.manager = new KVManager(config);
    this.#trace = trace;
    this.#capacity = capacity;
    this.#keys = new BlockKeys(longest);
    this.#blocks = new Int32Array(longest);
    this.#ids = new Float64Array(longest);
  }

  /** Requests served so far. */
  get done(): number {
    return this.#next;
  }

  /** Serves up to `blocks` more, in whole requests. */
  advance(blocks: number): void {
    const started = process.cpuUsage();
    const end = this.#lookups + blocks;
    while (this.#next < this.requests && this.#lookups < end) this.#serve(this.#next++);
    const { user, system } = process.cpuUsage(started);
    this.#cpuUs += user + system;
  }

  result(): PoolRun {
    const lookups = this.#lookups;
    return { hits: this.#hits, lookups, nsPerBlock: lookups === 0 ? 0 : (this.#cpuUs * 1000) / lookups };
  }

  #serve(r: number): void {
    const { manager } = this;
    const { runs, arrivalUs, blockTokens } = this.#trace;
    const count = expand(runs[r], this.#blocks);
    this.#ids.set(this.#blocks.subarray(0, count));
    this.#chain.hashBlocks(this.#ids.subarray(0, count), 0, this.#keys);
    const nowUs = arrivalUs[r];
    const { words } = this.#keys;
    const sequence = manager.open(words, count, nowUs);
    const { matched } = sequence;
    if (manager.config.tiers.length > 1) {
      manager.load(sequence, nowUs, 0, matched);
      this.#endJobs(nowUs);
    }
    manager.allocate(sequence, matched, count, nowUs);
    this.#endJobs(nowUs);
    manager.seal(sequence, matched, count, words, matched * 4, blockTokens, nowUs);
    this.#endJobs(nowUs);
    manager.release(sequence, nowUs);
    const over = manager.inspect.usage(0).residentBytes - this.#capacity;
    if (over > 0) manager.evict(0, over, nowUs);
    this.#endJobs(nowUs);
    this.#hits += matched;
    this.#lookups += count;
  }

  #endJobs(nowUs: number): void {
    const { manager } = this;
    for (let job = manager.nextJob(); job !== 0; job = manager.nextJob()) {
      manager.complete(job, Outcome.LOADED, nowUs);
    }
  }
}

//  Reads a trace for a study: a recorded workload whose requests name their blocks or their tokens.

/** Formats that tell blocks apart, with their usual tokens a block; `text` has bytes, four for a token. */
const formats: Partial<Record<Format, { readonly blockTokens: number; readonly unitsPerToken: number }>> = {
  mooncake: { blockTokens: 512, unitsPerToken: 1 },
  weka: { blockTokens: 64, unitsPerToken: 1 },
  'token-ids': { blockTokens: 16, unitsPerToken: 1 },
  miniswe: { blockTokens: 64, unitsPerToken: 4 },
};

/**
 * @param blockTokens undefined for what the format usually has
 * @param requests stop after this count
 * @throws TKV_INPUT for a trace that does not say which blocks are equal, or a bad line
 */
export function readChains(path: string, blockTokens?: number, requests?: number): PrefixTrace {
  const format = formatOf(path);
  const usual = formats[format];
  if (usual === undefined) {
    const names = Object.keys(formats).join(', ');
    throw inputError(path, `is a ${format} workload, which names no blocks`, `Give a trace of ${names}.`);
  }
  const tokens = blockTokens ?? usual.blockTokens;
  const opened = openWorkload(path, { format, blockTokens: tokens });
  const all = chainsOf(firstOf(opened.requests(), requests), tokens, usual.unitsPerToken);
  return firstRequests(all, requests ?? Number.POSITIVE_INFINITY);
}

function* firstOf(requests: Iterable<WorkloadRequest>, count: number | undefined): Iterable<WorkloadRequest> {
  let left = count ?? Number.POSITIVE_INFINITY;
  for (const request of requests) {
    if (left-- <= 0) return;
    yield request;
  }
}

/** Whether `tierkv replay` can move bytes for the trace; studies take more formats. */
export function isMooncake(path: string): boolean {
  return formatOf(path) === 'mooncake';
}
