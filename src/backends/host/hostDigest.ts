/**
 * The digest of bytes in host memory. It is computed in WebAssembly with SIMD if that runs and agrees with
 * `runtime/digest.ts`, else by `runtime/digest.ts`. Both give the same answer.
 *
 * A part of a unit, from word `firstWord` on, has a digest of its own. The digest of the unit is the
 * lane-wise sum over its parts, so a unit that arrives in several I/Os is digested as they end.
 */

import { type Digest, digestWordsFrom } from '../../runtime/digest.ts';

const memories = new WeakMap<ArrayBufferLike, WasmMemory>();

/** Zeroed memory of at least `bytes`, not yet backed by pages; undefined if it cannot be allocated. */
export function wasmBytes(bytes: number): ArrayBuffer | undefined {
  if (wasm === undefined || bytes > WASM_MEMORY_BYTES_MAX) return undefined;
  const pages = Math.ceil(bytes / WASM_PAGE_BYTES);
  try {
    const memory = new wasm.Memory({ initial: pages, maximum: pages });
    memories.set(memory.buffer, memory);
    return memory.buffer;
  } catch (cause) {
    if (cause instanceof RangeError) return undefined;
    throw cause;
  }
}

/** The WebAssembly memory of the buffer; undefined if `wasmBytes` did not make it. */
export function memoryOf(buffer: ArrayBufferLike): WasmMemory | undefined {
  return memories.get(buffer);
}

// ---- the part of the `WebAssembly` global that neither the ES library nor @types/node declares

interface WasmMemory {
  readonly buffer: ArrayBuffer;
}

interface WebAssemblyLike {
  readonly Memory: new (descriptor: { readonly initial: number; readonly maximum: number }) => WasmMemory;
  readonly Module: new (bytes: Uint8Array) => object;
  readonly Instance: new (module: object, imports: object) => { readonly exports: object };
}

const wasm: WebAssemblyLike | undefined = (globalThis as { WebAssembly?: WebAssemblyLike }).WebAssembly;

const WASM_PAGE_BYTES = 65536;
/** Most bytes of a memory: one page below 4 GiB, so that the end of every range is a 32-bit address. */
const WASM_MEMORY_BYTES_MAX: number = 65535 * WASM_PAGE_BYTES;

type Digester = (bytes: Uint8Array, firstWord: number) => Digest;

type DigestEngine = 'wasm-simd' | 'javascript';

function choose(): { readonly engine: DigestEngine; readonly digest: Digester } {
  const simd = simdDigester();
  return simd !== undefined && agrees(simd)
    ? { engine: 'wasm-simd', digest: simd }
    : { engine: 'javascript', digest: portableDigest };
}

/** The engine in use. */
export function digestEngine(): DigestEngine {
  return chosen.engine;
}

/** Digest of `bytes`, which are a unit's words from `firstWord` on. The length must be a multiple of 4. */
export function hostDigest(bytes: Uint8Array, firstWord = 0): Digest {
  return chosen.digest(bytes, firstWord);
}

/** Like `hostDigest`, without WebAssembly. */
export function portableDigest(bytes: Uint8Array, firstWord: number): Digest {
  const aligned = bytes.byteOffset % 4 === 0 ? bytes : bytes.slice();
  const words = new Uint32Array(aligned.buffer, aligned.byteOffset, aligned.byteLength / 4);
  return digestWordsFrom(words, firstWord);
}

/** Like `hostDigest`, in WebAssembly; undefined if this process does not run it. */
export function simdDigester(): Digester | undefined {
  let copying: Digester;
  try {
    copying = copyingDigest();
  } catch {
    return undefined; // WebAssembly or its SIMD is missing
  }
  return (bytes, firstWord) => {
    const length = wholeSteps(bytes.byteLength);
    if (length === 0) return portableDigest(bytes, firstWord);
    const inPlace = inPlaceDigest(bytes.buffer);
    const whole = length === bytes.byteLength ? bytes : bytes.subarray(0, length);
    const found =
      inPlace === undefined ? copying(whole, firstWord) : inPlace(bytes.byteOffset, length, firstWord);
    if (whole === bytes) return found;
    const rest = portableDigest(bytes.slice(length), firstWord + length / 4);
    return { lo: (found.lo + rest.lo) >>> 0, hi: (found.hi + rest.hi) >>> 0 };
  };
}

/** Whether `digest` agrees with the definition, over several chunks and at both ends of the loop. */
function agrees(digest: Digester): boolean {
  const words = new Uint32Array(CHUNK_BYTES / 2 + 13);
  for (let i = 0; i < words.length; i++) words[i] = Math.imul(i + 1, 0x2c1b3c6d) ^ (i << 7);
  const bytes = new Uint8Array(words.buffer);
  return [0, 4, 28, 32, 36, CHUNK_BYTES, bytes.byteLength].every((length) => {
    const part = bytes.subarray(0, length);
    const found = digest(part, length);
    const wanted = portableDigest(part, length);
    return found.lo === wanted.lo && found.hi === wanted.hi;
  });
}

