/**
 * Takes a module apart, as the binary format of WebAssembly 1.0 has it, with several results and signed
 * extensions. What a policy may not have is refused here with its remedy: imports, threads, passive segments,
 * references. https://webassembly.github.io/spec/core/binary/modules.html
 */

import { ByteReader, refuse, shown } from './bytes.ts';
import {
  exportKinds,
  type FunctionBody,
  type FunctionType,
  type GlobalVariable,
  type ModuleParts,
  sections,
  valueTypes,
} from './module.ts';

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
  if (!isModule) refuse('is none of WebAssembly 1. Give the bytes of a .wasm file in base64');
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
  if (from.byte() !== 0x60) refuse('has a type that is none of a function', from.at - 1);
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
  if (!constants.has(opcode)) refuse('has an initial value that is no constant', start);
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
