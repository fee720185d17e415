/**
 * The register of the random source, portably: filling it from a seed, and replacing its 607 words by the
 * next 607. The lags make any 273 consecutive words independent of one another, so both parts run over plain
 * ranges. Carries are taken from the sign bits, which keeps every operation in 32 bits.
 */

import { SEED_WORDS } from './seedTable.ts';

export const LAG = 607;
export const TAP_LAG = 273;

const MODULUS = 2147483647; // 2^31 - 1, of the Lehmer generator that fills the register

/**
 * Advances `words` (607 interleaved low and high halves) by `blocks` times 607 steps, blocks at least 1.
 * @returns the number of new words whose bits [32, 63) exceed `limit`.
 */
export function advanceRegister(words: Int32Array, limit: number, blocks: number): number {
  let rejected = 0;
  for (let block = 0; block < blocks; block++) {
    rejected += addTaps(words, 0, 2 * (LAG - TAP_LAG), 2 * TAP_LAG, limit);
    rejected += addTaps(words, 2 * TAP_LAG, 0, 2 * (LAG - TAP_LAG), limit);
  }
  return rejected;
}

/** Adds `halves / 2` words from `tap` on to those from `at` on. */
function addTaps(words: Int32Array, at: number, tap: number, halves: number, limit: number): number {
  let rejected = 0;
  for (let i = at, j = tap, end = at + halves; i < end; i += 2, j += 2) {
    const a = words[i];
    const b = words[j];
    const sum = (a + b) | 0;
    const high = (words[i + 1] + words[j + 1] + (((a & b) | ((a | b) & ~sum)) >>> 31)) | 0;
    words[i] = sum;
    words[i + 1] = high;
    rejected += (limit - (high & 0x7fffffff)) >>> 31;
  }
  return rejected;
}

/** One step of x -> 48271 x mod (2^31 - 1), by Schrage's decomposition so that nothing leaves 32 bits. */
function lehmer(x: number): number {
  const high = (x / 44488) | 0;
  const next = Math.imul(48271, x - Math.imul(high, 44488)) - Math.imul(3399, high);
  return next < 0 ? next + MODULUS : next;
}

/**
 * Fills `words` with the register that Go's `rngSource.Seed` leaves, oldest word first. `residue` is in [1,
 * 2^31 - 2].
 */
export function seedRegister(words: Int32Array, residue: number): void {
  let x = residue;
  for (let i = 0; i < 20; i++) x = lehmer(x);
  for (let i = 0; i < LAG; i++) {
    const a = lehmer(x);
    const b = lehmer(a);
    const c = lehmer(b);
    x = c;
    // Go fills a register that it then walks downwards from LAG - TAP_LAG - 1; here words lie in the order of
    // use.
    const at = 2 * ((2 * LAG - TAP_LAG - 1 - i) % LAG);
    words[at] = (b << 20) ^ c ^ SEED_WORDS[2 * i];
    words[at + 1] = (a << 8) ^ (b >>> 12) ^ SEED_WORDS[2 * i + 1];
  }
}

// The register in WebAssembly: its loop two words an instruction, some times faster than the portable one,
// and its seeding with 64-bit products. Equal to `register.ts` bit for bit. The module is assembled here from
// named instructions, since no build step should stand between the source and what runs. It owns one page of
// memory: a register is copied in, advanced, and copied out.

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

/** What this module uses of WebAssembly, which the standard library types do not declare. */
interface SimdWebAssembly {
  Module: new (bytes: Uint8Array) => object;
  Instance: new (module: object) => { exports: RegisterExports };
}

function build(): { words: Int32Array; exports: RegisterExports } | undefined {
  const wasm = (globalThis as unknown as { WebAssembly?: SimdWebAssembly }).WebAssembly;
  if (wasm === undefined) return undefined;
  try {
    const { exports } = new wasm.Instance(new wasm.Module(moduleOf([advanceFunction(), seedFunction()])));
    new Int32Array(exports.m.buffer, TABLE_BYTES, SEED_WORDS.length).set(SEED_WORDS);
    return { words: new Int32Array(exports.m.buffer, 0, 2 * LAG), exports };
  } catch {
    return undefined; // an engine without SIMD
  }
}

/** As `advanceRegister` of register.ts; call only where `hasSimdRegister`. */
export function advanceRegisterSimd(words: Int32Array, limit: number, blocks: number): number {
  const { words: memory, exports } = machine!;
  memory.set(words);
  const rejected = exports.a((BigInt(limit) << 32n) | 0xffffffffn, blocks);
  words.set(memory);
  return rejected;
}

/** As `seedRegister` of register.ts; call only where `hasSimdRegister`. */
export function seedRegisterSimd(words: Int32Array, residue: number): void {
  const { words: memory, exports } = machine!;
  exports.s((BigInt(residue) * (MULTIPLIER ** WARM_UP % SIMD_MODULUS)) % SIMD_MODULUS);
  words.set(memory);
}

// The instructions of WebAssembly that the register needs, by name, as the bytes of the binary format. Blocks
// of code are arrays of bytes; `moduleOf` puts functions and one page of memory together.

export type AssembledCode = readonly number[];

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

const simd = (opcode: number, ...operands: number[]): AssembledCode => [0xfd, ...leb(opcode), ...operands];

export const get = (local: number): AssembledCode => [0x20, local];
export const set = (local: number): AssembledCode => [0x21, local];
export const tee = (local: number): AssembledCode => [0x22, local];

/** Repeats `body` while the i32 that it leaves is not 0. */
export const loopWhile = (...body: AssembledCode[]): AssembledCode => [
  0x03,
  0x40,
  ...body.flat(),
  0x0d,
  0x00,
  0x0b,
];
/** Runs `body` if the i32 on the stack is not 0. */
export const when = (...body: AssembledCode[]): AssembledCode => [0x04, 0x40, ...body.flat(), 0x0b];

export const i32: Readonly<Record<'add' | 'sub' | 'lessSigned' | 'lessUnsigned', AssembledCode>> & {
  constant(value: number): AssembledCode;
} = {
  constant: (value) => [0x41, ...signedLeb(BigInt(value))],
  add: [0x6a],
  sub: [0x6b],
  lessSigned: [0x48],
  lessUnsigned: [0x49],
};

export const i64: Readonly<
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
export const i64x2: Readonly<Record<'add' | 'and' | 'greaterSigned' | 'splat', AssembledCode>> & {
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

export interface AssembledFunction {
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
export function moduleOf(functions: readonly AssembledFunction[]): Uint8Array<ArrayBuffer> {
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

const machine = build();

/** Whether this engine runs the module. */
export const hasSimdRegister: boolean = machine !== undefined;
