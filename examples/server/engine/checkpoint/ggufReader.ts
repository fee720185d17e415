/** The header of a GGUF file: little-endian numbers, strings with their length, and typed values. */

import type { OpenedBytes } from './openedBytes.ts';
import { checkpointError } from './tensorSource.ts';

export type GgufValue = string | number | boolean | readonly GgufValue[];

export interface GgufTensor {
  readonly name: string;
  /** Outermost dimension first; the file has them the other way round. */
  readonly shape: readonly number[];
  readonly type: number;
  readonly offset: number;
}

const magic = 0x46554747; // "GGUF"
const headerBytesMax = 256 * 2 ** 20;
const countMax = 10_000_000;
const STRING = 8;
const ARRAY = 9;

export class GgufReader {
  readonly #path: string;
  readonly #bytes: Uint8Array<ArrayBuffer>;
  readonly #view: DataView;
  /** Bytes read so far. */
  at = 0;

  constructor(file: OpenedBytes) {
    this.#path = file.path;
    this.#bytes = file.read(0, Math.min(file.size, headerBytesMax));
    this.#view = new DataView(this.#bytes.buffer);
  }

  /** @throws TKV_INPUT for what is no header of version 2 or 3 */
  readHeader(): { metadata: Map<string, GgufValue>; tensors: GgufTensor[] } {
    if (this.#u32() !== magic) throw this.#damaged('is no GGUF file');
    const version = this.#u32();
    if (version !== 2 && version !== 3) throw this.#damaged(`is GGUF of version ${version}, not 2 or 3`);
    const tensorCount = this.#count();
    const valueCount = this.#count();
    const metadata = new Map<string, GgufValue>();
    for (let i = 0; i < valueCount; i++) metadata.set(this.#string(), this.#value(this.#u32()));
    const tensors = Array.from({ length: tensorCount }, () => {
      const name = this.#string();
      const sizes = Array.from({ length: Math.min(this.#u32(), 8) }, () => this.#count(2 ** 40));
      return { name, shape: sizes.reverse(), type: this.#u32(), offset: this.#count(2 ** 48) };
    });
    return { metadata, tensors };
  }

  #value(type: number): GgufValue {
    const view = this.#view;
    if (type === STRING) return this.#string();
    if (type === ARRAY) {
      const inner = this.#u32();
      return Array.from({ length: this.#count() }, () => this.#value(inner));
    }
    switch (type) {
      case 0:
        return view.getUint8(this.#take(1));
      case 1:
        return view.getInt8(this.#take(1));
      case 2:
        return view.getUint16(this.#take(2), true);
      case 3:
        return view.getInt16(this.#take(2), true);
      case 4:
        return this.#u32();
      case 5:
        return view.getInt32(this.#take(4), true);
      case 6:
        return view.getFloat32(this.#take(4), true);
      case 7:
        return view.getUint8(this.#take(1)) !== 0;
      case 10:
        return Number(view.getBigUint64(this.#take(8), true));
      case 11:
        return Number(view.getBigInt64(this.#take(8), true));
      case 12:
        return view.getFloat64(this.#take(8), true);
      default:
        throw this.#damaged(`has a value of the unknown type ${type}`);
    }
  }

  #string(): string {
    const length = this.#count(headerBytesMax);
    const at = this.#take(length);
    return new TextDecoder().decode(this.#bytes.subarray(at, at + length));
  }

  #u32(): number {
    return this.#view.getUint32(this.#take(4), true);
  }

  #count(max: number = countMax): number {
    const count = Number(this.#view.getBigUint64(this.#take(8), true));
    if (count > max) throw this.#damaged(`has a count of ${count}`);
    return count;
  }

  #take(bytes: number): number {
    const { at } = this;
    if (at + bytes > this.#bytes.length) throw this.#damaged('ends within its header');
    this.at += bytes;
    return at;
  }

  #damaged(problem: string): Error {
    return checkpointError(this.#path, problem, 'Give a whole GGUF file.');
  }
}
