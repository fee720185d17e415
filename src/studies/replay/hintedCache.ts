/**
 * The worth of hints of a given accuracy: one cache of whole prefixes whose callers say, as a request ends, which of
 * its blocks will come back and about when. A hint is made of the trace's future and then spoiled:
 *
 *     whether   right with the chance `accuracy`, drawn for each stretch of blocks that have one next user
 *     when      the true time times exp(N(0, 1)); of a wrong "comes back" the time of another conversation
 *
 * Leaves that are said not to come back go first, the one used longest ago before others, then those due last. A block that
 * is overdue is waited for a quarter of its age longer, at most 8 times, and then counts as not coming back.
 */

import { setImmediate } from 'node:timers/promises';
import { requireFraction } from '../../runtime/errors.ts';
import * as elementary from '../../sim/random/elementary.ts';
import { PartitionedRandom } from '../../sim/random/goRand.ts';
import { expand, type PrefixTrace, type Study, type StudyRow, shareOf } from './study.ts';

const NEVER = Number.POSITIVE_INFINITY;
/** Key of the draws: the same trace and accuracy give the same hits on every machine. */
const DRAWS = 55n;
/** A block that is overdue is waited for this share of its age longer, so often. */
const WAIT_SHARE = 0.25;
const WAITS = 8;
/** Below the rank of every block that is to come back. */
const LAST_RANK = -1e18;

/**
 * The study with a row more for each accuracy and capacity, before the optimum's.
 * @throws TKV_CONFIG for an accuracy outside of 0 to 1; the signal's reason after a stop
 */
export async function withHints(
  trace: PrefixTrace,
  study: Study,
  accuracies: readonly number[],
  signal: AbortSignal,
): Promise<Study> {
  for (const accuracy of accuracies) requireFraction('hints', accuracy);
  const cache = new HintedCache(trace);
  const below = study.lower.reduce((sum, blocks) => sum + blocks, 0);
  const rows: StudyRow[] = [];
  let lru = 0;
  for (const row of study.rows) {
    if (row.policy === 'lru') lru = row.hits;
    if (row.policy === 'optimum') {
      for (const accuracy of accuracies) {
        const hits = cache.hits(row.capacity + below, accuracy);
        const share = shareOf(hits, lru, row.hits, trace.lookups);
        rows.push({
          capacity: row.capacity,
          policy: `hint ${hintPercent(accuracy)} %`,
          ...share,
          nsPerBlock: null,
        });
        await setImmediate();
        signal.throwIfAborted();
      }
    }
    rows.push(row);
  }
  return { ...study, rows };
}

/** The percentage that people read: 0.875 is 87.5. */
function hintPercent(accuracy: number): number {
  return Math.round(accuracy * 1e4) / 100;
}

export class HintedCache {
  readonly #trace: PrefixTrace;
  /** The request that uses each block of a request next, by request; -1 for none. */
  readonly #next: readonly Int32Array[];
  /** Times after which conversations went on, in microseconds: half of the request's blocks or more were used again. */
  readonly #gapsUs: readonly number[];

  constructor(trace: PrefixTrace) {
    const { runs, arrivalUs, lengths } = trace;
    const next = new Int32Array(trace.blocks).fill(-1);
    const own = new Int32Array(lengths.reduce((most, length) => Math.max(most, length), 1));
    const all = new Array<Int32Array>(runs.length);
    const gaps: number[] = [];
    for (let r = runs.length - 1; r >= 0; r--) {
      const count = expand(runs[r], own);
      const users = new Int32Array(count);
      let deepest = -1;
      let reused = 0;
      for (let i = 0; i < count; i++) {
        users[i] = next[own[i]];
        next[own[i]] = r;
        if (users[i] === -1) continue;
        deepest = users[i];
        reused = i + 1;
      }
      all[r] = users;
      if (deepest !== -1 && reused * 2 >= count) gaps.push(arrivalUs[deepest] - arrivalUs[r]);
    }
    this.#trace = trace;
    this.#next = all;
    this.#gapsUs = gaps;
  }

  /**
   * Blocks found, of all requests together, in a cache of `capacity` blocks.
   * @param accuracy chance that "comes back" and "does not" are right, from 0 to 1
   */
  hits(capacity: number, accuracy: number): number {
    const { runs, arrivalUs, lengths, blocks } = this.#trace;
    const random = new PartitionedRandom(DRAWS).stream(`hints ${accuracy}`);
    const own = new Int32Array(lengths.reduce((most, length) => Math.max(most, length), 1));
    const cache = new HintedLeaves(blocks);
    let hits = 0;
    for (let r = 0; r < runs.length; r++) {
      const nowUs = arrivalUs[r];
      const count = expand(runs[r], own);
      const users = this.#next[r];
      let found = 0;
      while (found < count && cache.has(own[found])) found++;
      hits += found;
      cache.wait(nowUs);
      let dueUs = NEVER;
      for (let i = 0; i < count; i++) {
        if (i === 0 || users[i] !== users[i - 1]) {
          const returns = users[i] !== -1;
          const said = random.float64() < accuracy ? returns : !returns && this.#gapsUs.length > 0;
          if (!said) dueUs = NEVER;
          else {
            const gap = returns
              ? arrivalUs[users[i]] - nowUs
              : this.#gapsUs[random.intn(this.#gapsUs.length)];
            dueUs = nowUs + gap * elementary.exp(random.normFloat64());
          }
        }
        cache.use(own[i], i === 0 ? -1 : own[i - 1], r, nowUs, dueUs);
      }
      for (let i = count - 1; i >= 0; i--) cache.offer(own[i]);
      cache.trim(capacity);
    }
    return hits;
  }
}

