/**
 * The binary format of WebAssembly modules: reads the parts that a policy may have, refuses the others with
 * a remedy, and writes bytes for the rewriter.
 */

import { PolicyError } from '../program.ts';

// Bytes: numbers in LEB128, names, lengths.

/** @throws PolicyError compile, always */
export function refuse(problem: string, at?: number): never {
  const place = at === undefined ? '' : ` at byte ${at}`;
  throw new PolicyError('compile', `the module${place} ${problem}`);
}

/** The beginning of a name of the module as an error may have it: on one line. */
function shown(name: string): string {
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

  /** Bytes that were read since `start`. */
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

// The parts of a WebAssembly module that a policy may have. Numbers and names as the binary format has them.

/** Numbers only: a policy has no use for vectors and references. */
export const valueTypes: Readonly<Record<number, string>> = {
  127: 'i32',
  126: 'i64',
  125: 'f32',
  124: 'f64',
};

export const I32 = 0x7f;
export const F32 = 0x7d;
export const F64 = 0x7c;

export const sections = {
  custom: 0,
  type: 1,
  import: 2,
  function: 3,
  table: 4,
  memory: 5,
  global: 6,
  export: 7,
  start: 8,
  element: 9,
  code: 10,
  data: 11,
  dataCount: 12,
} as const;

export const exportKinds = { function: 0, table: 1, memory: 2, global: 3 } as const;

export interface FunctionType {
  readonly params: readonly number[];
  readonly results: readonly number[];
}

interface GlobalVariable {
  readonly type: number;
  readonly isMutable: boolean;
  /** Its constant expression, as it stands in the module. */
  readonly initial: Uint8Array;
}

export interface FunctionBody {
  readonly locals: readonly { readonly count: number; readonly type: number }[];
  /** Instructions with the last `end`. */
  readonly code: Uint8Array;
  /** Where they begin in the module. */
  readonly at: number;
}

/** Imports of the host's own modules; a policy has none. */
interface ModuleImports {
  /** Functions among them, which have the first numbers. */
  readonly functions: number;
  /** Whether its memory is one of them. */
  readonly memory: boolean;
  /** Content of the section, taken over as it is. */
  readonly section: Uint8Array | null;
}

export interface ModuleParts {
  readonly imports: ModuleImports;
  readonly types: readonly FunctionType[];
  /** Type of each function, imported functions first. */
  readonly functions: readonly number[];
  readonly bodies: readonly FunctionBody[];
  readonly globals: readonly GlobalVariable[];
  /** Pages of 64 KiB. */
  readonly memory: { readonly min: number; readonly max: number | null } | null;
  readonly exports: readonly { readonly name: string; readonly kind: number; readonly index: number }[];
  readonly start: number | null;
  /** Contents of these sections, taken over as they are. */
  readonly tables: Uint8Array | null;
  readonly elements: Uint8Array | null;
  readonly data: Uint8Array | null;
}

// Takes a module apart, as the binary format of WebAssembly 1.0 has it, with several results and signed
// extensions. What a policy may not have is refused here with its remedy: imports, threads, passive segments,
// references. https://webassembly.github.io/spec/core/binary/modules.html

/** No policy needs more, and what compiles it must not take long. */
const MAX_BYTES = 1 << 20;
const MAX_FUNCTIONS = 10_000;
const MAX_TABLE = 10_000;

/**
 * @param mayImport whether it is a module of the host's own, which may import functions and its memory
 * @throws PolicyError compile
 */
export function parseModule(bytes: Uint8Array, mayImport: boolean = false): ModuleParts {
  if (bytes.length > MAX_BYTES) refuse(`has ${bytes.length} bytes. A policy has at most ${MAX_BYTES}`);
  const reader = new ByteReader(bytes);
  const isModule = [0, 0x61, 0x73, 0x6d, 1, 0, 0, 0].every((byte, i) => bytes[i] === byte);
  if (!isModule) refuse('is not WebAssembly 1. Give the bytes of a .wasm file in base64');
  reader.at = 8;
  const found = new Map<number, ByteReader>();
  while (!reader.isAtEnd) {
    const at = reader.at;
    const id = reader.byte();
    const content = reader.part(reader.unsigned());
    if (id === sections.custom || id === sections.dataCount) continue;
    if (id > sections.dataCount) refuse(`has a section of kind ${id}, which no policy needs`, at);
    if (found.has(id)) refuse(`has two sections of kind ${id}`, at);
    found.set(id, content);
  }
  const list = <T>(id: number, read: (from: ByteReader) => T): T[] => {
    const content = found.get(id);
    if (content === undefined) return [];
    const items = content.list(() => read(content));
    if (!content.isAtEnd) refuse('has a section with too many bytes', content.at);
    return items;
  };
  const imported = list(sections.import, (from) => readImport(from, mayImport));
  const types = list(sections.type, readType);
  const own = list(sections.function, (from) => from.unsigned());
  const imports = {
    functions: imported.filter((type) => type !== null).length,
    memory: imported.includes(null),
    section: found.get(sections.import)?.whole() ?? null,
  };
  const functions = [...imported.filter((type) => type !== null), ...own];
  if (functions.length > MAX_FUNCTIONS) refuse(`has ${functions.length} functions, over ${MAX_FUNCTIONS}`);
  if (functions.some((type) => type >= types.length)) refuse('has a function without a type');
  const [memory = null, second] = list(sections.memory, readMemory);
  if (second !== undefined) refuse('has two memories. A policy has one');
  const bodies = list(sections.code, readBody);
  if (bodies.length !== own.length) refuse('has a function without a body');
  const start = found.get(sections.start)?.unsigned() ?? null;
  return {
    imports,
    types,
    functions,
    bodies,
    memory,
    globals: list(sections.global, readGlobal),
    exports: list(sections.export, readExport),
    start,
    tables: raw(found.get(sections.table), readTable),
    elements: raw(found.get(sections.element), readElements),
    data: raw(found.get(sections.data), readData),
  };
}

/** @returns the type of a function, null for a memory */
function readImport(from: ByteReader, mayImport: boolean): number | null {
  const names = `${from.name()}.${from.name()}`;
  if (!mayImport) {
    refuse(`imports ${shown(names)}. A policy imports nothing; in AssemblyScript compile with --use abort=`);
  }
  const kind = from.byte();
  if (kind === exportKinds.function) return from.unsigned();
  if (kind !== exportKinds.memory) refuse(`imports ${shown(names)}, no function or memory`, from.at);
  readMemory(from);
  return null;
}

/** Reads a section for what it may not have, and gives its bytes. */
function raw(content: ByteReader | undefined, read: (from: ByteReader) => void): Uint8Array | null {
  if (content === undefined) return null;
  const start = content.at;
  content.list(() => read(content));
  if (!content.isAtEnd) refuse('has a section with too many bytes', content.at);
  return content.since(start);
}

function readValueType(from: ByteReader): number {
  const type = from.byte();
  return type in valueTypes ? type : refuse('has values other than i32, i64, f32 and f64', from.at - 1);
}

function readType(from: ByteReader): FunctionType {
  if (from.byte() !== 0x60) refuse('has a type other than of a function', from.at - 1);
  return {
    params: from.list(() => readValueType(from)),
    results: from.list(() => readValueType(from)),
  };
}

function readLimits(from: ByteReader): { min: number; max: number | null } {
  const flags = from.byte();
  if (flags > 1) refuse('has shared memory or memory of 64 bits. Compile without threads', from.at - 1);
  const min = from.unsigned();
  return { min, max: flags === 1 ? from.unsigned() : null };
}

function readMemory(from: ByteReader): { min: number; max: number | null } {
  return readLimits(from);
}

function readTable(from: ByteReader): void {
  if (from.byte() !== 0x70) refuse('has a table of other things than functions', from.at - 1);
  const { min } = readLimits(from);
  if (min > MAX_TABLE) refuse(`has a table of ${min} functions, over ${MAX_TABLE}`, from.at);
}

/** `global.get` and constants. */
const constants = new Set([0x23, 0x41, 0x42, 0x43, 0x44]);

function readConstant(from: ByteReader): Uint8Array {
  const start = from.at;
  const opcode = from.byte();
  if (!constants.has(opcode)) refuse('has an initial value that is not constant', start);
  if (opcode === 0x43) from.take(4);
  else if (opcode === 0x44) from.take(8);
  else from.skipNumber();
  if (from.byte() !== 0x0b) refuse('has an initial value that is computed', start);
  return from.since(start);
}

function readGlobal(from: ByteReader): GlobalVariable {
  const type = readValueType(from);
  const isMutable = from.byte() === 1;
  return { type, isMutable, initial: readConstant(from) };
}

function readExport(from: ByteReader): ModuleParts['exports'][number] {
  const name = from.name();
  const kind = from.byte();
  if (kind > exportKinds.global) refuse(`exports ${shown(name)}, which is of an unknown kind`, from.at);
  return { name, kind, index: from.unsigned() };
}

function readElements(from: ByteReader): void {
  if (from.byte() !== 0) refuse('has passive elements. Compile without reference types', from.at - 1);
  readConstant(from);
  from.list(() => from.unsigned());
}

function readData(from: ByteReader): void {
  if (from.byte() !== 0) refuse('has passive data. Compile without threads', from.at - 1);
  readConstant(from);
  from.take(from.unsigned());
}

function readBody(from: ByteReader): FunctionBody {
  const body = from.part(from.unsigned());
  const locals = body.list(() => ({ count: body.unsigned(), type: readValueType(body) }));
  const at = body.at;
  return { locals, code: body.take(body.end - at), at };
}
