/**
 * Admits requests, first come, first served, while their blocks fit beside the blocks of admitted requests.
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
