/**
 * Safetensors: eight bytes with the length of a JSON header, the header with shape, type and range of each
 * tensor, then the bytes.
 *
 *     0            8                    8 + length
 *     +------------+--------------------+---------------------------+
 *     | length u64 | {"name": {...}, …} | bytes; ranges count here  |
 *     +------------+--------------------+---------------------------+
 */

import { fromBf16, fromF16, fromF32 } from './numberFormats.ts';
import { OpenedBytes } from './openedBytes.ts';
import { checkpointError, elementsOf, type TensorSource } from './tensorSource.ts';

const headerBytesMax = 100_000_000;
const formats = {
  F32: { bytes: 4, read: fromF32 },
  F16: { bytes: 2, read: fromF16 },
  BF16: { bytes: 2, read: fromBf16 },
} as const;
type Format = keyof typeof formats;

interface Entry {
  readonly format: Format;
  readonly shape: readonly number[];
  readonly at: number;
  readonly bytes: number;
}

export class SafetensorsFile implements TensorSource {
  readonly path: string;
  readonly #file: OpenedBytes;
  readonly #entries: ReadonlyMap<string, Entry>;

  /** @throws TKV_INPUT for a header that is not one, and for ranges that do not fit shapes or the file */
  constructor(path: string) {
    this.path = path;
    this.#file = new OpenedBytes(path);
    try {
      this.#entries = entriesOf(this.#file);
    } catch (error) {
      this.close();
      throw error;
    }
  }

  get names(): readonly string[] {
    return [...this.#entries.keys()];
  }

  shape(name: string): readonly number[] | undefined {
    return this.#entries.get(name)?.shape;
  }

  read(name: string): Float32Array {
    const entry = this.#entries.get(name);
    if (entry === undefined)
      throw checkpointError(this.path, `has no tensor ${name}`, 'Fetch it again.', name);
    return formats[entry.format].read(this.#file.read(entry.at, entry.bytes));
  }

  close(): void {
    this.#file.close();
  }
}

function entriesOf(file: OpenedBytes): Map<string, Entry> {
  const damaged = (problem: string): Error =>
    checkpointError(file.path, problem, 'Give a whole safetensors file.');
  if (file.size < 8) throw damaged(`has ${file.size} bytes, too few for a header`);
  const length = Number(new DataView(file.read(0, 8).buffer).getBigUint64(0, true));
  if (length > headerBytesMax || 8 + length > file.size) {
    throw damaged(`says that its header has ${length} bytes, but the file has ${file.size}`);
  }
  let header: unknown;
  try {
    header = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(file.read(8, length)));
  } catch {
    throw damaged('has a header that is not JSON');
  }
  if (typeof header !== 'object' || header === null) throw damaged('has a header that is no JSON object');
  const entries = new Map<string, Entry>();
  for (const [name, value] of Object.entries(header)) {
    if (name !== '__metadata__') entries.set(name, entryOf(file, name, value, 8 + length));
  }
  return entries;
}

function entryOf(file: OpenedBytes, name: string, value: unknown, dataAt: number): Entry {
  const damaged = (problem: string, remedy = 'Give a whole safetensors file.'): Error =>
    checkpointError(file.path, `tensor ${name} ${problem}`, remedy, name);
  const { dtype, shape, data_offsets: range } = (value ?? {}) as Record<string, unknown>;
  if (!isSizes(shape)) throw damaged('has no shape');
  if (!isSizes(range) || range.length !== 2) throw damaged('has no range of bytes');
  if (typeof dtype !== 'string' || !Object.hasOwn(formats, dtype)) {
    const known = Object.keys(formats).join(', ');
    throw damaged(`is stored as ${String(dtype)}`, `Convert it to one of ${known}.`);
  }
  const format = dtype as Format; // one of the keys, as was just checked
  const [from, to] = range;
  const bytes = elementsOf(shape) * formats[format].bytes;
  if (to - from !== bytes) {
    throw damaged(`has ${to - from} bytes, but its shape [${shape.join(', ')}] takes ${bytes}`);
  }
  if (dataAt + to > file.size) throw damaged(`ends at byte ${dataAt + to} of a file of ${file.size}`);
  return { format, shape, at: dataAt + from, bytes };
}

function isSizes(value: unknown): value is number[] {
  return Array.isArray(value) && value.every((size) => Number.isSafeInteger(size) && size >= 0);
}
