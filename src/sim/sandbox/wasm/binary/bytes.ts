/** Reading and writing the bytes of a WebAssembly module: numbers in LEB128, names, lengths. */

import { PolicyError } from '../../policyError.ts';

/** @throws PolicyError compile, always */
export function refuse(problem: string, at?: number): never {
  const place = at === undefined ? '' : ` at byte ${at}`;
  throw new PolicyError('compile', `the module${place} ${problem}`);
}

/** The beginning of a name of the module as an error may have it: on one line. */
export function shown(name: string): string {
  return name.slice(0, 80).replace(/[\p{C}\p{Z}]/gu, ' ');
}

export class ByteReader {
  readonly #bytes: Uint8Array;
  readonly #start: number;
  readonly end: number;
  at: number;

  constructor(bytes: Uint8Array, at: number = 0, end: number = bytes.length) {
    this.#bytes = bytes;
    this.#start = at;
    this.at = at;
    this.end = end;
  }

  get isAtEnd(): boolean {
    return this.at >= this.end;
  }

  byte(): number {
    if (this.at >= this.end) refuse('ends too early', this.at);
    return this.#bytes[this.at++];
  }

  take(length: number): Uint8Array {
    if (length > this.end - this.at) refuse('ends too early', this.at);
    this.at += length;
    return this.#bytes.subarray(this.at - length, this.at);
  }

  /** A part of `length` bytes as a reader of its own; this one goes on behind it. */
  part(length: number): ByteReader {
    const start = this.at;
    this.take(length);
    return new ByteReader(this.#bytes, start, this.at);
  }

  /** All that was read. */
  whole(): Uint8Array {
    return this.#bytes.subarray(this.#start, this.at);
  }

  /** What was read since `start`. */
  since(start: number): Uint8Array {
    return this.#bytes.subarray(start, this.at);
  }

  unsigned(): number {
    let value = 0;
    for (let shift = 0; shift < 35; shift += 7) {
      const byte = this.byte();
      value += (byte & 0x7f) * 2 ** shift;
      if (byte < 0x80) return value < 2 ** 32 ? value : refuse('has a number of over 32 bits', this.at);
    }
    return refuse('has a number of over 32 bits', this.at);
  }

  /** A signed number of at most 33 bits, as it stands in the type of a block. */
  signed33(): number {
    let value = 0;
    for (let shift = 0; shift < 35; shift += 7) {
      const byte = this.byte();
      value += (byte & 0x7f) * 2 ** shift;
      if (byte < 0x80) return (byte & 0x40) === 0 ? value : value - 2 ** (shift + 7);
    }
    return refuse('has a number of over 33 bits', this.at);
  }

  /** Goes past a number of any width up to 64 bits. */
  skipNumber(): void {
    for (let bytes = 0; bytes < 10; bytes++) if (this.byte() < 0x80) return;
    refuse('has a number of over 64 bits', this.at);
  }

  name(): string {
    return new TextDecoder().decode(this.take(this.unsigned()));
  }

  list<T>(read: () => T): T[] {
    const count = this.unsigned();
    if (count > this.end - this.at) refuse('ends too early', this.at);
    return Array.from({ length: count }, read);
  }
}

const SHORT = 16;

export class ByteWriter {
  #bytes: Uint8Array<ArrayBuffer> = new Uint8Array(256);
  #length = 0;

  get length(): number {
    return this.#length;
  }

  get bytes(): Uint8Array<ArrayBuffer> {
    return this.#bytes.subarray(0, this.#length);
  }

  clear(): void {
    this.#length = 0;
  }

  byte(...values: readonly number[]): this {
    return this.append(values);
  }

  append(values: ArrayLike<number>): this {
    const needed = this.#length + values.length;
    if (needed > this.#bytes.length) {
      const grown = new Uint8Array(2 * needed);
      grown.set(this.bytes);
      this.#bytes = grown;
    }
    // setting a few bytes at once is slower than one by one
    if (values.length > SHORT) this.#bytes.set(values, this.#length);
    else for (let i = 0; i < values.length; i++) this.#bytes[this.#length + i] = values[i];
    this.#length = needed;
    return this;
  }

  unsigned(value: number): this {
    let rest = value;
    while (rest >= 0x80) {
      this.byte((rest % 0x80) | 0x80);
      rest = Math.floor(rest / 0x80);
    }
    return this.byte(rest);
  }

  /** A signed number of 32 bits, or the index of a type where a block has one. */
  signed(value: number): this {
    let rest = value;
    while (rest < -0x40 || rest > 0x3f) {
      this.byte((rest & 0x7f) | 0x80);
      rest = Math.floor(rest / 0x80);
    }
    return this.byte(rest & 0x7f);
  }

  name(text: string): this {
    const bytes = new TextEncoder().encode(text);
    return this.unsigned(bytes.length).append(bytes);
  }

  /** Bytes with their number before them. */
  sized(content: ByteWriter): this {
    return this.unsigned(content.length).append(content.bytes);
  }
}
