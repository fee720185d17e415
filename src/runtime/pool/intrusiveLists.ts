/**
 * Doubly linked lists over typed arrays: members are small integers, and each is in at most one list.
 *
 *     list L:   sentinel(L) <-> oldest <-> ... <-> newest <-> sentinel(L)
 *
 * Every operation is O(1) and makes no garbage, but for the growth of a table that grows. Links count the
 * sentinels first and the members behind them. A member outside any list has next = -1.
 */

import { invariant } from '../errors.ts';
import { grown, rowsFor } from '../growing.ts';
import type { StateVisitor } from '../snapshot/index.ts';

export class IntrusiveLists {
  readonly #members: number;
  readonly #lists: number;
  #next: Int32Array;
  #prev: Int32Array;
  readonly #size: Int32Array;

  /** @param rows members that there is room for now; the others get it when they are first listed */
  constructor(members: number, lists: number, rows: number = members) {
    this.#members = members;
    this.#lists = lists;
    this.#next = new Int32Array(lists + rows).fill(-1);
    this.#prev = new Int32Array(lists + rows).fill(-1);
    this.#size = new Int32Array(lists);
    for (let list = 0; list < lists; list++) {
      this.#next[list] = list;
      this.#prev[list] = list;
    }
  }

  size(list: number): number {
    return this.#size[list];
  }

  has(member: number): boolean {
    const at = this.#lists + member;
    return at < this.#next.length && this.#next[at] !== -1;
  }

  /** The member that was appended longest ago, or -1. */
  oldest(list: number): number {
    const first = this.#next[list] - this.#lists;
    return first >= 0 ? first : -1;
  }

  /** The member that was appended last, or -1. */
  newest(list: number): number {
    const last = this.#prev[list] - this.#lists;
    return last >= 0 ? last : -1;
  }

  /** The member after `member` towards the newest, or -1. */
  newer(member: number): number {
    const next = this.#next[this.#lists + member] - this.#lists;
    return next >= 0 ? next : -1;
  }

  append(list: number, member: number): void {
    this.#insert(list, member, list);
  }

  /** Makes the member the oldest of the list. */
  prepend(list: number, member: number): void {
    this.#insert(list, member, this.#next[list]);
  }

  #insert(list: number, member: number, before: number): void {
    const at = this.#lists + member;
    if (at >= this.#next.length) this.#grow(member);
    invariant(this.#next[at] === -1, 'a member is in one list at a time');
    const last = this.#prev[before];
    this.#next[last] = at;
    this.#prev[at] = last;
    this.#next[at] = before;
    this.#prev[before] = at;
    this.#size[list]++;
  }

  remove(list: number, member: number): void {
    const at = this.#lists + member;
    const next = this.#next[at];
    invariant(next !== -1, 'only a member can be removed');
    const prev = this.#prev[at];
    this.#next[prev] = next;
    this.#prev[next] = prev;
    this.#next[at] = -1;
    this.#prev[at] = -1;
    this.#size[list]--;
  }

  #grow(member: number): void {
    invariant(member < this.#members, 'a member is one of those that there are');
    const rows = rowsFor(member, this.#next.length - this.#lists, this.#members);
    this.#next = grown(this.#next, this.#lists + rows, -1);
    this.#prev = grown(this.#prev, this.#lists + rows, -1);
  }

  visitState(visitor: StateVisitor): void {
    this.#next = visitor.growing(this.#next);
    this.#prev = visitor.growing(this.#prev);
    visitor.array(this.#size);
  }

  checkIntegrity(): void {
    for (let list = 0; list < this.#lists; list++) {
      let count = 0;
      for (let at = this.#next[list]; at !== list; at = this.#next[at]) {
        invariant(this.#prev[this.#next[at]] === at, 'list links agree in both directions');
        invariant(++count <= this.#members, 'a list has no cycle');
      }
      invariant(count === this.#size[list], 'a list knows its size');
    }
  }
}
