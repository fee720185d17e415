/**
 * Random modules with blocks, loops, branches, tables, calls and traps. Each piece is made twice: as bytes,
 * and as a function that does the same in JavaScript and counts instructions one by one. So result and steps
 * are known without the rewriter, and without any reader of the bytes.
 */

import { Random } from '../../../fuzz/random.ts';

/** What the model of a running function knows. */
interface Frame {
  readonly locals: Int32Array;
  readonly counter: { steps: number };
}

export class Trap extends Error {}

interface Expression {
  readonly bytes: readonly number[];
  value(frame: Frame): number;
}

/** How a statement ended: went on, left a number of labels, or left the function. */
const ON = -1;
const OUT = 1_000_000;

interface Statement {
  readonly bytes: readonly number[];
  run(frame: Frame): number;
}

const LOCALS = 6;
/** Locals behind these count the turns of loops, one for each depth. */
const COUNTERS = 5;
const MAX_DEPTH = 4;

const operators: readonly (readonly [number, (a: number, b: number) => number])[] = [
  [0x6a, (a, b) => (a + b) | 0],
  [0x6b, (a, b) => (a - b) | 0],
  [0x6c, (a, b) => Math.imul(a, b)],
  [0x71, (a, b) => a & b],
  [0x73, (a, b) => a ^ b],
  [0x48, (a, b) => (a < b ? 1 : 0)],
  [
    0x6d,
    (a, b) => {
      if (b === 0 || (a === -(2 ** 31) && b === -1)) throw new Trap();
      return (a / b) | 0;
    },
  ],
];

export interface RandomModule {
  readonly bytes: Uint8Array;
  /** Runs the model. @throws Trap */
  run(x: number): { readonly result: number; readonly steps: number };
}

export class RandomModules {
  readonly #random: Random;
  #helper: Statement | null = null;
  /** Labels around a statement, the innermost last. A branch to a loop does not leave it. */
  #labels: boolean[] = [];

  constructor(seed: number) {
    this.#random = new Random(seed);
  }

  module(): RandomModule {
    this.#helper = null;
    this.#labels = [];
    const helper = this.#block(3);
    this.#helper = helper;
    const main = this.#block(5);
    const i32 = 0x7f;
    const section = (id: number, content: readonly number[]): number[] => [
      id,
      ...leb(content.length),
      ...content,
    ];
    const body = (code: readonly number[]): number[] => {
      const whole = [1, LOCALS + COUNTERS, i32, ...code, 0x0b];
      return [...leb(whole.length), ...whole];
    };
    const name = (text: string): number[] => [
      text.length,
      ...text.split('').map((each) => each.charCodeAt(0)),
    ];
    const code = [
      3,
      ...body([...readInput, ...main.bytes, 0x20, 2, 0xb7]),
      ...body([...helper.bytes, 0x20, 1]),
      ...body([0x41, 8]),
    ];
    const bytes = Uint8Array.from([
      ...[0, 0x61, 0x73, 0x6d, 1, 0, 0, 0],
      ...section(1, [2, 0x60, 1, i32, 1, 0x7c, 0x60, 1, i32, 1, i32]),
      ...section(3, [3, 0, 1, 1]),
      ...section(5, [1, 0, 1]),
      ...section(7, [3, ...name('run'), 0, 0, ...name('alloc'), 0, 2, ...name('memory'), 2, 0]),
      ...section(10, code),
    ]);
    return {
      bytes,
      run(x) {
        const counter = { steps: 0 };
        const locals = new Int32Array(1 + LOCALS + COUNTERS);
        locals[0] = 8;
        locals[1] = x;
        counter.steps += 4;
        const ended = main.run({ locals, counter });
        if (ended !== OUT) counter.steps += 2;
        return { result: locals[2], steps: counter.steps };
      },
    };
  }

  #block(statements: number): Statement {
    const list = Array.from({ length: 1 + this.#random.below(statements) }, () => this.#statement());
    return {
      bytes: list.flatMap(({ bytes }) => bytes),
      run(frame) {
        for (const each of list) {
          const ended = each.run(frame);
          if (ended !== ON) return ended;
        }
        return ON;
      },
    };
  }

  #inside(isLoop: boolean): Statement {
    this.#labels.push(isLoop);
    const inner = this.#block(3);
    this.#labels.pop();
    return inner;
  }

