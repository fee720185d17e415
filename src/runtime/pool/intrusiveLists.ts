/**
 * Doubly linked lists over typed arrays: members are small integers, and each is in at most one list.
 *
 *     list L:   sentinel(L) <-> oldest <-> ... <-> newest <-> sentinel(L)
 *
 * Every operation is O(1) and makes no garbage. A member outside any list has next = -1.
 */

import { invariant } from '../errors.ts';
import type { StateVisitor } from '../snapshot/index.ts';

export class IntrusiveLists {
  readonly #members: number;
  readonly #next: Int32Array;
  readonly #prev: Int32Array;
  readonly #size: Int32Array;

  constructor(members: number, lists: number) {
    this.#members = members;
    this.#next = new Int32Array(members + lists).fill(-1);
    this.#prev = new Int32Array(members + lists).fill(-1);
    this.#size = new Int32Array(lists);
    for (let list = 0; list < lists; list++) {
      this.#next[members + list] = members + list;
      this.#prev[members + list] = members + list;
    }
  }

  size(list: number): number {
    return this.#size[list];
  }

  has(member: number): boolean {
    return this.#next[member] !== -1;
  }

  /** The member that was appended longest ago, or -1. */
  oldest(list: number): number {
    const first = this.#next[this.#members + list];
    return first < this.#members ? first : -1;
  }

  /** The member that was appended last, or -1. */
  newest(list: number): number {
    const last = this.#prev[this.#members + list];
    return last < this.#members ? last : -1;
  }

  /** The member after `member` towards the newest, or -1. */
  newer(member: number): number {
    const next = this.#next[member];
    return next < this.#members ? next : -1;
  }

  append(list: number, member: number): void {
    invariant(this.#next[member] === -1, 'a member is in one list at a time');
    const sentinel = this.#members + list;
    const last = this.#prev[sentinel];
    this.#next[last] = member;
    this.#prev[member] = last;
    this.#next[member] = sentinel;
    this.#prev[sentinel] = member;
    this.#size[list]++;
  }

  remove(list: number, member: number): void {
    const next = this.#next[member];
    invariant(next !== -1, 'only a member can be removed');
    const prev = this.#prev[member];
    this.#next[prev] = next;
    this.#prev[next] = prev;
    this.#next[member] = -1;
    this.#prev[member] = -1;
    this.#size[list]--;
  }

  visitState(visitor: StateVisitor): void {
    visitor.array(this.#next);
    visitor.array(this.#prev);
    visitor.array(this.#size);
  }

  checkIntegrity(): void {
    for (let list = 0; list < this.#size.length; list++) {
      const sentinel = this.#members + list;
      let count = 0;
      for (let at = this.#next[sentinel]; at !== sentinel; at = this.#next[at]) {
        invariant(this.#prev[this.#next[at]] === at, 'list links agree in both directions');
        invariant(++count <= this.#members, 'a list has no cycle');
      }
      invariant(count === this.#size[list], 'a list knows its size');
    }
  }
}
