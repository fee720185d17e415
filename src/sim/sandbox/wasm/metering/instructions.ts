/**
 * The instructions that a policy may use: what follows each opcode in the code, and how many values it takes
 * from the stack and puts there. Vectors, threads, references, exceptions and tail calls are not among them.
 * https://webassembly.github.io/spec/core/binary/instructions.html
 */

/** What stands behind the opcode. */
export type Immediate =
  | 'none'
  | 'block'
  | 'label'
  | 'labels'
  | 'function'
  | 'indirect'
  | 'types'
  | 'local'
  | 'global'
  | 'memory'
  | 'byte'
  | 'number'
  | 'f32'
  | 'f64';

export interface Instruction {
  readonly immediate: Immediate;
  readonly pops: number;
  readonly pushes: number;
}

/** First and last opcode, what follows, values taken, values put. */
const ranges: readonly (readonly [number, number, Immediate, number, number])[] = [
  [0x00, 0x01, 'none', 0, 0], // unreachable, nop
  [0x02, 0x03, 'block', 0, 0], // block, loop
  [0x04, 0x04, 'block', 1, 0], // if
  [0x05, 0x05, 'none', 0, 0], // else
  [0x0b, 0x0b, 'none', 0, 0], // end
  [0x0c, 0x0c, 'label', 0, 0], // br
  [0x0d, 0x0d, 'label', 1, 0], // br_if
  [0x0e, 0x0e, 'labels', 1, 0], // br_table
  [0x0f, 0x0f, 'none', 0, 0], // return
  [0x10, 0x10, 'function', 0, 0], // call
  [0x11, 0x11, 'indirect', 1, 0], // call_indirect
  [0x1a, 0x1a, 'none', 1, 0], // drop
  [0x1b, 0x1b, 'none', 3, 1], // select
  [0x1c, 0x1c, 'types', 3, 1], // select with a type
  [0x20, 0x20, 'local', 0, 1], // local.get
  [0x21, 0x21, 'local', 1, 0], // local.set
  [0x22, 0x22, 'local', 1, 1], // local.tee
  [0x23, 0x23, 'global', 0, 1], // global.get
  [0x24, 0x24, 'global', 1, 0], // global.set
  [0x28, 0x35, 'memory', 1, 1], // loads
  [0x36, 0x3e, 'memory', 2, 0], // stores
  [0x3f, 0x3f, 'byte', 0, 1], // memory.size
  [0x40, 0x40, 'byte', 1, 1], // memory.grow
  [0x41, 0x42, 'number', 0, 1], // i32.const, i64.const
  [0x43, 0x43, 'f32', 0, 1],
  [0x44, 0x44, 'f64', 0, 1],
  [0x45, 0x45, 'none', 1, 1], // i32.eqz
  [0x46, 0x4f, 'none', 2, 1], // comparisons of i32
  [0x50, 0x50, 'none', 1, 1], // i64.eqz
  [0x51, 0x66, 'none', 2, 1], // comparisons of i64, f32, f64
  [0x67, 0x69, 'none', 1, 1], // i32.clz, ctz, popcnt
  [0x6a, 0x78, 'none', 2, 1], // arithmetic of i32
  [0x79, 0x7b, 'none', 1, 1],
  [0x7c, 0x8a, 'none', 2, 1], // arithmetic of i64
  [0x8b, 0x91, 'none', 1, 1],
  [0x92, 0x98, 'none', 2, 1], // arithmetic of f32
  [0x99, 0x9f, 'none', 1, 1],
  [0xa0, 0xa6, 'none', 2, 1], // arithmetic of f64
  [0xa7, 0xc4, 'none', 1, 1], // conversions, reinterpretations, sign extensions
];

const byOpcode: readonly (Instruction | undefined)[] = Array.from({ length: 256 }, (_, opcode) => {
  const range = ranges.find(([first, last]) => opcode >= first && opcode <= last);
  return range === undefined ? undefined : { immediate: range[2], pops: range[3], pushes: range[4] };
});

/** undefined where a policy may not use it. */
export function instructionOf(opcode: number): Instruction | undefined {
  return byOpcode[opcode];
}

/** Opcodes that the rewriter treats apart. */
export const op = {
  unreachable: 0x00,
  block: 0x02,
  loop: 0x03,
  if: 0x04,
  else: 0x05,
  end: 0x0b,
  br: 0x0c,
  brIf: 0x0d,
  brTable: 0x0e,
  return: 0x0f,
  call: 0x10,
  callIndirect: 0x11,
  select: 0x1b,
  localGet: 0x20,
  localTee: 0x22,
  globalGet: 0x23,
  globalSet: 0x24,
  f32Store: 0x38,
  f64Store: 0x39,
  memorySize: 0x3f,
  memoryGrow: 0x40,
  i32Const: 0x41,
  f32Const: 0x43,
  f64Const: 0x44,
  i32LtS: 0x48,
  i32GtU: 0x4b,
  f32Eq: 0x5b,
  f64Eq: 0x61,
  i32Add: 0x6a,
  i32Sub: 0x6b,
  i32ShrU: 0x76,
  f32Copysign: 0x98,
  f64Copysign: 0xa6,
  i32ReinterpretF32: 0xbc,
  i64ReinterpretF64: 0xbd,
  /** Before an opcode of a second table. */
  extended: 0xfc,
} as const;

/** Second opcodes after `extended`; up to `lastTruncation` they are conversions without traps. */
export const extended = { lastTruncation: 7, memoryCopy: 10, memoryFill: 11 } as const;

/** The second table. undefined where a policy may not use it. */
export function extendedInstructionOf(second: number): Instruction | undefined {
  if (second <= extended.lastTruncation) return { immediate: 'none', pops: 1, pushes: 1 };
  if (second === extended.memoryCopy || second === extended.memoryFill) {
    return { immediate: 'none', pops: 3, pushes: 0 };
  }
  return undefined;
}
