/**
 * The pending events of a simulation, ordered by (time, type priority, rank, sequence). The rank is the
 * caller's: for example the number of the instance that an event belongs to. An event is its type and two
 * numbers for its handler; there are no closures and no object per event, so the queue is plain data and a
 * fork is a copy of arrays.
 *
 * Far events wait unsorted in buckets of equal width in time (a calendar), so that scheduling costs a list
 * insertion; the bucket whose turn comes is emptied into a small heap. What lies behind the last bucket waits
 * in one list, from which the next calendar is laid out with a width that fits what is pending. The order
 * never depends on this layout.
 *
 * What always holds: events leave in order; every event of the heap belongs before the bucket at the cursor;
 * times are integers of at most 2^53 - 1.
 */

import { invariant } from '../../runtime/errors.ts';
import * as is from '../../runtime/kinds.ts';
import { checkInputs } from '../../runtime/options.ts';

const PRIORITY_BIAS = 64;
const PRIORITY_UNIT = 2 ** 46; // ranks and sequences below this keep all three in one exact double
const RANK_UNIT = 2 ** 36;
/** Ranks lie below this. */
const RANKS: number = PRIORITY_UNIT / RANK_UNIT;
const TYPE_UNIT = 2 ** 32;
const NONE = -1;
const MAX_BUCKETS = 1 << 15;

/** A queue as plain data: structured-cloneable, and enough to go on from. */
interface EventQueueState {
  readonly priorities: readonly number[];
  readonly sequence: number;
  /**
   * Four doubles an event (time, order, packed type and first argument, second argument), in the order in
   * which they leave.
   */
  readonly events: Float64Array;
}

export class EventQueue {
  /** Time in µs, type and arguments of the event that `pop` took last. */
  timeUs = 0;
  type = 0;
  a = 0;
  b = 0;

  readonly #priorities: readonly number[];
  readonly #orderBase: Float64Array;
  readonly #heap: EventHeap = new EventHeap();
  #size = 0;
  #sequence = 0;

  /** Records that wait in buckets or behind them, linked by `#link`; free records are linked too. */
  #records: Float64Array;
  #link: Int32Array;
  #recordsUsed = 0;
  #free = NONE;

  #heads: Int32Array = new Int32Array(64).fill(NONE);
  #buckets = 0;
  #cursor = 0;
  #calendarStartUs = 0;
  #bucketsPerUs = 0;
  #behind = NONE;
  #behindCount = 0;
  #behindMinUs = Infinity;
  #behindMaxUs = -Infinity;

  /**
   * @param priorities priority of each event type, index = type, integers in [-64, 63]; lower leaves first.
   */
  constructor(priorities: readonly number[], capacity: number = 256) {
    checkInputs(
      { priorities, capacity },
      { priorities: is.list(is.number()), capacity: is.optional(is.number()) },
    );
    invariant(
      priorities.every((p) => Number.isInteger(p) && p >= -PRIORITY_BIAS && p < PRIORITY_BIAS),
      'event priorities are integers in [-64, 63]',
    );
    this.#priorities = [...priorities];
    this.#orderBase = Float64Array.from(priorities, (p) => (p + PRIORITY_BIAS) * PRIORITY_UNIT);
    this.#records = new Float64Array(STRIDE * Math.max(16, capacity));
    this.#link = new Int32Array(Math.max(16, capacity));
  }

  get size(): number {
    return this.#size;
  }

