/**
 * Requests whose blocks are in use: what their blocks will be classed by once they are let go. A visit is
 * kept until its last block was let go, or until another request uses the block too and takes it over.
 */

import { invariant } from '../../errors.ts';
import type { StateVisitor } from '../../snapshot/index.ts';
import { bucketOf } from './learning/ages.ts';

/** Uses beyond which a block says nothing of one chain's pace: it is a shared prompt. */
const SHARED = 8;

export class Visits {
  /** By visit: its number, the content touched last, tokens that nobody knew. */
  number: Float64Array = new Float64Array(16);
  last: Int32Array = new Int32Array(16);
  newTokens: Float64Array = new Float64Array(16);
  /** Whether an LRU would have found every block touched so far. */
  lruFinds: Uint8Array = new Uint8Array(16);
  /** Blocks of the cohort at the end of an LRU that the visit may still find. */
  lruRoom: Int32Array = new Int32Array(16);
  #startedUs: Float64Array = new Float64Array(16);
  /** Blocks in use that the visit touched last. */
  #blocks: Int32Array = new Int32Array(16);
  /**
   * Of the deepest known block, before this use of it: uses (0 while there is none), pace and when it was let
   * go.
   */
  #deepUses: Uint8Array = new Uint8Array(16);
  #deepPace: Uint8Array = new Uint8Array(16);
  #deepUsedUs: Float64Array = new Float64Array(16);
  /** What `paceOf` answers, -1 where it is to be worked out. */
  #pace: Int16Array = new Int16Array(16);
  readonly #rowOf: Map<number, number> = new Map();
  readonly #free: number[] = [];
  #rows = 0;

  /** The row of a visit that has blocks in use, or -1. */
  find(number: number): number {
    return this.#rowOf.get(number) ?? -1;
  }

  begin(number: number, nowUs: number, lruRoom: number): number {
    const v = this.#free.pop() ?? this.#rows++;
    if (v === this.#blocks.length) this.#grow(v * 2);
    this.#rowOf.set(number, v);
    this.number[v] = number;
    this.last[v] = -1;
    this.newTokens[v] = 0;
    this.lruFinds[v] = 1;
    this.lruRoom[v] = lruRoom;
    this.#startedUs[v] = nowUs;
    this.#blocks[v] = 0;
    this.#deepUses[v] = 0;
    this.#pace[v] = -1;
    return v;
  }

  hold(v: number): void {
    this.#blocks[v]++;
  }

  letGo(v: number): void {
    invariant(this.#blocks[v] > 0, 'a visit lets a block go that it has');
    if (--this.#blocks[v] > 0) return;
    this.#rowOf.delete(this.number[v]);
    this.#free.push(v);
  }

  /** The visit found a known block, deeper than those before. */
  knows(v: number, uses: number, pace: number, usedUs: number): void {
    this.#pace[v] = -1;
    this.#deepUses[v] = uses;
    this.#deepPace[v] = pace;
    this.#deepUsedUs[v] = usedUs;
  }

  /**
   * Mean bucket of the gaps between uses of the chain, plus 1, times 8; 0 where there is none to speak of.
   */
  paceOf(v: number): number {
    if (this.#pace[v] === -1) this.#pace[v] = this.#newPace(v);
    return this.#pace[v];
  }

  #newPace(v: number): number {
    const uses = this.#deepUses[v];
    if (uses === 0 || uses > SHARED) return 0;
    const gap = Math.min(255, 8 * bucketOf(this.#startedUs[v] - this.#deepUsedUs[v]) + 8);
    const before = this.#deepPace[v];
    return before === 0 ? gap : (before + gap) >> 1;
  }

  #grow(rows: number): void {
    const grown = <T extends Float64Array | Int32Array | Int16Array | Uint8Array>(from: T, into: T): T => {
      into.set(from);
      return into;
    };
    this.number = grown(this.number, new Float64Array(rows));
    this.last = grown(this.last, new Int32Array(rows));
    this.newTokens = grown(this.newTokens, new Float64Array(rows));
    this.lruFinds = grown(this.lruFinds, new Uint8Array(rows));
    this.lruRoom = grown(this.lruRoom, new Int32Array(rows));
    this.#startedUs = grown(this.#startedUs, new Float64Array(rows));
    this.#blocks = grown(this.#blocks, new Int32Array(rows));
    this.#deepUses = grown(this.#deepUses, new Uint8Array(rows));
    this.#deepPace = grown(this.#deepPace, new Uint8Array(rows));
    this.#pace = grown(this.#pace, new Int16Array(rows));
    this.#deepUsedUs = grown(this.#deepUsedUs, new Float64Array(rows));
  }

  visitState(visitor: StateVisitor): void {
    visitor.fields(this);
    this.#startedUs = visitor.growing(this.#startedUs);
    this.#blocks = visitor.growing(this.#blocks);
    this.#deepUses = visitor.growing(this.#deepUses);
    this.#deepPace = visitor.growing(this.#deepPace);
    this.#deepUsedUs = visitor.growing(this.#deepUsedUs);
    this.#pace = visitor.growing(this.#pace);
    visitor.value(
      () => [...this.#rowOf],
      (saved) => {
        this.#rowOf.clear();
        for (const [number, row] of saved) this.#rowOf.set(number, row);
      },
    );
    visitor.list(this.#free);
    this.#rows = visitor.number(this.#rows);
  }

  /** @param inUse blocks in use by row of visit */
  checkIntegrity(inUse: ReadonlyMap<number, number>): void {
    invariant(inUse.size === this.#rowOf.size, 'a visit is kept while it has blocks in use');
    for (const [number, v] of this.#rowOf) {
      invariant(this.number[v] === number, 'a visit is found under its number');
      invariant(this.#blocks[v] === (inUse.get(v) ?? 0), 'a visit counts its blocks in use');
    }
  }
}
