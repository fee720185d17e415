/**
 * Writes the body of a function anew, so that it counts its steps and the depth of its calls, and shows no
 * NaN but the canonical one.
 *
 * A step is an instruction that is executed; `else` and `end` are none. Instructions between two places to
 * which or from which control can jump are paid for together, before the first of them. So a call that ends
 * has paid for exactly what it executed, and a call that cannot pay stops at the same place on every machine.
 *
 * Bits of a NaN are left open by WebAssembly. They can be seen in memory, by a reinterpretation, and in the
 * sign that `copysign` takes: there the operand is made canonical first.
 */

import {
  ByteReader,
  ByteWriter,
  F32,
  F64,
  type FunctionBody,
  type FunctionType,
  I32,
  type ModuleParts,
  refuse,
} from '../binary/index.ts';
import { type Additions, stopReasons, writeSpend } from './additions.ts';
import { readBlockType, readZero, skipImmediate } from './immediates.ts';
import { extended, extendedInstructionOf, instructionOf, op } from './instructions.ts';

const MAX_LOCALS = 1_000;
const MAX_NESTING = 1_000;
/** What an activation holds beside its locals and operands, in values. */
const FRAME_VALUES = 16;
/** Most values of one function, so that one that calls nothing needs no count of its own. */
const MAX_FRAME = 2_048;

const f32NaN = [op.f32Const, 0, 0, 0xc0, 0x7f];
const f64NaN = [op.f64Const, 0, 0, 0, 0, 0, 0, 0xf8, 0x7f];

const canonicalF32 = new Set<number>([op.f32Store, op.f32Copysign, op.i32ReinterpretF32]);
const canonicalF64 = new Set<number>([op.f64Store, op.f64Copysign, op.i64ReinterpretF64]);

/** What is added to the count of steps. */
export interface MeterRules {
  /** Whether calls count the values on the stack. */
  readonly depth: boolean;
  readonly canonicalNaN: boolean;
  /**
   * What is a step: an instruction, or what is much faster to count and bounds the time as well: a function
   * that begins or a turn of a loop, whatever stands in it.
   */
  readonly step: 'instruction' | 'turn';
}

interface Label {
  /** Height of the stack below what the block takes. */
  readonly base: number;
  readonly type: FunctionType;
}

export class BodyMeter {
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