  /** Time of the next event in µs, Infinity when the queue is empty. */
  get nextTimeUs(): number {
    if (this.#size === 0) return Infinity;
    if (this.#heap.size === 0) this.#refillHeap();
    return this.#heap.slots[TIME];
  }

  /**
   * Adds an event. `a` is an integer in [0, 2^32), `b` any number, `rank` an integer in [0, `RANKS`).
   * @returns its sequence number.
   */
  schedule(timeUs: number, type: number, a: number = 0, b: number = 0, rank: number = 0): number {
    invariant(Number.isSafeInteger(timeUs), 'event times are integer microseconds below 2^53');
    invariant(type >= 0 && type < this.#orderBase.length, 'an event type has no priority');
    invariant(rank >= 0 && rank < RANKS, 'an event rank is out of range');
    const sequence = this.#sequence++;
    this.#size++;
    this.#place(timeUs, this.#orderBase[type] + rank * RANK_UNIT + sequence, type * TYPE_UNIT + a, b);
    return sequence;
  }

  /** Takes the next event into `timeUs`, `type`, `a` and `b`; false when the queue is empty. */
  pop(): boolean {
    if (this.#size === 0) return false;
    if (this.#heap.size === 0) this.#refillHeap();
    const slots = this.#heap.slots;
    this.timeUs = slots[TIME];
    this.type = Math.floor(slots[TYPE_AND_A] / TYPE_UNIT);
    this.a = slots[TYPE_AND_A] - this.type * TYPE_UNIT;
    this.b = slots[B];
    this.#heap.dropRoot();
    this.#size--;
    return true;
  }

  #place(timeUs: number, order: number, typeAndA: number, b: number): void {
    const bucket = Math.floor((timeUs - this.#calendarStartUs) * this.#bucketsPerUs);
    if (bucket < this.#cursor) {
      this.#heap.push(timeUs, order, typeAndA, b);
      return;
    }
    let record = this.#free;
    if (record === NONE) {
      record = this.#recordsUsed++;
      if (record === this.#link.length) this.#growRecords();
    } else {
      this.#free = this.#link[record];
    }
    const at = record * STRIDE;
    this.#records[at] = timeUs;
    this.#records[at + ORDER] = order;
    this.#records[at + TYPE_AND_A] = typeAndA;
    this.#records[at + B] = b;
    if (bucket < this.#buckets) {
      this.#link[record] = this.#heads[bucket];
      this.#heads[bucket] = record;
    } else {
      this.#link[record] = this.#behind;
      this.#behind = record;
      this.#behindCount++;
      if (timeUs < this.#behindMinUs) this.#behindMinUs = timeUs;
      if (timeUs > this.#behindMaxUs) this.#behindMaxUs = timeUs;
    }
  }

  /** Empties the next bucket that holds anything into the heap; there is at least one event outside it. */
  #refillHeap(): void {
    for (;;) {
      while (this.#cursor < this.#buckets) {
        const head = this.#heads[this.#cursor];
        this.#heads[this.#cursor++] = NONE;
        if (head === NONE) continue;
        let record = head;
        for (;;) {
          const at = record * STRIDE;
          const records = this.#records;
          this.#heap.push(records[at], records[at + ORDER], records[at + TYPE_AND_A], records[at + B]);
          const next = this.#link[record];
          if (next === NONE) break;
          record = next;
        }
        this.#link[record] = this.#free;
        this.#free = head;
        return;
      }
      this.#layOutCalendar();
    }
  }

  /** Spreads what waits behind the last bucket over a new calendar of about two events a bucket. */
  #layOutCalendar(): void {
    invariant(this.#behindCount > 0, 'the event queue lost an event');
    let buckets = 1;
    while (buckets < MAX_BUCKETS && buckets * 2 < this.#behindCount) buckets *= 2;
    if (this.#heads.length < buckets) this.#heads = new Int32Array(buckets).fill(NONE);
    this.#buckets = buckets;
    this.#cursor = 0;
    this.#calendarStartUs = this.#behindMinUs;
    // a hair less than the quotient, so that rounding never carries the latest event past the last bucket
    this.#bucketsPerUs = (buckets / (this.#behindMaxUs - this.#behindMinUs + 1)) * (1 - 2 ** -50);
    let record = this.#behind;
    this.#behind = NONE;
    this.#behindCount = 0;
    this.#behindMinUs = Infinity;
    this.#behindMaxUs = -Infinity;
    while (record !== NONE) {
      const next = this.#link[record];
      const timeUs = this.#records[record * STRIDE];
      const bucket = Math.floor((timeUs - this.#calendarStartUs) * this.#bucketsPerUs);
      this.#link[record] = this.#heads[bucket];
      this.#heads[bucket] = record;
      record = next;
    }
  }

  #growRecords(): void {
    const records = new Float64Array(this.#records.length * 2);
    records.set(this.#records);
    this.#records = records;
    const link = new Int32Array(this.#link.length * 2);
    link.set(this.#link);
    this.#link = link;
  }

  snapshot(): EventQueueState {
    const events = new Float64Array(this.#size * STRIDE);
    events.set(this.#heap.slots.subarray(0, this.#heap.size * STRIDE));
    let at = this.#heap.size * STRIDE;
    const copyList = (head: number): void => {
      for (let record = head; record !== NONE; record = this.#link[record]) {
        events.set(this.#records.subarray(record * STRIDE, (record + 1) * STRIDE), at);
        at += STRIDE;
      }
    };
    for (let bucket = this.#cursor; bucket < this.#buckets; bucket++) copyList(this.#heads[bucket]);
    copyList(this.#behind);
    invariant(at === events.length, 'the event queue counts its events wrongly');
    return { priorities: this.#priorities, sequence: this.#sequence, events: inOrder(events) };
  }

  /** A queue that goes on from `state`, independent of the one it was taken from. */
  static restore(state: EventQueueState): EventQueue {
    checkInputs({ state }, { state: is.fields({ sequence: is.number(), events: is.bytes() }) });
    const queue = new EventQueue(state.priorities, state.events.length / STRIDE);
    queue.#sequence = state.sequence;
    queue.#size = state.events.length / STRIDE;
    for (let at = 0; at < state.events.length; at += STRIDE) {
      const events = state.events;
      queue.#place(events[at], events[at + ORDER], events[at + TYPE_AND_A], events[at + B]);
    }
    return queue;
  }

  fork(): EventQueue {
    return EventQueue.restore(this.snapshot());
  }
}

function inOrder(events: Float64Array): Float64Array {
  const places = Array.from({ length: events.length / STRIDE }, (_, i) => i * STRIDE);
  places.sort((a, b) => events[a] - events[b] || events[a + ORDER] - events[b + ORDER]);
  const sorted = new Float64Array(events.length);
  for (const [i, at] of places.entries()) sorted.set(events.subarray(at, at + STRIDE), i * STRIDE);
  return sorted;
}

// The near end of the event queue: a four-ary heap ordered by (time, order), one element four doubles in a
// flat array.

/** Doubles an event takes: time, order, type and first argument packed, second argument. */
const STRIDE = 4;
const TIME = 0;
const ORDER = 1;
const TYPE_AND_A = 2;
const B = 3;

class EventHeap {
  /** Elements in heap order; the root is at 0. Read only. */
  slots: Float64Array = new Float64Array(64 * STRIDE);
  size = 0;

  push(timeUs: number, order: number, typeAndA: number, b: number): void {
    if ((this.size + 1) * STRIDE > this.slots.length) {
      const grown = new Float64Array(this.slots.length * 2);
      grown.set(this.slots);
      this.slots = grown;
    }
    const slots = this.slots;
    let hole = this.size++ * STRIDE;
    while (hole > 0) {
      const parent = (((hole >> 2) - 1) >> 2) * STRIDE;
      const parentTime = slots[parent];
      if (parentTime < timeUs || (parentTime === timeUs && slots[parent + ORDER] < order)) break;
      slots[hole] = parentTime;
      slots[hole + ORDER] = slots[parent + ORDER];
      slots[hole + TYPE_AND_A] = slots[parent + TYPE_AND_A];
      slots[hole + B] = slots[parent + B];
      hole = parent;
    }
    slots[hole] = timeUs;
    slots[hole + ORDER] = order;
    slots[hole + TYPE_AND_A] = typeAndA;
    slots[hole + B] = b;
  }

  /** Drops the root. */
  dropRoot(): void {
    const slots = this.slots;
    const last = --this.size * STRIDE;
    if (last === 0) return;
    const time = slots[last];
    const order = slots[last + ORDER];
    let hole = 0;
    for (;;) {
      const first = hole * 4 + STRIDE;
      if (first >= last) break;
      let least = first;
      let leastTime = slots[first];
      const end = Math.min(first + 4 * STRIDE, last);
      for (let child = first + STRIDE; child < end; child += STRIDE) {
        const childTime = slots[child];
        if (
          childTime < leastTime ||
          (childTime === leastTime && slots[child + ORDER] < slots[least + ORDER])
        ) {
          least = child;
          leastTime = childTime;
        }
      }
      if (time < leastTime || (time === leastTime && order < slots[least + ORDER])) break;
      slots[hole] = leastTime;
      slots[hole + ORDER] = slots[least + ORDER];
      slots[hole + TYPE_AND_A] = slots[least + TYPE_AND_A];
      slots[hole + B] = slots[least + B];
      hole = least;
    }
    slots[hole] = time;
    slots[hole + ORDER] = order;
    slots[hole + TYPE_AND_A] = slots[last + TYPE_AND_A];
    slots[hole + B] = slots[last + B];
  }
}
