/**
 * Safetensors: eight bytes with the length of a JSON header, the header with shape, type and range of each
 * tensor, then the bytes.
 *
 *     0            8                    8 + length
 *     +------------+--------------------+---------------------------+
 *     | length u64 | {"name": {...}, …} | bytes; ranges count here  |
 *     +------------+--------------------+---------------------------+
 */

import { jsonBounds, parseJsonBytes } from './jsonFiles.ts';
import { fromBf16, fromF16, fromF32 } from './numberFormats.ts';
import { OpenedBytes } from './openedBytes.ts';
import { checkpointError, elementsOf, type StoredTensors } from './tensorSource.ts';

const formats = {
  F32: { bytes: 4, read: fromF32 },
  F16: { bytes: 2, read: fromF16 },
  BF16: { bytes: 2, read: fromBf16 },
} as const;
type Format = keyof typeof formats;

interface Entry {
  /** Names an unknown format too: a tensor that is never read may have any. */
  readonly format: string;
  readonly shape: readonly number[];
  readonly at: number;
  readonly bytes: number;
}

export class SafetensorsFile implements StoredTensors {
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

  requireReadable(name: string): void {
    this.#formatOf(name);
  }

  read(name: string): Float32Array {
    const { format, at, bytes } = this.#formatOf(name);
    return format.read(this.#file.read(at, bytes));
  }

  #formatOf(name: string): { format: (typeof formats)[Format]; at: number; bytes: number } {
    const entry = this.#entries.get(name);
    if (entry === undefined)
      throw checkpointError(this.path, `has no tensor ${name}`, 'Fetch it again.', name);
    if (Object.hasOwn(formats, entry.format)) return { ...entry, format: formats[entry.format as Format] };
    const known = Object.keys(formats).join(', ');
    const problem = `tensor ${name} is stored as ${entry.format}`;
    throw checkpointError(this.path, problem, `Convert it to one of ${known}.`, name);
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
  if (8 + length > file.size) {
    throw damaged(`says that its header has ${length} bytes, but the file has ${file.size}`);
  }
  const { bytes: most } = jsonBounds.header;
  if (length > most) throw damaged(`says that its header has ${length} bytes, more than ${most}`);
  const remedy = 'Give a whole safetensors file.';
  const what = `${file.path} (header)`;
  const header = parseJsonBytes(file.read(8, length), jsonBounds.header, what, remedy);
  if (typeof header !== 'object' || header === null || Array.isArray(header)) {
    throw damaged('has a header that holds no JSON object');
  }
  const entries = new Map<string, Entry>();
  for (const [name, value] of Object.entries(header)) {
    if (name !== '__metadata__') entries.set(name, entryOf(file, name, value, 8 + length));
  }
  return entries;
}

function entryOf(file: OpenedBytes, name: string, value: unknown, dataAt: number): Entry {
  const damaged = (problem: string): Error =>
    checkpointError(file.path, `tensor ${name} ${problem}`, 'Give a whole safetensors file.', name);
  const { dtype, shape, data_offsets: range } = (value ?? {}) as Record<string, unknown>;
  if (!isSizes(shape)) throw damaged('has no shape');
  if (!isSizes(range) || range.length !== 2) throw damaged('has no range of bytes');
  if (typeof dtype !== 'string') throw damaged('has no dtype');
  const [from, to] = range;
  const isKnown = Object.hasOwn(formats, dtype);
  const bytes = isKnown ? elementsOf(shape) * formats[dtype as Format].bytes : to - from;
  if (to - from !== bytes || bytes < 0) {
    throw damaged(`has ${to - from} bytes, but its shape [${shape.join(', ')}] takes ${bytes}`);
  }
  if (dataAt + to > file.size) throw damaged(`ends at byte ${dataAt + to} of a file of ${file.size}`);
  return { format: dtype, shape, at: dataAt + from, bytes };
}

function isSizes(value: unknown): value is number[] {
  return Array.isArray(value) && value.every((size) => Number.isSafeInteger(size) && size >= 0);
}
