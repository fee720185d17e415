import { expect, test } from 'vitest';
import { PolicyError } from '../../../../src/policy/sandbox/program.ts';
import { repr } from '../../../../src/policy/sandbox/starlark/operations.ts';
import { RecordShape, StarRecord } from '../../../../src/policy/sandbox/starlark/value.ts';
import { Random } from '../../../fuzz/random.ts';
import { interpret } from '../../../sandbox/starlark/interpreter.ts';
import { sized } from '../../../sized.ts';
import { compile } from './bothEngines.ts';

const seed = Number(process.env.TIERKV_SEED ?? 5);
const shape = new RecordShape('r', { load: 'int', share: 'float', id: 'text', busy: 'bool' });
const records = [
  [3, 0.25, 'a', true],
  [0, -0, 'b', false],
  [9007199254740991, Number.NaN, '', true],
].map((values) => new StarRecord(shape, values));

const leaves = ['1', '3', '2.5', '0.5', '1e308', 'x', 'y', 'z', 'r.load', 'r.share', 'a', 'b'] as const;
const rare = ['r.id', 'r.busy', 'r.none', '"t"', '[1.5]', 'late', 'range(2)'] as const;

/** Functions in which floats, ints and other things meet in all operators. */
class FloatPrograms {
  readonly #random: Random;

  constructor(random: Random) {
    this.#random = random;
  }

  program(): string {
    const lines = Array.from({ length: this.#random.between(1, 5) }, () => this.#statement('    '));
    const inner = this.#random.chance(0.2) ? '    f = lambda v: v + x\n    y = f(y)\n' : '';
    return `def run(r, a, b):\n    x = 0.5\n    y = 1 / 4\n    z = 1\n    if a:\n        late = 1.5\n${inner}${lines.join('')}    return [x, y, z, ${this.#value(3)}]\n`;
  }

  #statement(pad: string): string {
    const name = this.#random.pick(['x', 'y', 'z', 'late']);
    switch (this.#random.below(6)) {
      case 0:
        return `${pad}if ${this.#value(2)} ${this.#random.pick(['<', '<=', '>', '>=', '==', '!='])} ${this.#value(2)}:\n${this.#statement(`${pad}    `)}`;
      case 1:
        return `${pad}for ${this.#random.pick(['i', 'z'])} in range(3):\n${this.#statement(`${pad}    `)}`;
      case 2:
        return `${pad}${name} ${this.#random.pick(['+=', '-=', '*=', '/='])} ${this.#value(2)}\n`;
      case 3:
        return `${pad}z = [${this.#value(2)} for a in [1, 2.5]]\n`;
      default:
        return `${pad}${name} = ${this.#value(3)}\n`;
    }
  }

  #value(depth: number): string {
    if (depth === 0) return this.#random.pick(this.#random.chance(0.985) ? leaves : rare);
    const inner = (): string => this.#value(depth - 1);
    switch (this.#random.below(9)) {
      case 0:
        return `-(${inner()})`;
      case 1:
        return `(${inner()} if ${inner()} > ${inner()} else ${inner()})`;
      case 2:
        return inner();
      default: {
        const operator = this.#random.pick(['+', '-', '*', '/', '/', '+', '-', '*', '//', '%']);
        return `(${inner()} ${operator} ${inner()})`;
      }
    }
  }
}

function runIn(engine: typeof compile, source: string): string[] {
  const instance = engine(source, { steps: 5_000, memoryUnits: 5_000 });
  const run = instance.function('run', 3);
  return records.map((record, i) => {
    let result: string;
    try {
      const value = instance.call(run, [record, [1, 4, 'text'][i], [2, 7, -3][i]]);
      const { stepsUsed, memoryUsed } = instance.meter;
      instance.meter.refill();
      return `${repr(instance.meter, value, 0)} ${stepsUsed} ${memoryUsed}`;
    } catch (error) {
      if (!(error instanceof PolicyError)) throw error;
      result = error.message;
    }
    return `${result} ${instance.meter.stepsUsed} ${instance.meter.memoryUsed}`;
  });
}

test(`floats without objects change no result, error, step or unit of memory (seed ${seed})`, () => {
  const programs = new FloatPrograms(new Random(seed));
  let values = 0;
  let errors = 0;
  for (let i = 0; i < sized(400, 1_200); i++) {
    const source = programs.program();
    const interpreted = runIn(interpret, source);
    expect(runIn(compile, source), source).toEqual(interpreted);
    for (const each of interpreted) {
      if (each.startsWith('[')) values++;
      else errors++;
    }
  }
  expect(values).toBeGreaterThan(sized(150, 500));
  expect(errors).toBeGreaterThan(sized(75, 500));
});
