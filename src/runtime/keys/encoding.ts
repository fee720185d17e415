/**
 * The canonical encoding of what goes into a key besides tokens. Every value is written as
 *
 *      0     1      2           6
 *     +-----+------+-----------+----------------+
 *     | tag | type | length LE | length bytes   |      tag: which field      type: bytes, text or integer
 *     +-----+------+-----------+----------------+
 *
 * so the bytes can be read back in one way only: no two different lists of values have the same encoding,
 * whatever the values are. A tenant named like a model, a text that holds another field's bytes or a number
 * written as text change the encoding. Text is written as UTF-16 code units, since UTF-8 maps every unpaired
 * surrogate to the same bytes.
 */

import { invariant } from '../errors.ts';

export const ValueType = { BYTES: 1, TEXT: 2, INTEGER: 3 } as const;
export type ValueType = (typeof ValueType)[keyof typeof ValueType];

const headerBytes = 6;

export class CanonicalWriter {
  #bytes: Uint8Array = new Uint8Array(256);
  #length = 0;

  bytes(tag: number, value: Uint8Array): this {
    this.#header(tag, ValueType.BYTES, value.length);
    this.#bytes.set(value, this.#length);
    this.#length += value.length;
    return this;
  }

  text(tag: number, value: string): this {
    this.#header(tag, ValueType.TEXT, 2 * value.length);
    for (let i = 0; i < value.length; i++) {
      const unit = value.charCodeAt(i);
      this.#bytes[this.#length++] = unit & 0xff;
      this.#bytes[this.#length++] = unit >>> 8;
    }
    return this;
  }

  /** A safe integer of at least 0, as eight bytes. */
  integer(tag: number, value: number): this {
    invariant(
      Number.isSafeInteger(value) && value >= 0,
      () => `${value} is not a safe integer of at least 0`,
    );
    this.#header(tag, ValueType.INTEGER, 8);
    this.#word(value % 2 ** 32);
    this.#word(Math.floor(value / 2 ** 32));
    return this;
  }

  /** A copy of all that was written. */
  finish(): Uint8Array {
    return this.#bytes.slice(0, this.#length);
  }

  #header(tag: number, type: ValueType, length: number): void {
    invariant(Number.isInteger(tag) && tag >= 1 && tag <= 255, 'a tag is one byte, and 0 is no tag');
    const needed = this.#length + headerBytes + length;
    if (needed > this.#bytes.length) {
      const grown = new Uint8Array(2 * needed);
      grown.set(this.#bytes.subarray(0, this.#length));
      this.#bytes = grown;
    }
    this.#bytes[this.#length++] = tag;
    this.#bytes[this.#length++] = type;
    this.#word(length);
  }

  #word(value: number): void {
    for (let shift = 0; shift < 32; shift += 8) this.#bytes[this.#length++] = (value >>> shift) & 0xff;
  }
}
