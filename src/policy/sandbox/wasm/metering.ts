/**
 * Rewrites a WebAssembly module so that it counts its steps, the depth of its calls and its memory, and
 * stops when a budget is used up. Steps are exact and the same on every machine. Every index of the module
 * stays; additions come behind.
 */

import {
  ByteReader,
  ByteWriter,
  exportKinds,
  F32,
  F64,
  type FunctionBody,
  type FunctionType,
  I32,
  type ModuleParts,
  refuse,
  sections,
  valueTypes,
} from './module.ts';

// Additions of the rewriter: counters as globals, and functions in place of instructions whose cost depends on
// their operands.

/** Why the module stopped itself, in the global of that name. */
export const stopReasons = { none: 0, steps: 1, memory: 2, depth: 3 } as const;

/**
 * Values that the functions of one call chain may hold: locals, operands and a fixed part for each function.
 * Far below what engines have room for, so that they never overflow first.
 */
const STACK_VALUES = 16_384;

/** Numbers of the globals and functions that are added. */
class Additions {
  /** Steps left, steps of a call, values left on the stack, why it stopped, pages that memory may have. */
  readonly fuel: number;
  readonly fuelLimit: number;
  readonly stack: number;
  readonly reason: number;
  readonly pageLimit: number;
  readonly grow: number;
  readonly copy: number;
  readonly fill: number;

  constructor(globals: number, functions: number) {
    this.fuel = globals;
    this.fuelLimit = globals + 1;
    this.stack = globals + 2;
    this.reason = globals + 3;
    this.pageLimit = globals + 4;
    this.grow = functions;
    this.copy = functions + 1;
    this.fill = functions + 2;
  }

  static readonly globalCount: number = 5;
}

/** Code that stops the module. */
function writeStop(out: ByteWriter, { reason }: Additions, why: number): ByteWriter {
  return out.byte(op.i32Const).signed(why).byte(op.globalSet).unsigned(reason).byte(op.unreachable);
}

/**
 * Code that takes `amount` from a counter, and stops where it falls below 0. @param local an i32 for its use
 */
function writeSpend(
  out: ByteWriter,
  additions: Additions,
  counter: number,
  why: number,
  local: number,
  amount: (out: ByteWriter) => void,
): void {
  out.byte(op.globalGet).unsigned(counter);
  amount(out);
  out.byte(op.i32Sub, op.localTee).unsigned(local).byte(op.globalSet).unsigned(counter);
  out.byte(op.localGet).unsigned(local).byte(op.i32Const, 0, op.i32LtS, op.if, VOID);
  writeStop(out, additions, why).byte(op.end);
}

/** Type of a block without results. */
const VOID = 0x40;

/**
 * `memory.grow` that stops the module at its limit. Growing up to what the module itself declares as its most
 * gives -1 beyond, as the instruction does.
 */
function growBody(additions: Additions, memory: { readonly max: number | null } | null): ByteWriter {
  const declaredMax = memory?.max ?? null;
  const out = new ByteWriter().byte(0);
  const room = (limit: (out: ByteWriter) => void): void => {
    out.byte(op.localGet, 0);
    limit(out);
    out.byte(op.memorySize, 0, op.i32Sub, op.i32GtU);
  };
  if (declaredMax !== null) {
    room((into) => into.byte(op.i32Const).signed(declaredMax));
    out.byte(op.if, VOID, op.i32Const).signed(-1).byte(op.return, op.end);
  }
  room((into) => into.byte(op.globalGet).unsigned(additions.pageLimit));
  out.byte(op.if, VOID);
  writeStop(out, additions, stopReasons.memory).byte(op.end);
  return out.byte(op.localGet, 0, op.memoryGrow, 0, op.end);
}

/** `memory.copy` and `memory.fill`, a step for each 8 bytes. */
function bulkBody(additions: Additions, instruction: 'copy' | 'fill'): ByteWriter {
  const out = new ByteWriter().byte(1, 1, I32);
  writeSpend(out, additions, additions.fuel, stopReasons.steps, 3, (into) =>
    into.byte(op.localGet, 2, op.i32Const, 3, op.i32ShrU),
  );
  out.byte(op.localGet, 0, op.localGet, 1, op.localGet, 2, op.extended);
  if (instruction === 'copy') out.byte(extended.memoryCopy, 0, 0);
  else out.byte(extended.memoryFill, 0);
  return out.byte(op.end);
}

