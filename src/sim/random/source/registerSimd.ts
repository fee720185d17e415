/**
 * The register in WebAssembly: its loop two words an instruction, some times faster than the portable one,
 * and its seeding with 64-bit products. Equal to `register.ts` bit for bit. The module is assembled here from
 * named instructions, since no build step should stand between the source and what runs. It owns one page of
 * memory: a register is copied in, advanced, and copied out.
 */

import { LAG, TAP_LAG } from './register.ts';
import { SEED_WORDS } from './seedTable.ts';
import {
  type Code,
  get,
  I32,
  I64,
  i32,
  i64,
  i64x2,
  loopWhile,
  moduleOf,
  set,
  tee,
  V128,
  type WasmFunction,
  when,
} from './wasmAssembler.ts';

const WORD_BYTES = 8;
const REGISTER_BYTES = LAG * WORD_BYTES;
const TAP_BYTES = (LAG - TAP_LAG) * WORD_BYTES; // from a word of the first part to its tap
const BACK_BYTES = TAP_LAG * WORD_BYTES; // from a tap to a word of the second part
const FIRST_PAIRS_BYTES = (TAP_LAG - 1) * WORD_BYTES; // the first part is 136 pairs and a single word
const TABLE_BYTES = 8192; // where the seed table lies
const LOW_63 = 2n ** 63n - 1n;

/** advance(limit: i64, blocks: i32) -> i32: words above the limit. */
function advanceFunction(): WasmFunction {
  const [limit, blocks, at, single, sum, rejected, bound, low63, word] = [0, 1, 2, 3, 4, 5, 6, 7, 8];
  // rejected += (sum & low63) > bound, where true is -1
  const countSum: Code = [
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
  const addTaps = (to: number, tap: number, bytes: number): Code => [
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
  const addSingle: Code = [
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

const MODULUS = 2n ** 31n - 1n;
const MULTIPLIER = 48271n;
const WARM_UP = 20n;

/** seed(x: i64): the register of the Lehmer generator at x, three of its values a word. */
function seedFunction(): WasmFunction {
  const [x, at, from, a, b, t] = [0, 1, 2, 3, 4, 5];
  // x · multiplier^power mod 2^31 - 1: the product has at most 62 bits, and 2^31 is 1
  const step = (power: bigint): Code => {
    const fold: Code = [
      ...tee(t),
      ...i64.constant(MODULUS),
      ...i64.and,
      ...get(t),
      ...i64.constant(31n),
      ...i64.shiftRight,
      ...i64.add,
    ];
    return [...get(x), ...i64.constant(MULTIPLIER ** power % MODULUS), ...i64.multiply, ...fold, ...fold];
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

interface Exports {
  readonly m: { readonly buffer: ArrayBuffer };
  readonly a: (limit: bigint, blocks: number) => number;
  readonly s: (x: bigint) => void;
}

/** What this module uses of WebAssembly, which the standard library types do not declare. */
interface WebAssemblyLike {
  Module: new (bytes: Uint8Array) => object;
  Instance: new (module: object) => { exports: Exports };
}

function build(): { words: Int32Array; exports: Exports } | undefined {
  const wasm = (globalThis as unknown as { WebAssembly?: WebAssemblyLike }).WebAssembly;
  if (wasm === undefined) return undefined;
  try {
    const { exports } = new wasm.Instance(new wasm.Module(moduleOf([advanceFunction(), seedFunction()])));
    new Int32Array(exports.m.buffer, TABLE_BYTES, SEED_WORDS.length).set(SEED_WORDS);
    return { words: new Int32Array(exports.m.buffer, 0, 2 * LAG), exports };
  } catch {
    return undefined; // an engine without SIMD
  }
}

const machine = build();

/** Whether this engine runs the module. */
export const hasSimdRegister: boolean = machine !== undefined;

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
  exports.s((BigInt(residue) * (MULTIPLIER ** WARM_UP % MODULUS)) % MODULUS);
  words.set(memory);
}
