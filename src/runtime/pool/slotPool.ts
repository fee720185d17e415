/**
 * The places of one tier, handed out and taken back. Two levels: large pages, of which slots of one size
 * class are cut (Jenga, arXiv 2503.18292, does this for layer groups; slab allocators do it for objects). A
 * page whose last slot comes back is uncut again, so no tier is divided between sizes in advance. Of the
 * pages of a class the fullest is used first, which empties the others; of uncut pages the one that was used
 * last, so that a pool that is never full touches little of its memory or file.
 *
 * Each slot has a generation that grows when it is taken; (slot, generation) names one use of a slot for
 * ever.
 */

import { invariant } from '../errors.ts';
import { firstRows, grown, rowsFor } from '../growing.ts';
import type { StateVisitor } from '../snapshot/index.ts';
import { IntrusiveLists } from './intrusiveLists.ts';
import type { PoolShape } from './shape.ts';

const UNCUT = 255;

export class SlotPool {
  readonly shape: PoolShape;
  /** By slot, for those of which `reach` was told. */
  generation: Uint32Array;
  #pageClass: Uint8Array;
  #pageTaken: Uint16Array;
  #pageFreeSlot: Int32Array;
  #nextFreeSlot: Int32Array;
  /** Pages from here on were never used: they are uncut, and taken in order when list 0 is empty. */
  #made = 0;
  /**
   * List 0: uncut pages before `made`. List 1 + bucketBase[c] + taken: pages of class c with so many slots
   * taken, none full.
   */
  readonly #pages: IntrusiveLists;
  readonly #bucketBase: Int32Array;
  readonly #freeSlots: Int32Array;
  #taken = 0;

  /** @param whole whether all tables have room for every slot from the start */
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

  /** The cut page of which the next slot of the class would be taken; -1 where another would be cut. */
  pageToTake(sizeClass: number): number {
    return this.shape.slotsPerPageMax === 1 ? -1 : this.#fullestPage(sizeClass);
  }

  /** A slot of the class with a new generation, or -1 when there is none. */
  take(sizeClass: number): number {
    const slot = this.shape.slotsPerPageMax === 1 ? this.#takePage(sizeClass) : this.#takeFromPage(sizeClass);
    if (slot === -1) return -1;
    this.#taken++;
    const generation = this.generation[slot] + 1;
    invariant(generation <= 0xffffffff, 'a slot has generations left');
    this.generation[slot] = generation;
    return slot;
  }

  /** Where no page holds more than one slot, the page is the slot. */
  #takePage(sizeClass: number): number {
    const page = this.#takeUncut();
    if (page !== -1) this.#pageClass[page] = sizeClass;
    return page;
  }

  /** The uncut page that was used last, else the first one that was never used; -1 when there is none. */
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
   * Takes one free slot by name, with a given generation: what a file holds since an earlier run. A slot that
   * is not free in that class is left alone.
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
      // pages that are passed over are taken after those that were used before, in order
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