// ---- instances of the module, one for each memory, made when the memory is first digested

/** Digest of `bytes` bytes (whole steps, above 0) at `at`, which are a unit's words from `first` on. */
type InPlaceDigest = (at: number, bytes: number, first: number) => Digest;

interface DigestExports {
  readonly lo: (at: number, end: number, first: number) => number;
  readonly hi: () => number;
}

/** Bytes of a chunk: a chunk and its source fit into a core's first-level cache together. */
export const CHUNK_BYTES = 16384;

const instances = new WeakMap<ArrayBufferLike, InPlaceDigest>();
let compiled: object | undefined;

/**
 * The digest on the buffer's memory; undefined if the buffer is not a WebAssembly memory.
 * @throws without SIMD
 */
function inPlaceDigest(buffer: ArrayBufferLike): InPlaceDigest | undefined {
  const known = instances.get(buffer);
  if (known !== undefined) return known;
  const memory = memoryOf(buffer);
  if (memory === undefined) return undefined;
  const digest = digestOn(memory);
  instances.set(buffer, digest);
  return digest;
}

/** @throws without WebAssembly or its SIMD */
function digestOn(memory: WasmMemory): InPlaceDigest {
  compiled ??= new wasm!.Module(simdModule());
  const { lo, hi } = new wasm!.Instance(compiled, { e: { m: memory } }).exports as DigestExports;
  return (at, bytes, first) => ({ lo: lo(at, at + bytes, first) >>> 0, hi: hi() >>> 0 });
}

/** The digest of bytes in any memory, through chunks in a WebAssembly memory. @throws without one */
function copyingDigest(): (bytes: Uint8Array, first: number) => Digest {
  const memory = wasmBytes(CHUNK_BYTES);
  if (memory === undefined) throw new Error('a WebAssembly memory cannot be allocated');
  const chunk = new Uint8Array(memory);
  const digest = digestOn(memoryOf(memory)!);
  return (bytes, first) => {
    if (bytes.byteLength <= CHUNK_BYTES) {
      chunk.set(bytes);
      return digest(0, bytes.byteLength, first);
    }
    let lo = 0;
    let hi = 0;
    for (let from = 0; from < bytes.byteLength; from += CHUNK_BYTES) {
      const part = bytes.subarray(from, from + CHUNK_BYTES);
      chunk.set(part);
      const found = digest(0, part.byteLength, first + from / 4);
      lo += found.lo;
      hi += found.hi;
    }
    return { lo: lo >>> 0, hi: hi >>> 0 };
  };
}

/** Bytes, of `bytes`, that go through the loop: whole steps. */
function wholeSteps(bytes: number): number {
  return bytes - (bytes % STEP_BYTES);
}

// ---- the module: the digest's loop, four words an instruction
//
// It is assembled here from named instructions, so that no build step is needed, and works in place on the
// memory that is imported as `e.m`.
//
// `lo(at, end, first)` digests the bytes in [at, end), which are a unit's words from `first` on, and returns
// `lo`; `hi()` returns `hi` of the same. Lane j of a vector holds each fourth word. Of each vector w it takes
// x = spread(w ^ position), adds x to S and then S to T, and moves the positions on by four words: S is the
// sum of the n x, T of all sums so far, which holds x[k] n - k times. The word 4 k + j of the part has the
// weight 2 (first + 4 k + j) + 1, so that
//
//     lo = sum over the lanes of S        hi = sum over the lanes of 8 (n S - T) + (2 (first + j) + 1) S

/** Bytes that the loop takes a turn. `end - at` must be a multiple of it, above 0. */
export const STEP_BYTES = 32;

type ModuleCode = readonly number[];

/** Unsigned LEB128, the integer format of WebAssembly. */
function leb(value: number): number[] {
  return value < 128 ? [value] : [(value & 127) | 128, ...leb(value >>> 7)];
}

function signedLeb(value: number): number[] {
  const byte = value & 127;
  const left = value >> 7;
  const last = (left === 0 && byte < 64) || (left === -1 && byte >= 64);
  return last ? [byte] : [byte | 128, ...signedLeb(left)];
}

