/**
 * The places of one tier, handed out and taken back, and where their bytes lie. Two levels: large pages, of which
 * slots of one size class are cut (Jenga, arXiv 2503.18292, does this for layer groups; slab allocators do it for
 * objects). A page whose last slot comes back is uncut again, so no tier is divided between sizes in advance. Of the
 * pages of a class the fullest is used first, which empties the others; of uncut pages the one used last, so that a
 * pool that is never full touches little of its memory or file.
 *
 * Each slot has a generation that grows when it is taken; (slot, generation) names one use of a slot for ever.
 */

import { configError, invariant, requireInteger } from '../errors.ts';
import { firstRows, grown, rowsFor } from '../growing.ts';
import type { StateVisitor } from '../snapshot.ts';

const UNCUT = 255;

export class SlotPool {
  readonly shape: PoolShape;
  /** Generations by slot, up to the highest one that `reach` was called for. */
  generation: Uint32Array;
  #pageClass: Uint8Array;
  #pageTaken: Uint16Array;
  #pageFreeSlot: Int32Array;
  #nextFreeSlot: Int32Array;
  /** Pages from here on were never used: they are uncut, and taken in order when list 0 is empty. */
  #made = 0;
  /**
   * List 0: uncut pages before `made`. List 1 + bucketBase[c] + taken: pages of class c with `taken` slots taken,
   * none full.
   */
  readonly #pages: IntrusiveLists;
  readonly #bucketBase: Int32Array;
  readonly #freeSlots: Int32Array;
  #taken = 0;

  /** @param whole whether all tables have room for every slot at the start */
  constructor(shape: PoolShape, whole = true) {
    invariant(
      shape.slotBytes.length < UNCUT && shape.slotsPerPageMax <= 0xffff,
      'a pool shape within limits',
    );
    this.shape = shape;
    const pages = firstRows(shape.pages, whole);
    this.generation = new Uint32Array(pages * shape.slotsPerPageMax);
    this.#pageClass = new Uint8Array(pages).fill(UNCUT);
    const cutPages = shape.slotsPerPageMax > 1 ? pages : 0;
    this.#pageTaken = new Uint16Array(cutPages);
    this.#pageFreeSlot = new Int32Array(cutPages).fill(-1);
    this.#nextFreeSlot = new Int32Array(cutPages * shape.slotsPerPageMax).fill(-1);
    this.#bucketBase = new Int32Array(shape.slotBytes.length);
    let lists = 1;
    for (let c = 0; c < shape.slotBytes.length; c++) {
      this.#bucketBase[c] = lists;
      lists += shape.slotsPerPage[c] + 1;
    }
    this.#pages = new IntrusiveLists(shape.pages, lists, pages);
    this.#freeSlots = new Int32Array(shape.slotBytes.length);
  }

  get takenSlots(): number {
    return this.#taken;
  }

  get uncutPages(): number {
    return this.#pages.size(0) + this.shape.pages - this.#made;
  }

  /** Slots of a class that could be taken now. */
  freeSlots(sizeClass: number): number {
    return this.#freeSlots[sizeClass] + this.uncutPages * this.shape.slotsPerPage[sizeClass];
  }

  sizeClassOf(slot: number): number {
    return this.#pageClass[this.pageOf(slot)];
  }

  pageOf(slot: number): number {
    return this.shape.slotsPerPageMax === 1 ? slot : Math.floor(slot / this.shape.slotsPerPageMax);
  }

  /** Slots of the page that are taken. */
  takenOn(page: number): number {
    if (page >= this.#made) return 0;
    if (this.shape.slotsPerPageMax > 1) return this.#pageTaken[page];
    return this.#pageClass[page] === UNCUT ? 0 : 1;
  }

  /** Slots of a class that could be taken without cutting another page. */
  freeOnCutPages(sizeClass: number): number {
    return this.#freeSlots[sizeClass];
  }

  /** The cut page that the next slot of the class would be taken from; -1 if another would be cut. */
  pageToTake(sizeClass: number): number {
    return this.shape.slotsPerPageMax === 1 ? -1 : this.#fullestPage(sizeClass);
  }

  /** A slot of the class with a new generation, or -1 if all are taken. */
  take(sizeClass: number): number {
    const slot = this.shape.slotsPerPageMax === 1 ? this.#takePage(sizeClass) : this.#takeFromPage(sizeClass);
    if (slot === -1) return -1;
    this.#taken++;
    const generation = this.generation[slot] + 1;
    invariant(generation <= 0xffffffff, 'a slot has generations left');
    this.generation[slot] = generation;
    return slot;
  }

  /** The page is the slot where no page holds more than one slot. */
  #takePage(sizeClass: number): number {
    const page = this.#takeUncut();
    if (page !== -1) this.#pageClass[page] = sizeClass;
    return page;
  }

