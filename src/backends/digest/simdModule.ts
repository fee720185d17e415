/**
 * The digest's loop as a WebAssembly module, four words an instruction, assembled here from named
 * instructions so that no build step stands between this text and what runs. It works in place, on a memory
 * that it is given as `e.m`.
 *
 * `lo(at, end, first)` digests the bytes in [at, end), which are a unit's words from `first` on, and returns
 * `lo`; `hi()` returns `hi` of the same. Lane j of a vector holds each fourth word. Of each vector w it takes
 * x = spread(w ^ position), adds x to S and then S to T, and moves the positions on by four words: S is the
 * sum of the n x, T of all sums so far, which holds x[k] n - k times. The word 4 k + j of the part has the
 * weight 2 (first + 4 k + j) + 1, so that
 *
 *     lo = sum over the lanes of S        hi = sum over the lanes of 8 (n S - T) + (2 (first + j) + 1) S
 */

/** The loop takes so many bytes a turn, and `end - at` is a multiple of it, above 0. */
export const STEP_BYTES = 32;

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
const getHi: Code = [0x23, 0];
const setHi: Code = [0x24, 0];
const i32Const = (value: number): Code => [0x41, ...signedLeb(value | 0)];
const i32Add: Code = [0x6a];
const i32Subtract: Code = [0x6b];
const i32ShiftRight: Code = [0x76];
const i32Below: Code = [0x49];
const simd = (opcode: number, ...operands: number[]): Code => [0xfd, ...leb(opcode), ...operands];
const load = (offset: number): Code => simd(0x00, 4, ...leb(offset));
const lanes = (...words: number[]): Code => simd(0x0c, ...words.flatMap((word) => [word, 0, 0, 0]));
const splat: Code = simd(0x11);
const lane = (index: number): Code => simd(0x1b, index);
const xor: Code = simd(0x51);
const shiftLeft: Code = simd(0xab);
const shiftRight: Code = simd(0xad);
const add: Code = simd(0xae);
const subtract: Code = simd(0xb1);
const multiply: Code = simd(0xb5);

const [at, end, first, from] = [0, 1, 2, 3];
const [place, position, sum, sums, factor, stride, x] = [4, 5, 6, 7, 8, 9, 10];
const LOCALS: Code = [2, 1, I32, 7, V128];

function digestBody(): Code {
  const xorShift = (bits: number): Code => [...tee(x), ...get(x), ...i32Const(bits), ...shiftRight, ...xor];
  const vector = (offset: number): Code => [
    ...[...get(at), ...load(offset), ...get(position), ...xor],
    ...[...xorShift(16), ...get(factor), ...multiply, ...xorShift(15)],
    ...[...get(sum), ...add, ...tee(sum), ...get(sums), ...add, ...set(sums)],
    ...[...get(position), ...get(stride), ...add, ...set(position)],
  ];
  const splatted = (value: Code, local: number): Code => [...value, ...splat, ...set(local)];
  const loop: Code = [
    ...Array.from({ length: STEP_BYTES / 16 }, (_, i) => vector(16 * i)).flat(),
    ...[...get(at), ...i32Const(STEP_BYTES), ...i32Add, ...tee(at), ...get(end), ...i32Below],
  ];
  const acrossLanes = (vectorOf: Code): Code => [
    ...[...vectorOf, ...tee(x), ...lane(0)],
    ...[1, 2, 3].flatMap((index) => [...get(x), ...lane(index), ...i32Add]),
  ];
  const vectors: Code = [...get(end), ...get(from), ...i32Subtract, ...i32Const(4), ...i32ShiftRight];
  const weighted: Code = [
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

function named(name: string): Code {
  return [name.length, ...Array.from(name, (letter) => letter.charCodeAt(0))];
}

export function simdModule(): Uint8Array<ArrayBuffer> {
  const section = (id: number, ...items: Code[]): Code => {
    const body = [...leb(items.length), ...items.flat()];
    return [id, ...leb(body.length), ...body];
  };
  const bodies: Code[] = [
    [...LOCALS, ...digestBody(), 0x0b],
    [0, ...getHi, 0x0b],
  ];
  const variable: Code = [I32, 1, ...i32Const(0), 0x0b];
  return Uint8Array.from([
    ...[0x00, 0x61, 0x73, 0x6d, 0x01, 0x00, 0x00, 0x00],
    ...section(1, [0x60, 3, I32, I32, I32, 1, I32], [0x60, 0, 1, I32]),
    ...section(2, [...named('e'), ...named('m'), 0x02, 0x00, 0]), // a memory of any size
    ...section(3, [0], [1]),
    ...section(6, variable),
    ...section(7, [...named('lo'), 0x00, 0], [...named('hi'), 0x00, 1]),
    ...section(10, ...bodies.map((body): Code => [...leb(body.length), ...body])),
  ]);
}
