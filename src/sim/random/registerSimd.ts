/**
 * The register of the random source in WebAssembly: its loop two words an instruction, its seeding with 64-bit
 * products. Equal to the portable one bit for bit. Seeding takes a third of the portable time and passing over
 * draws a twelfth, which is 5 % of a simulation of short chats.
 *
 * The module is assembled here from named instructions, so that no build step stands between the source and what
 * runs. It owns one page of memory: a register is copied in, advanced, and copied out.
 */

import { LAG, TAP_LAG } from './register.ts';
import { SEED_WORDS } from './seedTable.ts';

// The instructions that the register needs, by name, as bytes of the binary format. Blocks of code are arrays of
// bytes; `moduleOf` puts functions and one page of memory together.

type AssembledCode = readonly number[];

/** Unsigned LEB128, the integer format of WebAssembly. */
function leb(value: number): number[] {
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

const I32 = 0x7f;
const I64 = 0x7e;
const V128 = 0x7b;

const simd = (opcode: number, ...operands: number[]): AssembledCode => [0xfd, ...leb(opcode), ...operands];

const get = (local: number): AssembledCode => [0x20, local];
const set = (local: number): AssembledCode => [0x21, local];
const tee = (local: number): AssembledCode => [0x22, local];

/** Repeats `body` while the i32 that it leaves is not 0. */
const loopWhile = (...body: AssembledCode[]): AssembledCode => [0x03, 0x40, ...body.flat(), 0x0d, 0x00, 0x0b];
/** Runs `body` if the i32 on the stack is not 0. */
const when = (...body: AssembledCode[]): AssembledCode => [0x04, 0x40, ...body.flat(), 0x0b];

const i32: Readonly<Record<'add' | 'sub' | 'lessSigned' | 'lessUnsigned', AssembledCode>> & {
  constant(value: number): AssembledCode;
} = {
  constant: (value) => [0x41, ...signedLeb(BigInt(value))],
  add: [0x6a],
  sub: [0x6b],
  lessSigned: [0x48],
  lessUnsigned: [0x49],
};

const i64: Readonly<
  Record<
    'add' | 'multiply' | 'and' | 'xor' | 'shiftLeft' | 'shiftRight' | 'greaterSigned' | 'toI32',
    AssembledCode
  >
> & {
  constant(value: bigint): AssembledCode;
  load(offset: number): AssembledCode;
  store(offset: number): AssembledCode;
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
const i64x2: Readonly<Record<'add' | 'and' | 'greaterSigned' | 'splat', AssembledCode>> & {
  load(offset: number): AssembledCode;
  store(offset: number): AssembledCode;
  lane(index: number): AssembledCode;
} = {
  load: (offset) => simd(0x00, 3, ...leb(offset)),
  store: (offset) => simd(0x0b, 3, ...leb(offset)),
  lane: (index) => simd(0x1d, index),
  splat: simd(0x12),
  and: simd(0x4e),
  add: simd(0xce),
  greaterSigned: simd(0xd9),
};

interface AssembledFunction {
  /** One letter, the name of the export. */
  readonly name: string;
  readonly parameters: readonly number[];
  readonly results: readonly number[];
  /** Types of the locals behind the parameters. */
  readonly locals: readonly number[];
  readonly body: AssembledCode;
}

const section = (id: number, items: readonly AssembledCode[]): number[] => {
  const body = [...leb(items.length), ...items.flat()];
  return [id, ...leb(body.length), ...body];
};
const list = (bytes: readonly number[]): number[] => [...leb(bytes.length), ...bytes];

/** The bytes of a module that exports its memory of one page as `m`, and the functions. */
function moduleOf(functions: readonly AssembledFunction[]): Uint8Array<ArrayBuffer> {
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

// The two functions of the module.

const WORD_BYTES = 8;
const REGISTER_BYTES = LAG * WORD_BYTES;
const TAP_BYTES = (LAG - TAP_LAG) * WORD_BYTES; // from a word of the first part to its tap
const BACK_BYTES = TAP_LAG * WORD_BYTES; // from a tap to a word of the second part
const FIRST_PAIRS_BYTES = (TAP_LAG - 1) * WORD_BYTES; // the first part is 136 pairs and a single word
const TABLE_BYTES = 8192; // where the seed table lies
const LOW_63 = 2n ** 63n - 1n;

/** advance(limit: i64, blocks: i32) -> i32: words above the limit. */
function advanceFunction(): AssembledFunction {
  const [limit, blocks, at, single, sum, rejected, bound, low63, word] = [0, 1, 2, 3, 4, 5, 6, 7, 8];
  // rejected += (sum & low63) > bound, where true is -1
  const countSum: AssembledCode = [
    ...get(rejected),
    ...get(sum),
    ...get(low63),
    ...i64x2.and,
    ...get(bound),
    ...i64x2.greaterSigned,
    ...i64x2.add,
    ...set(rejected),
  ];
  // adds the words at `at + tap` to those at `at + to`, in pairs, for `at` in [0, bytes)
  const addTaps = (to: number, tap: number, bytes: number): AssembledCode => [
    ...i32.constant(0),
    ...set(at),
    ...loopWhile(
      get(at),
      [
        ...get(at),
        ...i64x2.load(to),
        ...get(at),
        ...i64x2.load(tap),
        ...i64x2.add,
        ...tee(sum),
        ...i64x2.store(to),
      ],
      countSum,
      [...get(at), ...i32.constant(16), ...i32.add, ...tee(at), ...i32.constant(bytes), ...i32.lessUnsigned],
    ),
  ];
  const addSingle: AssembledCode = [
    ...i32.constant(0),
    ...i32.constant(0),
    ...i64.load(FIRST_PAIRS_BYTES),
    ...i32.constant(0),
    ...i64.load(FIRST_PAIRS_BYTES + TAP_BYTES),
    ...i64.add,
    ...tee(word),
    ...i64.store(FIRST_PAIRS_BYTES),
    ...[...get(word), ...i64.constant(LOW_63), ...i64.and, ...get(limit), ...i64.greaterSigned],
    ...[...get(single), ...i32.add, ...set(single)],
  ];
  return {
    name: 'a',
    parameters: [I64, I32],
    results: [I32],
    locals: [I32, I32, V128, V128, V128, V128, I64],
    body: [
      ...[...get(limit), ...i64x2.splat, ...set(bound)],
      ...[...i64.constant(LOW_63), ...i64x2.splat, ...set(low63)],
      ...loopWhile(addTaps(0, TAP_BYTES, FIRST_PAIRS_BYTES), addSingle, addTaps(BACK_BYTES, 0, TAP_BYTES), [
        ...get(blocks),
        ...i32.constant(-1),
        ...i32.add,
        ...tee(blocks),
      ]),
      ...get(single),
      ...[
        ...get(rejected),
        ...i64x2.lane(0),
        ...get(rejected),
        ...i64x2.lane(1),
        ...i64.add,
        ...i64.toI32,
        ...i32.sub,
      ],
    ],
  };
}

const SIMD_MODULUS = 2n ** 31n - 1n;
const MULTIPLIER = 48271n;
const WARM_UP = 20n;

/** seed(x: i64): the register of the Lehmer generator at x, three of its values a word. */
function seedFunction(): AssembledFunction {
  const [x, at, from, a, b, t] = [0, 1, 2, 3, 4, 5];
  // x · multiplier^power mod 2^31 - 1: the product has at most 62 bits, and 2^31 is 1
  const step = (power: bigint): AssembledCode => {
    const fold: AssembledCode = [
      ...tee(t),
      ...i64.constant(SIMD_MODULUS),
      ...i64.and,
      ...get(t),
      ...i64.constant(31n),
      ...i64.shiftRight,
      ...i64.add,
    ];
    return [
      ...get(x),
      ...i64.constant(MULTIPLIER ** power % SIMD_MODULUS),
      ...i64.multiply,
      ...fold,
      ...fold,
    ];
  };
  return {
    name: 's',
    parameters: [I64],
    results: [],
    locals: [I32, I32, I64, I64, I64],
    body: [
      ...[...i32.constant((LAG - TAP_LAG - 1) * WORD_BYTES), ...set(at)],
      ...[...i32.constant(TABLE_BYTES), ...set(from)],
      ...loopWhile(
        [...step(1n), ...set(a)],
        [...step(2n), ...set(b)],
        [...step(3n), ...set(x)],
        get(at),
        [...get(a), ...i64.constant(40n), ...i64.shiftLeft],
        [...get(b), ...i64.constant(20n), ...i64.shiftLeft, ...i64.xor],
        [...get(x), ...i64.xor],
        [...get(from), ...i64.load(0), ...i64.xor, ...i64.store(0)],
        [
          ...get(at),
          ...i32.constant(-WORD_BYTES),
          ...i32.add,
          ...tee(at),
          ...i32.constant(0),
          ...i32.lessSigned,
        ],
        when([...get(at), ...i32.constant(REGISTER_BYTES), ...i32.add, ...set(at)]),
        [...get(from), ...i32.constant(WORD_BYTES), ...i32.add, ...tee(from)],
        [...i32.constant(TABLE_BYTES + REGISTER_BYTES), ...i32.lessUnsigned],
      ),
    ],
  };
}

interface RegisterExports {
  readonly m: { readonly buffer: ArrayBuffer };
  readonly a: (limit: bigint, blocks: number) => number;
  readonly s: (x: bigint) => void;
}

/** The part of WebAssembly that this module uses; the standard library types do not declare it. */
interface SimdWebAssembly {
  validate(bytes: Uint8Array): boolean;
  Module: new (bytes: Uint8Array) => object;
  Instance: new (module: object) => { exports: RegisterExports };
}

function build(): { words: Int32Array; exports: RegisterExports } | undefined {
  // the sources are compiled without the types of WebAssembly, which an engine may lack too
  const wasm = (globalThis as unknown as { WebAssembly?: SimdWebAssembly }).WebAssembly;
  if (wasm === undefined) return undefined;
  const bytes = moduleOf([advanceFunction(), seedFunction()]);
  if (!wasm.validate(bytes)) return undefined; // an engine without SIMD
  const { exports } = new wasm.Instance(new wasm.Module(bytes));
  new Int32Array(exports.m.buffer, TABLE_BYTES, SEED_WORDS.length).set(SEED_WORDS);
  return { words: new Int32Array(exports.m.buffer, 0, 2 * LAG), exports };
}

const machine = build();

/** Whether this engine runs the module. */
export const hasSimdRegister: boolean = machine !== undefined;

/** `advanceRegister` by SIMD; call only where `hasSimdRegister`. */
export function advanceRegisterSimd(words: Int32Array, limit: number, blocks: number): number {
  const { words: memory, exports } = machine!;
  memory.set(words);
  const rejected = exports.a((BigInt(limit) << 32n) | 0xffffffffn, blocks);
  words.set(memory);
  return rejected;
}

/** `seedRegister` by SIMD; call only where `hasSimdRegister`. */
export function seedRegisterSimd(words: Int32Array, residue: number): void {
  const { words: memory, exports } = machine!;
  exports.s((BigInt(residue) * (MULTIPLIER ** WARM_UP % SIMD_MODULUS)) % SIMD_MODULUS);
  words.set(memory);
}
