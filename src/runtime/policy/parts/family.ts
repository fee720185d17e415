/**
 * Who is a leaf: in each tier, a content counts the entered replicas whose content follows it in a chain. The
 * count is by what was known when the child entered; a content that is forgotten is counted for no more, so a
 * row that is used again starts at 0. Children are counted only while they are entered: a block that is held
 * never keeps its parent from being evicted.
 */

import { invariant } from '../../errors.ts';
import type { StateVisitor } from '../../snapshot/index.ts';
import type { PolicyWorld } from '../evictionPolicy.ts';

export class Family {
  readonly #contents: number;
  readonly #children: Int32Array;
  /** How often the content's row was given to another. */
  readonly #turn: Uint32Array;
  /**
   * By replica: its content, the content that counts it, -1 for none, and in which turn of that one's row.
   */
  readonly #content: Int32Array;
  readonly #parent: Int32Array;
  readonly #parentTurn: Uint32Array;
  /** Entered replicas of a content: the first one, and the next one of the same content. */
  readonly #first: Int32Array;
  readonly #next: Int32Array;

  constructor({ tiers, base, contents }: PolicyWorld) {
    const replicas = base[tiers];
    this.#contents = contents;
    this.#children = new Int32Array(tiers * contents);
    this.#turn = new Uint32Array(contents);
    this.#content = new Int32Array(replicas).fill(-1);
    this.#parent = new Int32Array(replicas).fill(-1);
    this.#parentTurn = new Uint32Array(replicas);
    this.#first = new Int32Array(contents).fill(-1);
    this.#next = new Int32Array(replicas).fill(-1);
  }

  contentOf(replica: number): number {
    return this.#content[replica];
  }

  hasChildren(content: number, tier: number): boolean {
    return this.#children[tier * this.#contents + content] > 0;
  }

  /** The first entered replica of a content, or -1. */
  firstOf(content: number): number {
    return this.#first[content];
  }

  /** The next entered replica of the same content, or -1. */
  nextOf(replica: number): number {
    return this.#next[replica];
  }

  /** @returns the parent if it has a child in the tier now and had none before, or -1 */
  enter(replica: number, tier: number, content: number, parent: number): number {
    this.#content[replica] = content;
    this.#next[replica] = this.#first[content];
    this.#first[content] = replica;
    this.#parent[replica] = parent;
    if (parent < 0) return -1;
    this.#parentTurn[replica] = this.#turn[parent];
    return ++this.#children[tier * this.#contents + parent] === 1 ? parent : -1;
  }

  /** @returns the parent if it has no child in the tier now and had one before, or -1 */
  leave(replica: number, tier: number): number {
    const content = this.#content[replica];
    if (this.#first[content] === replica) this.#first[content] = this.#next[replica];
    else {
      let before = this.#first[content];
      while (this.#next[before] !== replica) before = this.#next[before];
      this.#next[before] = this.#next[replica];
    }
    this.#next[replica] = -1;
    this.#content[replica] = -1;
    const parent = this.#parent[replica];
    if (parent < 0 || this.#parentTurn[replica] !== this.#turn[parent]) return -1;
    return --this.#children[tier * this.#contents + parent] === 0 ? parent : -1;
  }

  forgotten(content: number): void {
    invariant(this.#first[content] === -1, 'a forgotten content has no entered replica');
    this.#turn[content]++;
    for (let at = content; at < this.#children.length; at += this.#contents) this.#children[at] = 0;
  }

  visitState(visitor: StateVisitor): void {
    visitor.array(this.#children);
    visitor.array(this.#turn);
    visitor.array(this.#content);
    visitor.array(this.#parent);
    visitor.array(this.#parentTurn);
    visitor.array(this.#first);
    visitor.array(this.#next);
  }

  checkIntegrity(tierOf: (replica: number) => number): void {
    const children = new Int32Array(this.#children.length);
    for (let replica = 0; replica < this.#content.length; replica++) {
      const content = this.#content[replica];
      if (content === -1) continue;
      let at = this.#first[content];
      while (at !== replica && at !== -1) at = this.#next[at];
      invariant(at === replica, 'a content names its entered replicas');
      const parent = this.#parent[replica];
      if (parent < 0 || this.#parentTurn[replica] !== this.#turn[parent]) continue;
      children[tierOf(replica) * this.#contents + parent]++;
    }
    for (let at = 0; at < children.length; at++) {
      invariant(children[at] === this.#children[at], 'a content counts its entered children');
    }
  }
}
