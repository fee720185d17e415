/**
 * The digest's loop as a WebAssembly module, four words an instruction, assembled here from named instructions so that no
 * build step stands between this text and what runs. The module owns its memory:
 *
 *     0          16         32         48        64
 *     +----------+----------+----------+---------+--------------------------+
 *     | position | S        | T        | unused  | bytes to digest, a chunk |      one 32-bit lane for each word
 *     +----------+----------+----------+---------+--------------------------+      of a vector of four
 *
 * `d(at, end)` walks the vectors in [at, end). Of each vector w it takes x = spread(w ^ position), adds x to S and then S to
 * T, and moves the positions on by four words: S is the sum of all x, T of all sums so far. See `hostDigest.ts` for how the
 * weighted sum follows from the two.
 */

export const CHUNK_START = 64;
export const CHUNK_BYTES = 32768;
const PAGES = 1;
const UNROLLED = 2;
/** The loop takes so many bytes a turn, and `end - at` is a multiple of it, above 0. */
export const STEP_BYTES: number = 16 * UNROLLED;

type Code = readonly number[];

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
const get = (local: number): Code => [0x20, local];
const set = (local: number): Code => [0x21, local];
const tee = (local: number): Code => [0x22, local];
const i32Const = (value: number): Code => [0x41, ...signedLeb(value | 0)];
const i32Add: Code = [0x6a];
const i32Below: Code = [0x49];
const simd = (opcode: number, ...operands: number[]): Code => [0xfd, ...leb(opcode), ...operands];
const load = (offset: number): Code => simd(0x00, 4, ...leb(offset));
const store = (offset: number): Code => simd(0x0b, 4, ...leb(offset));
const splat: Code = simd(0x11);
const xor: Code = simd(0x51);
const shiftRight: Code = simd(0xad);
const add: Code = simd(0xae);
const multiply: Code = simd(0xb5);

function digestBody(): Code {
  const [at, end, position, sum, sums, factor, stride, x] = [0, 1, 2, 3, 4, 5, 6, 7];
  const state: Code = i32Const(0);
  const xorShift = (bits: number): Code => [...tee(x), ...get(x), ...i32Const(bits), ...shiftRight, ...xor];
  const vector = (offset: number): Code => [
    ...get(at),
    ...load(offset),
    ...get(position),
    ...xor,
    ...xorShift(16),
    ...get(factor),
    ...multiply,
    ...xorShift(15),
    ...get(sum),
    ...add,
    ...tee(sum),
    ...get(sums),
    ...add,
    ...set(sums),
    ...get(position),
    ...get(stride),
    ...add,
    ...set(position),
  ];
  const splatted = (value: number, local: number): Code => [...i32Const(value), ...splat, ...set(local)];
  const read = (offset: number, local: number): Code => [...state, ...load(offset), ...set(local)];
  const write = (local: number, offset: number): Code => [...state, ...get(local), ...store(offset)];
  const advance: Code = [
    ...get(at),
    ...i32Const(STEP_BYTES),
    ...i32Add,
    ...tee(at),
    ...get(end),
    ...i32Below,
  ];
  const vectors = Array.from({ length: UNROLLED }, (_, i) => vector(16 * i)).flat();
  return [
    ...read(0, position),
    ...read(16, sum),
    ...read(32, sums),
    ...splatted(0x21f0aaad, factor),
    ...splatted(Math.imul(4, 0x9e3779b1), stride),
    ...[0x03, 0x40, ...vectors, ...advance, 0x0d, 0x00, 0x0b], // loop, branch back while below
    ...write(position, 0),
    ...write(sum, 16),
    ...write(sums, 32),
  ];
}

/** The module's bytes: it exports its memory as `m` and the function as `d`. */
export function simdModule(): Uint8Array<ArrayBuffer> {
  const section = (id: number, ...items: Code[]): Code => {
    const body = [...leb(items.length), ...items.flat()];
    return [id, ...leb(body.length), ...body];
  };
  const body: Code = [1, 6, V128, ...digestBody(), 0x0b];
  return Uint8Array.from([
    ...[0x00, 0x61, 0x73, 0x6d, 0x01, 0x00, 0x00, 0x00],
    ...section(1, [0x60, 2, I32, I32, 0]),
    ...section(3, [0]),
    ...section(5, [0, PAGES]),
    ...section(7, [1, 'm'.charCodeAt(0), 0x02, 0], [1, 'd'.charCodeAt(0), 0x00, 0]),
    ...section(10, [...leb(body.length), ...body]),
  ]);
}