// Immediates: the bytes behind an opcode. They are parsed exactly as engines parse them. Unknown encodings are
// refused: bytes that we skip might be instructions to an engine.

/** Alignment of 8 bytes, as a power of 2. */
const MAX_ALIGNMENT = 3;

/** @param at place of the instruction in the module */
function skipImmediate(reader: ByteReader, immediate: Immediate, globals: number, at: number): void {
  switch (immediate) {
    case 'label':
    case 'local':
      reader.unsigned();
      break;
    case 'labels':
      reader.list(() => reader.unsigned());
      reader.unsigned();
      break;
    case 'global':
      // globals behind those of the module count its budget
      if (reader.unsigned() >= globals) refuse('has no such global', at);
      break;
    case 'types':
      if (reader.unsigned() !== 1 || !(reader.byte() in valueTypes)) refuse('selects no number', at);
      break;
    case 'memory':
      if (reader.unsigned() > MAX_ALIGNMENT) refuse('reads or writes another memory', at);
      reader.skipNumber();
      break;
    case 'byte':
      readZero(reader, at);
      break;
    case 'number':
      reader.skipNumber();
      break;
    case 'f32':
      reader.take(4);
      break;
    case 'f64':
      reader.take(8);
  }
}

/** The number of the only memory or table. */
function readZero(reader: ByteReader, at: number): void {
  if (reader.byte() !== 0) refuse('uses another memory or table than its first', at);
}

/** The type of a block: empty, one value, or a type of the module. */
function readBlockType(reader: ByteReader, types: readonly FunctionType[], at: number): FunctionType {
  const type = reader.signed33();
  if (type >= 0) return types[type] ?? refuse('has a block without a type', at);
  const byte = type + 0x80;
  if (byte === VOID) return { params: [], results: [] };
  return byte in valueTypes ? { params: [], results: [byte] } : refuse('has a block of an unknown type', at);
}

// The instructions that a policy may use: what follows each opcode in the code, and how many values it takes
// from the stack and puts there. Vectors, threads, references, exceptions and tail calls are not among them.
// https://webassembly.github.io/spec/core/binary/instructions.html

/** The immediate behind an opcode. */
type Immediate =
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