  /** The uncut page that was used last, else the first one that was never used; -1 if all are cut. */
  #takeUncut(): number {
    const page = this.#pages.newest(0);
    if (page !== -1) {
      this.#pages.remove(0, page);
      return page;
    }
    if (this.#made === this.shape.pages) return -1;
    if (this.#made === this.#pageClass.length) this.#grow(this.#made);
    return this.#made++;
  }

  /** Makes room in the tables for the slot and those before it. */
  reach(slot: number): void {
    const page = this.pageOf(slot);
    if (page >= this.#pageClass.length) this.#grow(page);
  }

  #grow(page: number): void {
    const { pages, slotsPerPageMax } = this.shape;
    const rows = rowsFor(page, this.#pageClass.length, pages);
    this.generation = grown(this.generation, rows * slotsPerPageMax);
    this.#pageClass = grown(this.#pageClass, rows, UNCUT);
    if (slotsPerPageMax === 1) return;
    this.#pageTaken = grown(this.#pageTaken, rows);
    this.#pageFreeSlot = grown(this.#pageFreeSlot, rows, -1);
    this.#nextFreeSlot = grown(this.#nextFreeSlot, rows * slotsPerPageMax, -1);
  }

  #takeFromPage(sizeClass: number): number {
    let page = this.#fullestPage(sizeClass);
    if (page === -1) {
      page = this.#takeUncut();
      if (page === -1) return -1;
      this.#cut(page, sizeClass);
    }
    const slot = this.#pageFreeSlot[page];
    this.#pageFreeSlot[page] = this.#nextFreeSlot[slot];
    this.#moveBucket(page, sizeClass, 1);
    this.#freeSlots[sizeClass]--;
    return slot;
  }

  /**
   * Takes one free slot by name with a given generation: a record that a file holds from an earlier run. False, with
   * nothing changed, if the slot is not free in that class.
   */
  takeSlot(slot: number, sizeClass: number, generation: number): boolean {
    const { slotsPerPageMax, slotsPerPage } = this.shape;
    this.reach(slot);
    const page = this.pageOf(slot);
    invariant(slot - page * slotsPerPageMax < slotsPerPage[sizeClass], 'the slot exists in its class');
    invariant(generation >= this.generation[slot], 'a generation never falls');
    const cut = this.#pageClass[page];
    if (cut !== UNCUT && (cut !== sizeClass || slotsPerPageMax === 1)) return false;
    if (cut === UNCUT) {
      // skipped pages are taken after pages that were used before, in order
      for (; this.#made <= page; this.#made++) this.#pages.prepend(0, this.#made);
      this.#pages.remove(0, page);
    }
    if (slotsPerPageMax === 1) {
      this.#pageClass[page] = sizeClass;
    } else {
      if (cut === UNCUT) this.#cut(page, sizeClass);
      if (!this.#unlinkFree(page, slot)) return false;
      this.#moveBucket(page, sizeClass, 1);
      this.#freeSlots[sizeClass]--;
    }
    this.#taken++;
    this.generation[slot] = generation;
    return true;
  }

  /** Takes the slot out of its page's list of free ones; false when it is not there. */
  #unlinkFree(page: number, slot: number): boolean {
    let before = -1;
    for (let at = this.#pageFreeSlot[page]; at !== -1; before = at, at = this.#nextFreeSlot[at]) {
      if (at !== slot) continue;
      if (before === -1) this.#pageFreeSlot[page] = this.#nextFreeSlot[slot];
      else this.#nextFreeSlot[before] = this.#nextFreeSlot[slot];
      return true;
    }
    return false;
  }

  giveBack(slot: number): void {
    const page = this.pageOf(slot);
    const sizeClass = this.#pageClass[page];
    invariant(sizeClass !== UNCUT, 'only a taken slot can be given back');
    this.#taken--;
    if (this.shape.slotsPerPageMax === 1) {
      this.#pageClass[page] = UNCUT;
      this.#pages.append(0, page);
      return;
    }
    invariant(this.#pageTaken[page] > 0, 'only a taken slot can be given back');
    this.#nextFreeSlot[slot] = this.#pageFreeSlot[page];
    this.#pageFreeSlot[page] = slot;
    this.#moveBucket(page, sizeClass, -1);
    this.#freeSlots[sizeClass]++;
    if (this.#pageTaken[page] === 0) {
      this.#pages.remove(this.#bucketBase[sizeClass], page);
      this.#freeSlots[sizeClass] -= this.shape.slotsPerPage[sizeClass];
      this.#pageClass[page] = UNCUT;
      this.#pageFreeSlot[page] = -1;
      this.#pages.append(0, page);
    }
  }

  #fullestPage(sizeClass: number): number {
    if (this.#freeSlots[sizeClass] === 0) return -1;
    const base = this.#bucketBase[sizeClass];
    for (let taken = this.shape.slotsPerPage[sizeClass] - 1; taken >= 0; taken--) {
      const page = this.#pages.oldest(base + taken);
      if (page !== -1) return page;
    }
    return -1;
  }

  #cut(page: number, sizeClass: number): void {
    this.#pageClass[page] = sizeClass;
    this.#pageTaken[page] = 0;
    const slots = this.shape.slotsPerPage[sizeClass];
    const first = page * this.shape.slotsPerPageMax;
    this.#pageFreeSlot[page] = first;
    for (let i = 0; i < slots; i++) this.#nextFreeSlot[first + i] = i + 1 < slots ? first + i + 1 : -1;
    this.#pages.append(this.#bucketBase[sizeClass], page);
    this.#freeSlots[sizeClass] += slots;
  }

  #moveBucket(page: number, sizeClass: number, change: 1 | -1): void {
    const base = this.#bucketBase[sizeClass];
    const before = this.#pageTaken[page];
    this.#pages.remove(base + before, page);
    this.#pageTaken[page] = before + change;
    this.#pages.append(base + before + change, page);
  }

  visitState(visitor: StateVisitor): void {
    visitor.constant(this.shape.pages);
    visitor.constant(this.shape.slotLimit);
    this.generation = visitor.growing(this.generation);
    this.#pageClass = visitor.growing(this.#pageClass);
    this.#pageTaken = visitor.growing(this.#pageTaken);
    this.#pageFreeSlot = visitor.growing(this.#pageFreeSlot);
    this.#nextFreeSlot = visitor.growing(this.#nextFreeSlot);
    this.#made = visitor.number(this.#made);
    visitor.array(this.#freeSlots);
    this.#pages.visitState(visitor);
    this.#taken = visitor.number(this.#taken);
  }

  checkIntegrity(): void {
    this.#pages.checkIntegrity();
    const free = new Int32Array(this.shape.slotBytes.length);
    let taken = 0;
    for (let page = 0; page < this.#made; page++) {
      const sizeClass = this.#pageClass[page];
      if (sizeClass === UNCUT) continue;
      if (this.shape.slotsPerPageMax === 1) {
        taken++;
        continue;
      }
      let onPage = 0;
      for (let slot = this.#pageFreeSlot[page]; slot !== -1; slot = this.#nextFreeSlot[slot] ?? -1) onPage++;
      invariant(
        onPage + this.#pageTaken[page] === this.shape.slotsPerPage[sizeClass],
        'free and taken slots fill a page',
      );
      free[sizeClass] += onPage;
      taken += this.#pageTaken[page];
    }
    invariant(taken === this.#taken, 'the pool knows how many slots are taken');
    for (let c = 0; c < free.length; c++)
      invariant(free[c] === this.#freeSlots[c], 'the pool knows its free slots');
  }
}

// Where the bytes of a slot lie. A pool is `pages` large pages of `pageBytes`; a page in use is cut into
// slots of one size class. Slot numbers are fixed by the shape alone, so that the manager, every tier store
// and the disk agree on them without talking:
//
//     slot = page * slotsPerPageMax + index          offset = page * pageBytes + index * slotBytes[sizeClass]
//
//      page 0 (class 0: 1 slot)        page 1 (class 1: 4 slots)          page 2 (not cut yet)
//     +-----------------------------+-------+-------+-------+-------+-----------------------------+
//     | slot 0                      | s 4   | s 5   | s 6   | s 7   |                             |
//     +-----------------------------+-------+-------+-------+-------+-----------------------------+

/** How the memory of a tier is cut in pages and slots. */
export interface PoolShape {
  readonly pageBytes: number;
  readonly pages: number;
  /** Bytes of one slot, by size class. */
  readonly slotBytes: readonly number[];
  /** Slots that a page of each size class holds. */
  readonly slotsPerPage: readonly number[];
  readonly slotsPerPageMax: number;
  /** Slot numbers are below this. */
  readonly slotLimit: number;
  readonly capacityBytes: number;
}

/** @throws TKV_CONFIG when a size is not a positive integer or no slot of a class fits a page. */
export function poolShape(pages: number, pageBytes: number, slotBytes: readonly number[]): PoolShape {
  requireInteger('pages', pages, 0);
  requireInteger('pageBytes', pageBytes, 1);
  const slotsPerPage = slotBytes.map((bytes, sizeClass) => {
    requireInteger(`slotBytes[${sizeClass}]`, bytes, 1);
    if (bytes > pageBytes) {
      throw configError('pageBytes', `is ${pageBytes}, less than a slot of ${bytes}`, 'Raise pageBytes.');
    }
    return Math.floor(pageBytes / bytes);
  });
  if (slotsPerPage.length === 0) {
    throw configError('slotBytes', 'is empty', 'Name at least one slot size.');
  }
  const slotsPerPageMax = Math.max(...slotsPerPage);
  return {
    pageBytes,
    pages,
    slotBytes,
    slotsPerPage,
    slotsPerPageMax,
    slotLimit: pages * slotsPerPageMax,
    capacityBytes: pages * pageBytes,
  };
}

export function slotOffsetBytes(shape: PoolShape, slot: number, sizeClass: number): number {
  const index = slot % shape.slotsPerPageMax;
  const page = (slot - index) / shape.slotsPerPageMax;
  const inside = page < shape.pages && index < shape.slotsPerPage[sizeClass];
  invariant(inside, () => `slot ${slot} is outside its pool`);
  return page * shape.pageBytes + index * shape.slotBytes[sizeClass];
}

// Pages of a tier that hold only evictable replicas: clearing one of them makes room for slots of any size class. Per
// page it counts taken slots, and the ones among them that may not be evicted. A page is listed while it has taken
// slots and all of them are evictable; the page that was listed first is cleared first.

export class PageCensus {
  readonly #pool: SlotPool;
  readonly #taken: Uint32Array;
  readonly #fixed: Uint32Array;
  readonly #clearable: IntrusiveLists;

  constructor(pool: SlotPool) {
    this.#pool = pool;
    this.#taken = new Uint32Array(pool.shape.pages);
    this.#fixed = new Uint32Array(pool.shape.pages);
    this.#clearable = new IntrusiveLists(pool.shape.pages, 1);
  }

  /** A page to clear, or -1. */
  clearablePage(): number {
    return this.#clearable.oldest(0);
  }

  took(slot: number): void {
    const page = this.#pool.pageOf(slot);
    this.#taken[page]++;
    this.#change(page, 1);
  }

  gaveBack(slot: number): void {
    const page = this.#pool.pageOf(slot);
    this.#taken[page]--;
    this.#change(page, -1);
  }

  becameEvictable(slot: number): void {
    this.#change(this.#pool.pageOf(slot), -1);
  }

  becameFixed(slot: number): void {
    this.#change(this.#pool.pageOf(slot), 1);
  }

  #change(page: number, fixed: 1 | -1): void {
    this.#fixed[page] += fixed;
    const clearable = this.#fixed[page] === 0 && this.#taken[page] > 0;
    if (clearable === this.#clearable.has(page)) return;
    if (clearable) this.#clearable.append(0, page);
    else this.#clearable.remove(0, page);
  }

  visitState(visitor: StateVisitor): void {
    visitor.array(this.#taken);
    visitor.array(this.#fixed);
    this.#clearable.visitState(visitor);
  }

  /**
   * @param fixed taken slots of each page that may not be evicted, @param taken all taken ones, counted anew
   */
  checkIntegrity(fixed: ArrayLike<number>, taken: ArrayLike<number>): void {
    this.#clearable.checkIntegrity();
    for (let page = 0; page < this.#taken.length; page++) {
      invariant(
        this.#fixed[page] === fixed[page] && this.#taken[page] === taken[page],
        'a page knows how many of its slots are taken, and how many may not be evicted',
      );
      invariant(
        this.#clearable.has(page) === (fixed[page] === 0 && taken[page] > 0),
        'exactly the pages that can be cleared are listed',
      );
    }
  }
}

// Doubly linked lists over typed arrays: members are small integers, and each is in at most one list.
//
//     list L:   sentinel(L) <-> oldest <-> ... <-> newest <-> sentinel(L)
//
// Every operation is O(1) and makes no garbage, except when a table grows. Links count the sentinels first and the
// members behind them. A member outside any list has next = -1.

export class IntrusiveLists {
  readonly #members: number;
  readonly #lists: number;
  #next: Int32Array;
  #prev: Int32Array;
  readonly #size: Int32Array;

  /** @param rows members that have room now; the others get it when they are first listed */
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
    invariant(member < this.#members, 'a member is below the limit');
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
