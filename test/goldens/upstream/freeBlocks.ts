/**
 * Blocks that no request holds, in the order in which they were given back, with the first one that has no hash at hand.
 * A block's place is a number that only rises; places that a block has left are passed over when they come up.
 */

export class FreeBlocks implements Iterable<number> {
  length: number;
  readonly #isEmpty: (block: number) => boolean;
  /** By place, the block that came there. */
  readonly #blockAt: number[];
  /** By block, its place; -1 for a block that is held. */
  readonly #placeOf: number[];
  #head = 0;
  /** A heap of places in which a block had no hash; the lowest is first. */
  readonly #empty: number[];

  /** @param isEmpty whether a block has no hash now; `emptied` tells of each that loses it later */
  constructor(blocks: number, isEmpty: (block: number) => boolean) {
    this.length = blocks;
    this.#isEmpty = isEmpty;
    this.#blockAt = Array.from({ length: blocks }, (_, i) => i);
    this.#placeOf = [...this.#blockAt];
    this.#empty = [...this.#blockAt];
  }

  push(block: number): void {
    this.#placeOf[block] = this.#blockAt.length;
    this.#blockAt.push(block);
    this.length++;
    if (this.#isEmpty(block)) this.emptied(block);
  }

  /** Takes the block that was given back first. @throws where all are held */
  shift(): number {
    while (this.#head < this.#blockAt.length) {
      const block = this.#blockAt[this.#head];
      if (this.#placeOf[block] === this.#head) {
        this.remove(block);
        return block;
      }
      this.#head++;
    }
    throw new Error('no block is free');
  }

  /** Takes the first block without a hash; undefined where each has one. */
  takeEmpty(): number | undefined {
    while (this.#empty.length > 0) {
      const [place] = this.#empty;
      const block = this.#blockAt[place];
      this.#pop();
      if (this.#placeOf[block] === place && this.#isEmpty(block)) {
        this.remove(block);
        return block;
      }
    }
    return undefined;
  }

  remove(block: number): void {
    this.#placeOf[block] = -1;
    this.length--;
  }

  /** A block has lost its hash. */
  emptied(block: number): void {
    const place = this.#placeOf[block];
    if (place === -1) return;
    const heap = this.#empty;
    let at = heap.length;
    heap.push(place);
    for (let up = (at - 1) >> 1; at > 0 && heap[up] > place; up = (at - 1) >> 1) {
      heap[at] = heap[up];
      at = up;
    }
    heap[at] = place;
  }

  #pop(): void {
    const heap = this.#empty;
    const last = heap.pop() as number;
    if (heap.length === 0) return;
    let at = 0;
    for (let down = 1; down < heap.length; down = 2 * at + 1) {
      if (down + 1 < heap.length && heap[down + 1] < heap[down]) down++;
      if (heap[down] >= last) break;
      heap[at] = heap[down];
      at = down;
    }
    heap[at] = last;
  }

  *[Symbol.iterator](): Iterator<number> {
    for (let place = this.#head; place < this.#blockAt.length; place++) {
      const block = this.#blockAt[place];
      if (this.#placeOf[block] === place) yield block;
    }
  }
}
