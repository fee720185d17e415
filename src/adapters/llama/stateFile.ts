/**
 * The file in which llama.cpp gives the state of one sequence, taken apart into rows of KV and put together again. So a state is
 * stored as blocks of tokens: prefixes share them, and a longer state adds its new tokens alone.
 *
 *     magic  version  count  tokens ...           what `saveStateToFile` writes before the KV
 *     streams                                      one for each sequence of the context, or one for all
 *     for each stream: cells, and where there are any:
 *         position  1  sequence                    for each cell
 *         is V transposed   layers
 *         type  rowBytes  rows of all cells        K of each layer
 *         type  rowBytes  rows of all cells        V of each layer; transposed: type  elementBytes  elements  columns of all cells
 *
 * All sizes are read from the file and must come to its length: a file of another build is refused, never guessed. In a block the
 * bytes lie as `[layer][K, V][token]`, in positions' order, whatever cells and streams the context had.
 */

import { TierKVError } from '../../runtime/errors.ts';

/** 'ggsq' in the byte order of the file. */
const MAGIC = 0x67677371;
const HEAD_BYTES = 12;

/** Shape of a row of one layer's K, or V. */
interface RowShape {
  /** How ggml numbers the types of elements. */
  readonly type: number;
  readonly rowBytes: number;
  /** Where V lies transposed; 0 elsewhere. */
  readonly elementBytes: number;
}

/** The parts that all states of one context have in common. */
export interface StateShape {
  readonly version: number;
  readonly streams: number;
  readonly isTransposed: boolean;
  readonly keys: readonly RowShape[];
  readonly values: readonly RowShape[];
}

/** A state in a file's bytes. */
interface LlamaState {
  readonly shape: StateShape;
  readonly tokens: Uint32Array;
  readonly bytes: Buffer;
  /** The cell that holds each position. */
  readonly cells: Uint32Array;
  /** Where rows of each layer's K begin, then those of each layer's V. */
  readonly starts: readonly number[];
}

/** Bytes of one token over all layers. */
export function tokenBytes({ keys, values }: StateShape): number {
  return [...keys, ...values].reduce((sum, { rowBytes }) => sum + rowBytes, 0);
}

/** The parts of a shape that determine the meaning of a row. */
export function rowsText({ version, keys, values }: StateShape): string {
  const text = (rows: readonly RowShape[]): string =>
    rows.map(({ type, rowBytes }) => `${type}:${rowBytes}`).join(' ');
  return `${version} k ${text(keys)} v ${text(values)}`;
}

class Reader {
  readonly bytes: Buffer;
  at = 0;

  constructor(bytes: Buffer) {
    this.bytes = bytes;
  }

  u32(): number {
    this.#need(4);
    this.at += 4;
    return this.bytes.readUInt32LE(this.at - 4);
  }

  u64(): number {
    this.#need(8);
    this.at += 8;
    const value = this.bytes.readBigUInt64LE(this.at - 8);
    if (value > 2n ** 40n) throw foreign(`has a row of ${value} bytes`);
    return Number(value);
  }

  skip(bytes: number): void {
    this.#need(bytes);
    this.at += bytes;
  }

  #need(bytes: number): void {
    if (this.at + bytes > this.bytes.length) throw foreign(`ends at ${this.bytes.length} bytes`);
  }
}

/** @throws TKV_MISMATCH for a file whose parts do not come to its length */
export function readState(bytes: Buffer): LlamaState {
  const read = new Reader(bytes);
  const magic = read.u32();
  if (magic !== MAGIC) throw foreign(`begins with ${magic.toString(16)}`);
  const version = read.u32();
  const count = read.u32();
  read.skip(4 * count);
  const tokens = Uint32Array.from({ length: count }, (_, i) => bytes.readUInt32LE(HEAD_BYTES + 4 * i));
  const streams = read.u32();
  let found: Omit<LlamaState, 'tokens' | 'bytes'> | undefined;
  for (let stream = 0; stream < streams; stream++) {
    const cells = read.u32();
    if (cells === 0) continue;
    if (found !== undefined) throw foreign('has a sequence in two streams');
    found = readStream(read, cells, { version, streams });
  }
  if (read.at !== bytes.length) throw foreign(`has ${bytes.length - read.at} bytes behind its end`);
  if (found === undefined || found.cells.length !== count)
    throw foreign(`has ${count} tokens, and ${found?.cells.length ?? 0} cells`);
  return { ...found, tokens, bytes };
}

function readStream(
  read: Reader,
  count: number,
  head: Pick<StateShape, 'version' | 'streams'>,
): Omit<LlamaState, 'tokens' | 'bytes'> {
  const cells = new Uint32Array(count).fill(count);
  for (let cell = 0; cell < count; cell++) {
    const position = read.u32();
    if (position >= count || cells[position] !== count)
      throw foreign(`has a cell at position ${position} among ${count}`);
    cells[position] = cell;
    const sequences = read.u32();
    if (sequences !== 1) throw foreign(`has a cell of ${sequences} sequences`);
    read.skip(4);
  }
  const transposed = read.u32();
  if (transposed > 1) throw foreign(`says ${transposed} of its V`);
  const layers = read.u32();
  if (layers === 0 || layers > 4096) throw foreign(`has ${layers} layers`);
  const starts: number[] = [];
  const rows = (isTransposed: boolean): RowShape[] =>
    Array.from({ length: layers }, () => {
      const type = read.u32();
      const elementBytes = isTransposed ? read.u32() : 0;
      const rowBytes = isTransposed ? elementBytes * read.u32() : read.u64();
      if (rowBytes === 0) throw foreign('has an empty row');
      starts.push(read.at);
      read.skip(count * rowBytes);
      return { type, rowBytes, elementBytes };
    });
  const keys = rows(false);
  const values = rows(transposed === 1);
  return { shape: { ...head, isTransposed: transposed === 1, keys, values }, cells, starts };
}