interface Instruction {
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
function instructionOf(opcode: number): Instruction | undefined {
  return byOpcode[opcode];
}

/** Opcodes that the rewriter treats apart. */
const op = {
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
const extended = { lastTruncation: 7, memoryCopy: 10, memoryFill: 11 } as const;

/** The second table. undefined where a policy may not use it. */
function extendedInstructionOf(second: number): Instruction | undefined {
  if (second <= extended.lastTruncation) return { immediate: 'none', pops: 1, pushes: 1 };
  if (second === extended.memoryCopy || second === extended.memoryFill) {
    return { immediate: 'none', pops: 3, pushes: 0 };
  }
  return undefined;
}

// Writes the body of a function anew, so that it counts its steps and the depth of its calls, and shows no
// NaN but the canonical one.
//
// One step per executed instruction; `else` and `end` are free. A basic block is charged at its entry. So a
// call that ends has paid for exactly what it executed, and a call that cannot pay stops at the same place on
// every machine.
//
// Bits of a NaN are left open by WebAssembly. They can be seen in memory, by a reinterpretation, and in the
// sign that `copysign` takes: there the operand is made canonical first.

const MAX_LOCALS = 1_000;
const MAX_NESTING = 1_000;
/** Size of an activation beside its locals and operands, in values. */
const FRAME_VALUES = 16;
/** Most values of one function, so that one that calls nothing needs no count of its own. */
const MAX_FRAME = 2_048;

const f32NaN = [op.f32Const, 0, 0, 0xc0, 0x7f];
const f64NaN = [op.f64Const, 0, 0, 0, 0, 0, 0, 0xf8, 0x7f];

const canonicalF32 = new Set<number>([op.f32Store, op.f32Copysign, op.i32ReinterpretF32]);
const canonicalF64 = new Set<number>([op.f64Store, op.f64Copysign, op.i64ReinterpretF64]);

/** Rules for the steps that instructions cost. */
interface MeterRules {
  /** Whether calls count the values on the stack. */
  readonly depth: boolean;
  readonly canonicalNaN: boolean;
  /**
   * Unit of the count: an instruction, or a unit that is much faster to count and bounds the time as well: a function
   * that begins or a turn of a loop, whatever stands in it.
   */
  readonly step: 'instruction' | 'turn';
}

interface Label {
  /** Height of the stack below what the block takes. */
  readonly base: number;
  readonly type: FunctionType;
}

class BodyMeter {
  readonly #module: ModuleParts;
  readonly #rules: MeterRules;
  readonly #additions: Additions;
  readonly #blockType: (type: FunctionType) => number;
  readonly #body: FunctionBody;
  readonly #type: FunctionType;
  readonly #reader: ByteReader;
  readonly #out = new ByteWriter();
  /** Instructions that are not paid for yet. */
  readonly #segment = new ByteWriter();
  #cost = 0;
  /** Whether the segment begins a function or a turn of a loop. */
  #isHead = true;
  readonly #labels: Label[];
  #height = 0;
  #highest = 0;
  #calls = false;
  /** Numbers of the locals that are added: i32, f32, f64. */
  readonly #firstAdded: number;

  /** @param blockType number of a type without parameters with these results, as a block names it */
  constructor(
    module: ModuleParts,
    index: number,
    additions: Additions,
    rules: MeterRules,
    blockType: (type: FunctionType) => number,
  ) {
    this.#module = module;
    this.#rules = rules;
    this.#additions = additions;
    this.#blockType = blockType;
    this.#body = module.bodies[index];
    this.#type = module.types[module.functions[module.imports.functions + index]];
    this.#reader = new ByteReader(this.#body.code);
    this.#labels = [{ base: 0, type: { params: [], results: this.#type.results } }];
    const locals = this.#body.locals.reduce((sum, { count }) => sum + count, 0);
    if (locals > MAX_LOCALS) refuse(`has a function of ${locals} locals, over ${MAX_LOCALS}`, this.#body.at);
    this.#firstAdded = this.#type.params.length + locals;
  }

  /** The body with its locals. @throws PolicyError compile */
  meter(): ByteWriter {
    while (this.#labels.length > 0) this.#next();
    if (!this.#reader.isAtEnd) refuse('has code behind the end of a function', this.#at());
    const frame = FRAME_VALUES + this.#firstAdded + this.#highest;
    if (frame > MAX_FRAME)
      refuse(`has a function that needs ${frame} values, over ${MAX_FRAME}`, this.#body.at);
    const whole = new ByteWriter();
    const { locals } = this.#body;
    whole.unsigned(locals.length + 3);
    for (const { count, type } of locals) whole.unsigned(count).byte(type);
    whole.byte(1, I32, 1, F32, 1, F64);
    if (this.#calls && this.#rules.depth) this.#wrapInStackCount(whole, frame);
    else whole.append(this.#out.bytes);
    return whole.byte(op.end);
  }

  /** The body becomes a block, so that every way out of it leads past the count. */
  #wrapInStackCount(whole: ByteWriter, frame: number): void {
    const { stack } = this.#additions;
    writeSpend(whole, this.#additions, stack, stopReasons.depth, this.#firstAdded, (out) =>
      out.byte(op.i32Const).signed(frame),
    );
    whole.byte(op.block).signed(this.#blockType({ params: [], results: this.#type.results }));
    whole.append(this.#out.bytes).byte(op.end);
    whole.byte(op.globalGet).unsigned(stack).byte(op.i32Const).signed(frame);
    whole.byte(op.i32Add, op.globalSet).unsigned(stack);
  }

  #at(): number {
    return this.#body.at + this.#reader.at;
  }

  #next(): void {
    const start = this.#reader.at;
    const opcode = this.#reader.byte();
    if (opcode === op.extended) {
      this.#extended();
      return;
    }
    const instruction = instructionOf(opcode);
    if (instruction === undefined) {
      const remedy = opcode === 0xfd || opcode === 0xfe ? '. Compile without SIMD and threads' : '';
      refuse(`has the instruction 0x${opcode.toString(16)}, which no policy needs${remedy}`, this.#at());
    }
    this.#height = this.#above(instruction.pops);
    if (this.#structured(opcode, start)) return;
    skipImmediate(this.#reader, instruction.immediate, this.#module.globals.length, this.#at());
    if (this.#rules.canonicalNaN) this.#makeCanonical(opcode);
    this.#pay(1).append(this.#reader.since(start));
    this.#push(instruction.pushes);
    if (opcode === op.brIf) this.#endSegment();
    else if (opcode === op.br || opcode === op.brTable || opcode === op.unreachable) this.#leave();
  }

  /** Blocks, calls, ends of functions, growth. @returns whether it was one */
  #structured(opcode: number, start: number): boolean {
    switch (opcode) {
      case op.block:
      case op.loop:
      case op.if:
        this.#open(opcode, start);
        return true;
      case op.else:
        this.#else();
        return true;
      case op.end:
        this.#close();
        return true;
      case op.return:
        this.#pay(1)
          .byte(op.br)
          .unsigned(this.#labels.length - 1);
        this.#leave();
        return true;
      case op.call:
      case op.callIndirect:
        this.#call(opcode, start);
        return true;
      case op.memoryGrow:
        readZero(this.#reader, this.#at());
        this.#pay(1).byte(op.call).unsigned(this.#additions.grow);
        this.#push(1);
        return true;
      default:
        return false;
    }
  }

  #extended(): void {
    const start = this.#reader.at - 1;
    const second = this.#reader.unsigned();
    const instruction = extendedInstructionOf(second);
    if (instruction === undefined) {
      refuse(`has the instruction 0xfc ${second}. Compile without bulk tables`, this.#at());
    }
    this.#height = this.#above(instruction.pops);
    if (second <= extended.lastTruncation) this.#pay(1).append(this.#reader.since(start));
    else {
      readZero(this.#reader, this.#at());
      if (second === extended.memoryCopy) readZero(this.#reader, this.#at());
      const { copy, fill } = this.#additions;
      this.#pay(1)
        .byte(op.call)
        .unsigned(second === extended.memoryCopy ? copy : fill);
    }
    this.#push(instruction.pushes);
  }

  #open(opcode: number, start: number): void {
    if (this.#labels.length > MAX_NESTING) refuse(`nests deeper than ${MAX_NESTING} blocks`, this.#at());
    const type = readBlockType(this.#reader, this.#module.types, this.#at());
    this.#pay(1).append(this.#reader.since(start));
    this.#labels.push({ base: this.#above(type.params.length), type });
    if (opcode !== op.block) this.#endSegment();
    if (opcode === op.loop) this.#isHead = true;
  }

  #else(): void {
    this.#endSegment();
    this.#out.byte(op.else);
    const { base, type } = this.#label();
    this.#height = base;
    this.#push(type.params.length);
  }

  #close(): void {
    this.#endSegment();
    const { base, type } = this.#label();
    this.#labels.pop();
    if (this.#labels.length === 0) return;
    this.#out.byte(op.end);
    this.#height = base;
    this.#push(type.results.length);
  }

  #call(opcode: number, start: number): void {
    const number = this.#reader.unsigned();
    const { types, functions } = this.#module;
    if (opcode === op.callIndirect) readZero(this.#reader, this.#at());
    const type = types[opcode === op.call ? functions[number] : number];
    if (type === undefined) refuse('calls a function that is not there', this.#at());
    this.#pay(1).append(this.#reader.since(start));
    this.#height = this.#above(type.params.length);
    this.#push(type.results.length);
    this.#calls = true;
  }

  /** Where bits of a NaN could be seen. */
  #makeCanonical(opcode: number): void {
    if (canonicalF32.has(opcode)) this.#canonical(1, f32NaN, op.f32Eq);
    else if (canonicalF64.has(opcode)) this.#canonical(2, f64NaN, op.f64Eq);
  }

  /**
   * Makes the value on top of the stack the canonical NaN where it is one: select(value, NaN, value ==
   * value).
   */
  #canonical(added: number, nan: readonly number[], equal: number): void {
    const local = this.#firstAdded + added;
    const out = this.#segment.byte(op.localTee).unsigned(local).append(nan);
    out.byte(op.localGet).unsigned(local).byte(op.localGet).unsigned(local).byte(equal, op.select);
    this.#highest = Math.max(this.#highest, this.#height + 5);
  }

  /** Adds to what the segment costs. @returns where its instruction goes */
  #pay(steps: number): ByteWriter {
    this.#cost += steps;
    return this.#segment;
  }

  #endSegment(): void {
    const cost = this.#rules.step === 'instruction' ? this.#cost : Number(this.#isHead);
    if (cost > 0) {
      const { fuel } = this.#additions;
      writeSpend(this.#out, this.#additions, fuel, stopReasons.steps, this.#firstAdded, (out) =>
        out.byte(op.i32Const).signed(cost),
      );
    }
    this.#isHead = false;
    this.#out.append(this.#segment.bytes);
    this.#segment.clear();
    this.#cost = 0;
  }

  /** Control does not go on behind what was written. */
  #leave(): void {
    this.#endSegment();
    this.#height = this.#label().base;
  }

  #label(): Label {
    return this.#labels[this.#labels.length - 1];
  }

  /** The height without its topmost values; what cannot be reached may take more than there are. */
  #above(pops: number): number {
    return Math.max(this.#label().base, this.#height - pops);
  }

  #push(values: number): void {
    this.#height += values;
    this.#highest = Math.max(this.#highest, this.#height);
  }
}

// Writes a module anew, metered and with exports of our own: each exported function behind one that fills its
// budget up, the memory, and every global that can change, so that the host sees all that a module remembers.

/** Names of the exports; `f<n>` and `g<n>` are followed by the number that function or global has. */
export const exportNames = {
  memory: 'memory',
  fuel: 'fuel',
  fuelLimit: 'fuelLimit',
  reason: 'reason',
  pageLimit: 'pageLimit',
  function: 'f',
  global: 'g',
} as const;

type Export = readonly [name: string, kind: number, index: number];

/** A policy's module. @throws PolicyError compile */
export function rewriteModule(module: ModuleParts): Uint8Array<ArrayBuffer> {
  const writer = new ModuleWriter(module, { depth: true, canonicalNaN: true, step: 'instruction' });
  const { additions } = writer;
  const wrapped = [
    ...new Set([
      ...module.exports.filter(({ kind }) => kind === exportKinds.function).map(({ index }) => index),
      ...(module.start === null ? [] : [module.start]),
    ]),
  ];
  const exports: Export[] = [
    [exportNames.fuel, exportKinds.global, additions.fuel],
    [exportNames.fuelLimit, exportKinds.global, additions.fuelLimit],
    [exportNames.reason, exportKinds.global, additions.reason],
    [exportNames.pageLimit, exportKinds.global, additions.pageLimit],
  ];
  if (module.memory !== null) exports.push([exportNames.memory, exportKinds.memory, 0]);
  for (const index of wrapped) {
    const wrapper = writer.add(module.functions[index], wrapperBody(module, index, additions));
    exports.push([exportNames.function + index, exportKinds.function, wrapper]);
  }
  module.globals.forEach(({ isMutable }, i) => {
    if (isMutable) exports.push([exportNames.global + i, exportKinds.global, i]);
  });
  return writer.write(exports);
}

/**
 * A module of the host's own that runs what others wrote: it keeps its imports and exports, and counts its
 * turns down in a global, which the host sets before it calls.
 */
export function meterEngine(module: ModuleParts): Uint8Array<ArrayBuffer> {
  const writer = new ModuleWriter(module, { depth: false, canonicalNaN: false, step: 'turn' });
  return writer.write([
    ...module.exports.map(({ name, kind, index }) => [name, kind, index] as const),
    [exportNames.fuel, exportKinds.global, writer.additions.fuel],
  ]);
}

/** The metered functions of a module, the functions added behind them, and the sections around them. */
class ModuleWriter {
  readonly additions: Additions;
  readonly #module: ModuleParts;
  readonly #types: TypeList;
  readonly #functions: number[];
  readonly #bodies: ByteWriter[];

  constructor(module: ModuleParts, rules: MeterRules) {
    this.#module = module;
    const types = new TypeList(module.types);
    this.#types = types;
    this.additions = new Additions(module.globals.length, module.functions.length);
    this.#functions = [...module.functions];
    this.#bodies = module.bodies.map((_, i) => {
      return new BodyMeter(module, i, this.additions, rules, (type) => types.blockType(type)).meter();
    });
    if (module.memory === null && !module.imports.memory) return;
    this.add(types.number({ params: [I32], results: [I32] }), growBody(this.additions, module.memory));
    const bulk = types.number({ params: [I32, I32, I32], results: [] });
    this.add(bulk, bulkBody(this.additions, 'copy'));
    this.add(bulk, bulkBody(this.additions, 'fill'));
  }

  /** @returns the number of the function */
  add(type: number, body: ByteWriter): number {
    this.#bodies.push(body);
    return this.#functions.push(type) - 1;
  }

  write(exports: readonly Export[]): Uint8Array<ArrayBuffer> {
    const module = this.#module;
    const out = new ByteWriter().byte(0, 0x61, 0x73, 0x6d, 1, 0, 0, 0);
    section(out, sections.type, list(this.#types.all, writeType));
    raw(out, sections.import, module.imports.section);
    section(
      out,
      sections.function,
      list(this.#functions.slice(module.imports.functions), (into, type) => into.unsigned(type)),
    );
    raw(out, sections.table, module.tables);
    if (module.memory !== null) {
      section(out, sections.memory, new ByteWriter().byte(1, 0).unsigned(module.memory.min));
    }
    section(out, sections.global, globalSection(module));
    section(
      out,
      sections.export,
      list(exports, (into, [name, kind, index]) => into.name(name).byte(kind).unsigned(index)),
    );
    raw(out, sections.element, module.elements);
    section(
      out,
      sections.code,
      list(this.#bodies, (into, body) => into.sized(body)),
    );
    raw(out, sections.data, module.data);
    return out.bytes;
  }
}

class TypeList {
  readonly all: FunctionType[];

  constructor(types: readonly FunctionType[]) {
    this.all = [...types];
  }

  number(type: FunctionType): number {
    const { params, results } = type;
    const same = (a: readonly number[], b: readonly number[]): boolean => String(a) === String(b);
    const found = this.all.findIndex((each) => same(each.params, params) && same(each.results, results));
    return found < 0 ? this.all.push(type) - 1 : found;
  }

  /** Encodes the type behind `block`: empty, a value type, or the index of a type. */
  blockType(type: FunctionType): number {
    if (type.results.length === 0) return -0x40;
    return type.results.length === 1 ? type.results[0] - 0x80 : this.number(type);
  }
}

function wrapperBody(module: ModuleParts, index: number, additions: Additions): ByteWriter {
  const { params } = module.types[module.functions[index]];
  const out = new ByteWriter().byte(0, op.globalGet).unsigned(additions.fuelLimit);
  out.byte(op.globalSet).unsigned(additions.fuel);
  out.byte(op.i32Const).signed(STACK_VALUES).byte(op.globalSet).unsigned(additions.stack);
  params.forEach((_, i) => {
    out.byte(op.localGet).unsigned(i);
  });
  return out.byte(op.call).unsigned(index).byte(op.end);
}

function globalSection({ globals }: ModuleParts): ByteWriter {
  const out = new ByteWriter().unsigned(globals.length + Additions.globalCount);
  for (const { type, isMutable, initial } of globals) out.byte(type, isMutable ? 1 : 0).append(initial);
  for (let i = 0; i < Additions.globalCount; i++) out.byte(I32, 1, op.i32Const, 0, op.end);
  return out;
}

function writeType(out: ByteWriter, { params, results }: FunctionType): void {
  out.byte(0x60).unsigned(params.length).append(params).unsigned(results.length).append(results);
}

function list<T>(items: readonly T[], write: (out: ByteWriter, item: T) => void): ByteWriter {
  const out = new ByteWriter().unsigned(items.length);
  for (const item of items) write(out, item);
  return out;
}

function section(out: ByteWriter, id: number, content: ByteWriter): void {
  out.byte(id).sized(content);
}

function raw(out: ByteWriter, id: number, content: Uint8Array | null): void {
  if (content !== null) out.byte(id).unsigned(content.length).append(content);
}
