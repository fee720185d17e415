/**
 * A trace as chains of numbered blocks: equal number, equal whole prefix. Numbers are dense, so tables over
 * all blocks of a trace are plain arrays. A request's blocks are kept as runs of consecutive numbers:
 *
 *     runs of one request:   first, count,   first, count, ...
 */

import { TierKVError } from '../../../runtime/errors.ts';
import type { WorkloadRequest } from '../../../sim/workload/index.ts';

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

/** The first requests of a trace. */
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