/** Copies the rows of `count` tokens from position `from` on into the bytes of a block. */
export function copyRows(
  { shape, bytes, cells, starts }: LlamaState,
  from: number,
  count: number,
  block: Uint8Array,
): void {
  const layers = shape.keys.length;
  let at = 0;
  for (let layer = 0; layer < layers; layer++) {
    for (const [rows, start] of [
      [shape.keys[layer], starts[layer]],
      [shape.values[layer], starts[layers + layer]],
    ] as const) {
      for (let i = 0; i < count; i++, at += rows.rowBytes) {
        const cell = cells[from + i];
        if (rows.elementBytes === 0) {
          const row = start + cell * rows.rowBytes;
          block.set(bytes.subarray(row, row + rows.rowBytes), at);
        } else copyColumn(bytes, start, cells.length, cell, rows, block, at);
      }
    }
  }
}

function copyColumn(
  bytes: Buffer,
  start: number,
  cells: number,
  cell: number,
  { rowBytes, elementBytes }: RowShape,
  block: Uint8Array,
  at: number,
): void {
  for (let done = 0, element = 0; done < rowBytes; done += elementBytes, element++) {
    const from = start + (element * cells + cell) * elementBytes;
    for (let i = 0; i < elementBytes; i++) block[at + done + i] = bytes[from + i];
  }
}

/** A state of `tokens`, to be filled by `put` block by block. */
export class StateWriter {
  readonly bytes: Buffer;
  readonly #shape: StateShape;
  readonly #count: number;
  readonly #starts: number[] = [];

  constructor(shape: StateShape, tokens: ArrayLike<number>) {
    const { length } = tokens;
    const { keys, values, streams, isTransposed } = shape;
    const layers = keys.length;
    const heads = keys.length * 12 + values.length * 12;
    const whole =
      HEAD_BYTES + 4 * length + 4 + 4 * streams + 12 * length + 8 + heads + length * tokenBytes(shape);
    const bytes = Buffer.alloc(whole);
    let at = 0;
    const u32 = (value: number): void => {
      at = bytes.writeUInt32LE(value, at);
    };
    for (const value of [MAGIC, shape.version, length]) u32(value);
    for (let i = 0; i < length; i++) u32(tokens[i]);
    u32(streams);
    u32(length);
    for (let i = 0; i < length; i++) for (const value of [i, 1, 0]) u32(value);
    u32(isTransposed ? 1 : 0);
    u32(layers);
    for (const { type, rowBytes, elementBytes } of [...keys, ...values]) {
      u32(type);
      if (elementBytes === 0) at = bytes.writeBigUInt64LE(BigInt(rowBytes), at);
      else for (const value of [elementBytes, rowBytes / elementBytes]) u32(value);
      this.#starts.push(at);
      at += length * rowBytes;
    }
    // the streams of other sequences hold nothing: the rest of the bytes is zero
    this.bytes = bytes;
    this.#shape = shape;
    this.#count = length;
  }

  /** @param block bytes of `count` tokens from position `from` on */
  put(from: number, count: number, block: Uint8Array): void {
    const { keys, values } = this.#shape;
    let at = 0;
    for (let layer = 0; layer < keys.length; layer++) {
      for (const [rows, start] of [
        [keys[layer], this.#starts[layer]],
        [values[layer], this.#starts[keys.length + layer]],
      ] as const) {
        if (rows.elementBytes === 0) {
          this.bytes.set(block.subarray(at, at + count * rows.rowBytes), start + from * rows.rowBytes);
          at += count * rows.rowBytes;
          continue;
        }
        for (let i = 0; i < count; i++, at += rows.rowBytes)
          this.#putColumn(start, from + i, rows, block, at);
      }
    }
  }

  #putColumn(start: number, cell: number, rows: RowShape, block: Uint8Array, at: number): void {
    const { rowBytes, elementBytes } = rows;
    for (let done = 0, element = 0; done < rowBytes; done += elementBytes, element++) {
      const to = start + (element * this.#count + cell) * elementBytes;
      for (let i = 0; i < elementBytes; i++) this.bytes[to + i] = block[at + done + i];
    }
  }
}

function foreign(problem: string): TierKVError {
  return new TierKVError(
    'TKV_MISMATCH',
    `llama.cpp gave a state that ${problem}, which this version of tierkv does not read. Models whose layers are recurrent, or ` +
      'see a window of tokens, have such states. Use another model, or a version of node-llama-cpp that was tried.',
    { field: 'model' },
  );
}