  #statement(): Statement {
    const kinds = this.#labels.length >= MAX_DEPTH ? 3 : 7;
    switch (this.#random.below(kinds)) {
      case 0:
        return this.#branch();
      case 1:
        return this.#call();
      case 2:
        return this.#set();
      case 3:
        return this.#if();
      case 4:
        return this.#loop();
      case 5:
        return this.#enclosed();
      default:
        return this.#set();
    }
  }

  #set(): Statement {
    const local = 1 + this.#random.below(LOCALS - 1);
    const { bytes, value } = this.#expression(3);
    return {
      bytes: [...bytes, 0x21, local],
      run(frame) {
        const result = value(frame);
        frame.counter.steps++;
        frame.locals[local] = result;
        return ON;
      },
    };
  }

  #if(): Statement {
    const condition = this.#expression(2);
    const then = this.#inside(false);
    const otherwise = this.#random.chance(0.5) ? this.#inside(false) : null;
    const rest = otherwise === null ? [] : [0x05, ...otherwise.bytes];
    return {
      bytes: [...condition.bytes, 0x04, 0x40, ...then.bytes, ...rest, 0x0b],
      run(frame) {
        const isMet = condition.value(frame) !== 0;
        frame.counter.steps++;
        const ended = isMet ? then.run(frame) : (otherwise?.run(frame) ?? ON);
        return outOfOne(ended);
      },
    };
  }

  #enclosed(): Statement {
    const inner = this.#inside(false);
    return {
      bytes: [0x02, 0x40, ...inner.bytes, 0x0b],
      run(frame) {
        frame.counter.steps++;
        return outOfOne(inner.run(frame));
      },
    };
  }

  /** Runs `turns` times: local.get, i32.const, i32.sub, local.tee, br_if behind each turn. */
  #loop(): Statement {
    const local = 1 + LOCALS + (this.#labels.length % COUNTERS);
    const turns = 1 + this.#random.below(4);
    const inner = this.#inside(true);
    const last = [0x20, local, 0x41, 1, 0x6b, 0x22, local, 0x0d, 0];
    return {
      bytes: [0x41, turns, 0x21, local, 0x03, 0x40, ...inner.bytes, ...last, 0x0b],
      run(frame) {
        const { counter, locals } = frame;
        counter.steps += 3;
        locals[local] = turns;
        for (;;) {
          const ended = inner.run(frame);
          if (ended !== ON) return outOfOne(ended);
          counter.steps += 5;
          if (--locals[local] === 0) return ON;
        }
      },
    };
  }

  /** `br_if`, `br_table` or `br` to a label other than a loop's, or out of the function. */
  #branch(): Statement {
    const targets = this.#labels.flatMap((isLoop, i) => (isLoop ? [] : [this.#labels.length - 1 - i]));
    if (targets.length === 0 || this.#random.chance(0.1)) return this.#return();
    const target = this.#random.pick(targets);
    const condition = this.#expression(1);
    if (this.#random.chance(0.3)) {
      const other = this.#random.pick(targets);
      return {
        bytes: [...condition.bytes, 0x0e, 1, target, other],
        run(frame) {
          const which = condition.value(frame);
          frame.counter.steps++;
          return which === 0 ? target : other;
        },
      };
    }
    return {
      bytes: [...condition.bytes, 0x0d, target],
      run(frame) {
        const isMet = condition.value(frame) !== 0;
        frame.counter.steps++;
        return isMet ? target : ON;
      },
    };
  }

  /** Out of the function when a condition is met; what it returns is local 2, or local 1 in the helper. */
  #return(): Statement {
    const condition = this.#expression(1);
    const isHelper = this.#helper === null;
    const value = isHelper ? [0x20, 1] : [0x20, 2, 0xb7];
    return {
      bytes: [...condition.bytes, 0x04, 0x40, ...value, 0x0f, 0x0b],
      run(frame) {
        const isMet = condition.value(frame) !== 0;
        frame.counter.steps++;
        if (!isMet) return ON;
        frame.counter.steps += isHelper ? 2 : 3;
        return OUT;
      },
    };
  }

  #call(): Statement {
    const helper = this.#helper;
    if (helper === null) return this.#set();
    const local = 1 + this.#random.below(LOCALS - 1);
    const argument = this.#expression(1);
    return {
      bytes: [...argument.bytes, 0x10, 1, 0x21, local],
      run(frame) {
        const locals = new Int32Array(1 + LOCALS + COUNTERS);
        locals[0] = argument.value(frame);
        const { counter } = frame;
        counter.steps++;
        const ended = helper.run({ locals, counter });
        if (ended !== OUT) counter.steps++;
        counter.steps++;
        frame.locals[local] = locals[1];
        return ON;
      },
    };
  }

  #expression(depth: number): Expression {
    const kind = depth === 0 ? this.#random.below(2) : this.#random.below(5);
    if (kind <= 1) {
      const number = this.#random.below(kind === 0 ? 64 : LOCALS);
      return {
        bytes: [kind === 0 ? 0x41 : 0x20, number],
        value({ counter, locals }) {
          counter.steps++;
          return kind === 0 ? number : locals[number];
        },
      };
    }
    const left = this.#expression(depth - 1);
    const right = this.#expression(depth - 1);
    const [opcode, compute] = this.#random.pick(operators);
    return {
      bytes: [...left.bytes, ...right.bytes, opcode],
      value(frame) {
        const [a, b] = [left.value(frame), right.value(frame)];
        frame.counter.steps++;
        return compute(a, b);
      },
    };
  }
}

/** Local 1 becomes the number at the address in local 0: local.get, f64.load, i32.trunc_f64_s, local.set. */
const readInput: readonly number[] = [0x20, 0, 0x2b, 3, 0, 0xaa, 0x21, 1];

function outOfOne(ended: number): number {
  return ended === ON || ended === OUT ? ended : ended - 1;
}

function leb(value: number): number[] {
  return value < 128 ? [value] : [(value & 127) | 128, ...leb(Math.floor(value / 128))];
}
