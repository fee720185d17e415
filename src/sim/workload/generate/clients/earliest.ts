/** A binary heap of items by (time, rank): ranks break ties, so that merging streams is stable. */

export class EarliestFirst<T> {
  readonly #times: number[] = [];
  readonly #ranks: number[] = [];
  readonly #items: T[] = [];

  get size(): number {
    return this.#items.length;
  }

  /** Time of the first item, Infinity when empty. */
  get timeUs(): number {
    return this.#times.length === 0 ? Infinity : this.#times[0];
  }

  /** The first item; the heap must not be empty. */
  get first(): T {
    return this.#items[0];
  }

  push(timeUs: number, rank: number, item: T): void {
    this.#times.push(timeUs);
    this.#ranks.push(rank);
    this.#items.push(item);
    let hole = this.#items.length - 1;
    while (hole > 0) {
      const parent = (hole - 1) >> 1;
      if (!this.#before(timeUs, rank, parent)) break;
      this.#move(parent, hole);
      hole = parent;
    }
    this.#put(hole, timeUs, rank, item);
  }

  pop(): T {
    const first = this.#items[0];
    const timeUs = this.#times.pop()!;
    const rank = this.#ranks.pop()!;
    const item = this.#items.pop()!;
    if (this.#items.length > 0) this.#sink(timeUs, rank, item);
    return first;
  }

  /** Exchanges the first item for another in one descent. */
  replaceFirst(timeUs: number, rank: number, item: T): void {
    this.#sink(timeUs, rank, item);
  }

  #sink(timeUs: number, rank: number, item: T): void {
    const size = this.#items.length;
    let hole = 0;
    for (;;) {
      let child = 2 * hole + 1;
      if (child >= size) break;
      if (child + 1 < size && this.#before(this.#times[child + 1], this.#ranks[child + 1], child)) child++;
      if (this.#before(timeUs, rank, child)) break;
      this.#move(child, hole);
      hole = child;
    }
    this.#put(hole, timeUs, rank, item);
  }

  #before(timeUs: number, rank: number, at: number): boolean {
    return timeUs < this.#times[at] || (timeUs === this.#times[at] && rank < this.#ranks[at]);
  }

  #move(from: number, to: number): void {
    this.#put(to, this.#times[from], this.#ranks[from], this.#items[from]);
  }

  #put(at: number, timeUs: number, rank: number, item: T): void {
    this.#times[at] = timeUs;
    this.#ranks[at] = rank;
    this.#items[at] = item;
  }
}
