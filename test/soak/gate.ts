/**
 * Lets requests in as long as their blocks fit beside those of the requests inside, first come, first served.
 */

export class Gate {
  readonly #blocksMax: number;
  readonly #waiting: { readonly blocks: number; readonly enter: () => void }[] = [];
  #inside = 0;

  constructor(blocksMax: number) {
    this.#blocksMax = blocksMax;
  }

  async enter(blocks: number): Promise<void> {
    if (this.#waiting.length === 0 && this.#fits(blocks)) {
      this.#inside += blocks;
      return;
    }
    await new Promise<void>((enter) => {
      this.#waiting.push({ blocks, enter });
    });
  }

  leave(blocks: number): void {
    this.#inside -= blocks;
    while (this.#waiting.length > 0 && this.#fits(this.#waiting[0].blocks)) {
      const { blocks: next, enter } = this.#waiting.shift()!;
      this.#inside += next;
      enter();
    }
  }

  /** One request may always be inside, however long it is. */
  #fits(blocks: number): boolean {
    return this.#inside === 0 || this.#inside + blocks <= this.#blocksMax;
  }
}
