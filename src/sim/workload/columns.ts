/** A growing column of numbers in a typed array. */

export class NumberColumn {
  #values: Float64Array = new Float64Array(1024);
  #size = 0;

  push(value: number): void {
    if (this.#size === this.#values.length) {
      const grown = new Float64Array(this.#size * 2);
      grown.set(this.#values);
      this.#values = grown;
    }
    this.#values[this.#size++] = value;
  }

  /** The values so far; valid until the next push. */
  view(): Float64Array {
    return this.#values.subarray(0, this.#size);
  }
}
