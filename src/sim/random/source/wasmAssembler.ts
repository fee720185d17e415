/**
 * The instructions of WebAssembly that the register needs, by name, as the bytes of the binary format. Blocks
 * of code are arrays of bytes; `moduleOf` puts functions and one page of memory together.
 */

export type Code = readonly number[];

/** Unsigned LEB128, the integer format of WebAssembly. */
export function leb(value: number): number[] {
  return value < 128 ? [value] : [(value & 127) | 128, ...leb(Math.floor(value / 128))];
}

function signedLeb(value: bigint): number[] {
  const bytes: number[] = [];
  let left = value;
  for (;;) {
    const byte = Number(left & 127n);
    left >>= 7n;
    if ((left === 0n && (byte & 64) === 0) || (left === -1n && (byte & 64) !== 0)) return [...bytes, byte];
    bytes.push(byte | 128);
  }
}

export const I32 = 0x7f;
export const I64 = 0x7e;
export const V128 = 0x7b;

const simd = (opcode: number, ...operands: number[]): Code => [0xfd, ...leb(opcode), ...operands];

export const get = (local: number): Code => [0x20, local];
export const set = (local: number): Code => [0x21, local];
export const tee = (local: number): Code => [0x22, local];

/** Repeats `body` while the i32 that it leaves is not 0. */
export const loopWhile = (...body: Code[]): Code => [0x03, 0x40, ...body.flat(), 0x0d, 0x00, 0x0b];
/** Runs `body` if the i32 on the stack is not 0. */
export const when = (...body: Code[]): Code => [0x04, 0x40, ...body.flat(), 0x0b];

export const i32: Readonly<Record<'add' | 'sub' | 'lessSigned' | 'lessUnsigned', Code>> & {
  constant(value: number): Code;
} = {
  constant: (value) => [0x41, ...signedLeb(BigInt(value))],
  add: [0x6a],
  sub: [0x6b],
  lessSigned: [0x48],
  lessUnsigned: [0x49],
};

export const i64: Readonly<
  Record<'add' | 'multiply' | 'and' | 'xor' | 'shiftLeft' | 'shiftRight' | 'greaterSigned' | 'toI32', Code>
> & {
  constant(value: bigint): Code;
  load(offset: number): Code;
  store(offset: number): Code;
} = {
  constant: (value) => [0x42, ...signedLeb(value)],
  load: (offset) => [0x29, 3, ...leb(offset)],
  store: (offset) => [0x37, 3, ...leb(offset)],
  add: [0x7c],
  multiply: [0x7e],
  and: [0x83],
  xor: [0x85],
  shiftLeft: [0x86],
  shiftRight: [0x88],
  greaterSigned: [0x55],
  toI32: [0xa7],
};

/** Two 64-bit lanes. */
export const i64x2: Readonly<Record<'add' | 'and' | 'greaterSigned' | 'splat', Code>> & {
  load(offset: number): Code;
  store(offset: number): Code;
  lane(index: number): Code;
} = {
  load: (offset) => simd(0x00, 3, ...leb(offset)),
  store: (offset) => simd(0x0b, 3, ...leb(offset)),
  lane: (index) => simd(0x1d, index),
  splat: simd(0x12),
  and: simd(0x4e),
  add: simd(0xce),
  greaterSigned: simd(0xd9),
};

export interface WasmFunction {
  /** One letter, the name of the export. */
  readonly name: string;
  readonly parameters: readonly number[];
  readonly results: readonly number[];
  /** Types of the locals behind the parameters. */
  readonly locals: readonly number[];
  readonly body: Code;
}

const section = (id: number, items: readonly Code[]): number[] => {
  const body = [...leb(items.length), ...items.flat()];
  return [id, ...leb(body.length), ...body];
};
const list = (bytes: readonly number[]): number[] => [...leb(bytes.length), ...bytes];

/** The bytes of a module that exports its memory of one page as `m`, and the functions. */
export function moduleOf(functions: readonly WasmFunction[]): Uint8Array<ArrayBuffer> {
  return Uint8Array.from([
    ...[0x00, 0x61, 0x73, 0x6d, 0x01, 0x00, 0x00, 0x00],
    ...section(
      1,
      functions.map((one) => [0x60, ...list(one.parameters), ...list(one.results)]),
    ),
    ...section(
      3,
      functions.map((_, i) => [i]),
    ),
    ...section(5, [[0, 1]]),
    ...section(7, [
      [...list([0x6d]), 0x02, 0],
      ...functions.map((one, i) => [...list([one.name.charCodeAt(0)]), 0x00, i]),
    ]),
    ...section(
      10,
      functions.map((one) => {
        const locals = one.locals.flatMap((type) => [1, type]);
        return list([...leb(one.locals.length), ...locals, ...one.body, 0x0b]);
      }),
    ),
  ]);
}
