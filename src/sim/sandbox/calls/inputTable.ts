/**
 * The numbers of one input of a call, row after row, where the host writes them. In WASM and JavaScript the
 * table lies in the program's own memory, so that nothing is copied.
 */

import { configError } from '../../../runtime/errors.ts';
import type { InputShape } from './signature.ts';

export class InputTable {
  readonly shape: InputShape;
  /** Numbers of a row: the fields. */
  readonly width: number;
  /** Rows of the next call. A record has one. */
  rows: number;
  /**
   * `values[row * width + field]`. Write to it after `resize` and before the call, and read the property anew
   * each time: the table moves when the program's memory grows.
   */
  values: Float64Array;
  /** Texts, at the places that their fields have in `values`. */
  readonly texts: string[] = [];
  readonly #reserve: (numbers: number) => Float64Array;
  readonly #fields: readonly string[];

  /** @param reserve gives room for so many numbers; called again when a table has to grow */
  constructor(shape: InputShape, reserve: (numbers: number) => Float64Array) {
    this.shape = shape;
    this.#fields = Object.keys(shape.fields);
    this.width = this.#fields.length;
    this.#reserve = reserve;
    this.rows = shape.kind === 'record' ? 1 : 0;
    this.values = reserve(shape.kind === 'record' ? this.width : 8 * this.width);
  }

  /**
   * Sets the number of rows. What the table held is undefined afterwards.
   *
   * @throws PolicyError memory_limit where the program has no room for them
   */
  resize(rows: number): void {
    const needed = rows * this.width;
    if (needed > this.values.length) this.values = this.#reserve(Math.max(needed, 2 * this.values.length));
    this.rows = rows;
  }

  /** Place of a field in a row. @throws TKV_CONFIG where there is none of that name */
  field(name: string): number {
    const place = this.#fields.indexOf(name);
    if (place < 0) throw configError(`${this.shape.name}.${name}`, 'is no field', 'Take one of its shape.');
    return place;
  }
}
