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

export interface GgufHeader {
  readonly metadata: ReadonlyMap<string, GgufValue>;
  /** The type's number of each value. */
  readonly types: ReadonlyMap<string, number>;
  readonly tensors: readonly GgufTensor[];
}

const magic = 0x46554747; // "GGUF"
const headerBytesMax = 256 * 2 ** 20;
const firstReadBytes = 2 ** 20;
const tensorsMax = 100_000;
const valuesMax = 65_536;
/** Over all arrays: three for each token of the largest vocabulary, and as many merges. */
const elementsMax = 4 * 2 ** 20;
const arrayDepthMax = 4;
const dimensionsMax = 4;
const STRING = 8;
const ARRAY = 9;
/** Least bytes of a value, by type. */
const leastBytes: readonly number[] = [1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8];

/** Type numbers of whole numbers. */
export const integerTypes: readonly number[] = [0, 1, 2, 3, 4, 5, 10, 11];

export class GgufReader {
  readonly #file: OpenedBytes;
  #bytes: Uint8Array<ArrayBuffer>;
  #view: DataView;
  #elements = 0;
  /** Bytes read so far. */
  at = 0;

  constructor(file: OpenedBytes) {
    this.#file = file;
    this.#bytes = file.read(0, Math.min(file.size, firstReadBytes));
    this.#view = new DataView(this.#bytes.buffer);
  }

  /** @throws TKV_INPUT for a header of another version than 2 or 3, or larger than any model's */
  readHeader(): GgufHeader {
    if (this.#u32() !== magic) throw this.#damaged('is not a GGUF file');
    const version = this.#u32();
    if (version !== 2 && version !== 3) throw this.#damaged(`is GGUF of version ${version}, not 2 or 3`);
    const tensorCount = this.#count('tensors', tensorsMax, 24);
    const valueCount = this.#count('metadata values', valuesMax, 13);
    const metadata = new Map<string, GgufValue>();
    const types = new Map<string, number>();
    for (let i = 0; i < valueCount; i++) {
      const name = this.#string();
      if (metadata.has(name)) throw this.#damaged(`has ${JSON.stringify(name.slice(0, 80))} twice`);
      const type = this.#u32();
      types.set(name, type);
      metadata.set(name, this.#value(type, 0));
    }
    const tensors: GgufTensor[] = [];
    for (let i = 0; i < tensorCount; i++) tensors.push(this.#tensor());
    return { metadata, types, tensors };
  }

  #tensor(): GgufTensor {
    const name = this.#string();
    const dimensions = this.#u32();
    if (dimensions > dimensionsMax)
      throw this.#damaged(`tensor ${name.slice(0, 80)} has ${dimensions} dimensions`);
    const sizes: number[] = [];
    for (let i = 0; i < dimensions; i++) sizes.push(this.#count('elements of a tensor', 2 ** 40, 0));
    return {
      name,
      shape: sizes.reverse(),
      type: this.#u32(),
      offset: this.#count('bytes before a tensor', 2 ** 48, 0),
    };
  }

  #value(type: number, depth: number): GgufValue {
    if (type === STRING) return this.#string();
    if (type === ARRAY) return this.#array(depth + 1);
    const at = this.#take(leastBytes[type] ?? 0);
    const view = this.#view;
    switch (type) {
      case 0:
        return view.getUint8(at);
      case 1:
        return view.getInt8(at);
      case 2:
        return view.getUint16(at, true);
      case 3:
        return view.getInt16(at, true);
      case 4:
        return view.getUint32(at, true);
      case 5:
        return view.getInt32(at, true);
      case 6:
        return view.getFloat32(at, true);
      case 7:
        return view.getUint8(at) !== 0;
      case 10:
        return Number(view.getBigUint64(at, true));
      case 11:
        return Number(view.getBigInt64(at, true));
      case 12:
        return view.getFloat64(at, true);
      default:
        throw this.#damaged(`has a value of the unknown type ${type}`);
    }
  }

  #array(depth: number): readonly GgufValue[] {
    if (depth > arrayDepthMax) throw this.#damaged(`nests arrays more than ${arrayDepthMax} deep`);
    const type = this.#u32();
    const count = this.#count('elements of an array', elementsMax, leastBytes[type] ?? 1);
    this.#elements += count;
    if (this.#elements > elementsMax)
      throw this.#damaged(`has more than ${elementsMax} elements in its arrays`);
    const values: GgufValue[] = [];
    for (let i = 0; i < count; i++) values.push(this.#value(type, depth));
    return values;
  }

  #string(): string {
    const length = this.#count('bytes of a text', headerBytesMax, 1);
    const at = this.#take(length);
    return new TextDecoder().decode(this.#bytes.subarray(at, at + length));
  }

  #u32(): number {
    const at = this.#take(4);
    return this.#view.getUint32(at, true);
  }

  /** @param bytes least bytes that each of them takes in the header */
  #count(what: string, max: number, bytes: number): number {
    const at = this.#take(8);
    const count = Number(this.#view.getBigUint64(at, true));
    if (count > max) throw this.#damaged(`has a count of ${count} ${what}, more than ${max}`);
    if (count * bytes > this.#file.size - this.at) throw this.#damaged(`ends within its header`);
    return count;
  }

  #take(bytes: number): number {
    const { at } = this;
    const end = at + bytes;
    if (end > this.#bytes.length) this.#grow(end);
    this.at = end;
    return at;
  }

  #grow(end: number): void {
    if (end > this.#file.size) throw this.#damaged('ends within its header');
    if (end > headerBytesMax) throw this.#damaged(`has a header of more than ${headerBytesMax} bytes`);
    const wanted = Math.max(end, 2 * this.#bytes.length);
    this.#bytes = this.#file.read(0, Math.min(wanted, headerBytesMax, this.#file.size));
    this.#view = new DataView(this.#bytes.buffer);
  }

  #damaged(problem: string): Error {
    return checkpointError(this.#file.path, problem, 'Give a whole GGUF file.');
  }
}