const I32 = 0x7f;
const V128 = 0x7b;
const get = (local: number): ModuleCode => [0x20, local];
const set = (local: number): ModuleCode => [0x21, local];
const tee = (local: number): ModuleCode => [0x22, local];
const getHi: ModuleCode = [0x23, 0];
const setHi: ModuleCode = [0x24, 0];
const i32Const = (value: number): ModuleCode => [0x41, ...signedLeb(value | 0)];
const i32Add: ModuleCode = [0x6a];
const i32Subtract: ModuleCode = [0x6b];
const i32ShiftRight: ModuleCode = [0x76];
const i32Below: ModuleCode = [0x49];
const simd = (opcode: number, ...operands: number[]): ModuleCode => [0xfd, ...leb(opcode), ...operands];
const load = (offset: number): ModuleCode => simd(0x00, 4, ...leb(offset));
const lanes = (...words: number[]): ModuleCode => simd(0x0c, ...words.flatMap((word) => [word, 0, 0, 0]));
const splat: ModuleCode = simd(0x11);
const lane = (index: number): ModuleCode => simd(0x1b, index);
const xor: ModuleCode = simd(0x51);
const shiftLeft: ModuleCode = simd(0xab);
const shiftRight: ModuleCode = simd(0xad);
const add: ModuleCode = simd(0xae);
const subtract: ModuleCode = simd(0xb1);
const multiply: ModuleCode = simd(0xb5);

const [at, end, first, from] = [0, 1, 2, 3];
const [place, position, sum, sums, factor, stride, x] = [4, 5, 6, 7, 8, 9, 10];
const LOCALS: ModuleCode = [2, 1, I32, 7, V128];

function digestBody(): ModuleCode {
  const xorShift = (bits: number): ModuleCode => [
    ...tee(x),
    ...get(x),
    ...i32Const(bits),
    ...shiftRight,
    ...xor,
  ];
  const vector = (offset: number): ModuleCode => [
    ...[...get(at), ...load(offset), ...get(position), ...xor],
    ...[...xorShift(16), ...get(factor), ...multiply, ...xorShift(15)],
    ...[...get(sum), ...add, ...tee(sum), ...get(sums), ...add, ...set(sums)],
    ...[...get(position), ...get(stride), ...add, ...set(position)],
  ];
  const splatted = (value: ModuleCode, local: number): ModuleCode => [...value, ...splat, ...set(local)];
  const loop: ModuleCode = [
    ...Array.from({ length: STEP_BYTES / 16 }, (_, i) => vector(16 * i)).flat(),
    ...[...get(at), ...i32Const(STEP_BYTES), ...i32Add, ...tee(at), ...get(end), ...i32Below],
  ];
  const acrossLanes = (vectorOf: ModuleCode): ModuleCode => [
    ...[...vectorOf, ...tee(x), ...lane(0)],
    ...[1, 2, 3].flatMap((index) => [...get(x), ...lane(index), ...i32Add]),
  ];
  const vectors: ModuleCode = [...get(end), ...get(from), ...i32Subtract, ...i32Const(4), ...i32ShiftRight];
  const weighted: ModuleCode = [
    ...[...vectors, ...splat, ...get(sum), ...multiply, ...get(sums), ...subtract],
    ...[...i32Const(3), ...shiftLeft],
    ...[...get(place), ...i32Const(1), ...shiftLeft, ...lanes(1, 1, 1, 1), ...add, ...get(sum), ...multiply],
    ...add,
  ];
  return [
    ...[...get(at), ...set(from)],
    ...splatted(i32Const(0x21f0aaad), factor),
    ...splatted(i32Const(Math.imul(4, 0x9e3779b1)), stride),
    ...[...get(first), ...splat, ...lanes(0, 1, 2, 3), ...add, ...tee(place)],
    ...[...i32Const(0x9e3779b1), ...splat, ...multiply, ...set(position)],
    ...[0x03, 0x40, ...loop, 0x0d, 0x00, 0x0b], // loop, branch back while below
    ...[...acrossLanes(weighted), ...setHi],
    ...acrossLanes(get(sum)),
  ];
}

function named(name: string): ModuleCode {
  return [name.length, ...Array.from(name, (letter) => letter.charCodeAt(0))];
}

function simdModule(): Uint8Array<ArrayBuffer> {
  const section = (id: number, ...items: ModuleCode[]): ModuleCode => {
    const body = [...leb(items.length), ...items.flat()];
    return [id, ...leb(body.length), ...body];
  };
  const bodies: ModuleCode[] = [
    [...LOCALS, ...digestBody(), 0x0b],
    [0, ...getHi, 0x0b],
  ];
  const variable: ModuleCode = [I32, 1, ...i32Const(0), 0x0b];
  return Uint8Array.from([
    ...[0x00, 0x61, 0x73, 0x6d, 0x01, 0x00, 0x00, 0x00],
    ...section(1, [0x60, 3, I32, I32, I32, 1, I32], [0x60, 0, 1, I32]),
    ...section(2, [...named('e'), ...named('m'), 0x02, 0x00, 0]), // a memory of any size
    ...section(3, [0], [1]),
    ...section(6, variable),
    ...section(7, [...named('lo'), 0x00, 0], [...named('hi'), 0x00, 1]),
    ...section(10, ...bodies.map((body): ModuleCode => [...leb(body.length), ...body])),
  ]);
}

/** Chosen before an arena is opened, since the addresses of a process may be few; last, since it uses all of the above. */
const chosen = choose();