/** The cached blocks, of which leaves go by rank, lowest first. */
class HintedLeaves {
  #size = 0;
  readonly #isIn: Uint8Array;
  readonly #parent: Int32Array;
  readonly #children: Int32Array;
  /** The request that used it last, when, when it is due, and how often it was waited for. */
  readonly #user: Int32Array;
  readonly #usedUs: Float64Array;
  readonly #dueUs: Float64Array;
  readonly #waits: Uint8Array;
  /** Raised whenever the block's rank changes: older entries of the heaps do not count. */
  readonly #turn: Int32Array;
  readonly #byRank: Heap = new Heap();
  readonly #byDue: Heap = new Heap();

  constructor(blocks: number) {
    this.#isIn = new Uint8Array(blocks);
    this.#parent = new Int32Array(blocks).fill(-1);
    this.#children = new Int32Array(blocks);
    this.#user = new Int32Array(blocks);
    this.#usedUs = new Float64Array(blocks);
    this.#dueUs = new Float64Array(blocks);
    this.#waits = new Uint8Array(blocks);
    this.#turn = new Int32Array(blocks);
  }

  has(block: number): boolean {
    return this.#isIn[block] === 1;
  }

  use(block: number, parent: number, request: number, nowUs: number, dueUs: number): void {
    if (this.#isIn[block] === 0) {
      this.#isIn[block] = 1;
      this.#size++;
      this.#parent[block] = parent;
      this.#children[block] = 0;
      if (parent !== -1) this.#children[parent]++;
    }
    this.#user[block] = request;
    this.#usedUs[block] = nowUs;
    this.#dueUs[block] = dueUs;
    this.#waits[block] = 0;
    this.#turn[block]++;
  }

  /** The block may go from now on, once no other follows it. */
  offer(block: number): void {
    if (this.#children[block] === 0) this.#rank(block);
    const dueUs = this.#dueUs[block];
    if (dueUs !== NEVER) this.#byDue.add(dueUs, block, this.#turn[block]);
  }

  /** Gives blocks that are overdue more time, or none. */
  wait(nowUs: number): void {
    while (this.#byDue.least < nowUs) {
      const { block, turn } = this.#byDue.take();
      if (this.#isIn[block] === 0 || this.#turn[block] !== turn) continue;
      const isOver = ++this.#waits[block] > WAITS;
      this.#dueUs[block] = isOver ? NEVER : nowUs + (nowUs - this.#usedUs[block]) * WAIT_SHARE;
      this.#turn[block]++;
      this.offer(block);
    }
  }

  trim(capacity: number): void {
    while (this.#size > capacity) {
      const { block, turn } = this.#byRank.take();
      if (this.#isIn[block] === 0 || this.#turn[block] !== turn || this.#children[block] > 0) continue;
      this.#isIn[block] = 0;
      this.#turn[block]++;
      this.#size--;
      const parent = this.#parent[block];
      if (parent !== -1 && --this.#children[parent] === 0) this.#rank(parent);
    }
  }

  #rank(block: number): void {
    const dueUs = this.#dueUs[block];
    const rank = dueUs === NEVER ? LAST_RANK + this.#user[block] * 1024 : -dueUs;
    this.#byRank.add(rank, block, this.#turn[block]);
  }
}

/** Blocks by a number, the least first; among equals the later block, which lies deeper. */
class Heap {
  readonly #key: number[] = [];
  readonly #block: number[] = [];
  readonly #turn: number[] = [];

  get least(): number {
    return this.#key.length === 0 ? NEVER : this.#key[0];
  }

  add(key: number, block: number, turn: number): void {
    let at = this.#key.length;
    this.#key.push(key);
    this.#block.push(block);
    this.#turn.push(turn);
    while (at > 0) {
      const parent = (at - 1) >> 1;
      if (!this.#isBefore(at, parent)) break;
      this.#swap(at, parent);
      at = parent;
    }
  }

  take(): { readonly block: number; readonly turn: number } {
    const last = this.#key.length - 1;
    this.#swap(0, last);
    this.#key.pop();
    const block = this.#block.pop() as number;
    const turn = this.#turn.pop() as number;
    for (let at = 0, child = 1; child < last; child = 2 * at + 1) {
      if (child + 1 < last && this.#isBefore(child + 1, child)) child++;
      if (!this.#isBefore(child, at)) break;
      this.#swap(child, at);
      at = child;
    }
    return { block, turn };
  }

  #isBefore(a: number, b: number): boolean {
    return this.#key[a] < this.#key[b] || (this.#key[a] === this.#key[b] && this.#block[a] > this.#block[b]);
  }

  #swap(a: number, b: number): void {
    for (const column of [this.#key, this.#block, this.#turn]) {
      const kept = column[a];
      column[a] = column[b];
      column[b] = kept;
    }
  }
}
