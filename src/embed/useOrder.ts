/**
 * How many blocks were used after a given one: its depth in a list by last use, which is what LRU would have needed to keep it.
 * A use has a number, and a block the number of its last one; a tree of partial sums (Fenwick, 1994) over the numbers counts
 * the blocks behind any of them in a logarithm of steps. When the numbers run out, the blocks are numbered anew, in their order.
 */

interface UsedBlock {
  /** Number of its last use; 0 for none. */
  lastUse: number;
}

export class UseOrder {
  readonly #sums: Int32Array;
  readonly #all: () => Iterable<UsedBlock>;
  #last = 0;
  #counted = 0;
  /** Uses up to this number belong, in part, to blocks that were forgotten. */
  #shortUpTo = 0;

  /**
   * @param numbers uses that are told apart before the next numbering: several times the blocks
   * @param all the blocks that are known
   */
  constructor(numbers: number, all: () => Iterable<UsedBlock>) {
    this.#sums = new Int32Array(numbers + 1);
    this.#all = all;
  }

  used(block: UsedBlock): void {
    if (this.#last + 1 >= this.#sums.length) this.#number();
    if (block.lastUse !== 0) this.#add(block.lastUse, -1);
    block.lastUse = ++this.#last;
    this.#add(block.lastUse, 1);
  }

  /** The block is forgotten. */
  forget(block: UsedBlock): void {
    if (block.lastUse === 0) return;
    this.#add(block.lastUse, -1);
    this.#shortUpTo = Math.max(this.#shortUpTo, block.lastUse);
  }

  /** Blocks that were used after that one; -1 for a block without a use. */
  usedAfter({ lastUse }: UsedBlock): number {
    return lastUse === 0 ? -1 : this.#counted - this.#sumTo(lastUse);
  }

  /** Whether blocks that are forgotten may be missing from `usedAfter`. */
  isShortOf({ lastUse }: UsedBlock): boolean {
    return lastUse <= this.#shortUpTo;
  }

  #number(): void {
    const blocks = [...this.#all()].filter(({ lastUse }) => lastUse !== 0);
    blocks.sort((a, b) => a.lastUse - b.lastUse);
    const short = blocks.filter(({ lastUse }) => lastUse <= this.#shortUpTo).length;
    this.#sums.fill(0);
    this.#counted = 0;
    this.#last = 0;
    this.#shortUpTo = short;
    for (const block of blocks) {
      block.lastUse = ++this.#last;
      this.#add(block.lastUse, 1);
    }
  }

  #add(at: number, change: number): void {
    this.#counted += change;
    for (let i = at; i < this.#sums.length; i += i & -i) this.#sums[i] += change;
  }

  #sumTo(at: number): number {
    let sum = 0;
    for (let i = at; i > 0; i -= i & -i) sum += this.#sums[i];
    return sum;
  }
}
