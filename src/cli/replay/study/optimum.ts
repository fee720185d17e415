/**
 * The clairvoyant optimum for prefix caches (Belady's rule with whole prefixes): after each request keep, of
 * the cache and the request, the blocks whose next use is nearest, and of equal ones those nearer to the
 * start. Blocks may bypass the cache.
 *
 * All blocks whose next use is request r are blocks of r, and whoever is evicted first lies deepest. So what
 * is kept for r is always the front of r's chain: one number says it all, and one pass from the back finds
 * who is used next by whom.
 */

import { expand, type PrefixTrace } from './chains.ts';

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
        // What is kept for this user already lies deeper, so together they are the front of its chain.
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
