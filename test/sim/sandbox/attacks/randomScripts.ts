/** Random JavaScript: programs of odd pieces, some of which allocate, recur, loop without end or lie. */

import type { Random } from '../../../fuzz/random.ts';

const names = ['a', 'b', 'c', 'd', 'input', 'run', 'Object', 'Array', 'Math', 'JSON', 'globalThis'] as const;
const fields = [
  'x',
  'length',
  'constructor',
  '__proto__',
  'prototype',
  'toString',
  'map',
  '0',
  'name',
] as const;
const operators = [
  '+',
  '-',
  '*',
  '/',
  '%',
  '**',
  '<',
  '===',
  '&&',
  '||',
  '??',
  '&',
  '>>>',
  'in',
  'instanceof',
] as const;
const literals = [
  '0',
  '1',
  '-1',
  '2.5',
  '1e9',
  'NaN',
  '""',
  '"text"',
  'null',
  'undefined',
  'true',
  '7n',
  '[]',
  '({})',
] as const;
const methods = [
  'push(a)',
  'concat(b)',
  'map((v) => v)',
  'reduce((p, q) => p + q, 0)',
  'join()',
  'sort()',
  'flat(9)',
  'fill(a)',
  'toString()',
  'repeat(9)',
  'padEnd(999)',
  'split("")',
  'at(-1)',
  'call(a, b)',
  'entries()',
] as const;

export class RandomScripts {
  readonly #random: Random;

  constructor(random: Random) {
    this.#random = random;
  }

  program(): string {
    const top = this.#random.chance(0.3) ? this.#statement(2) : '';
    const body = Array.from({ length: this.#random.between(1, 6) }, () => this.#statement(3)).join('\n  ');
    const result = this.#random.chance(0.7) ? 'Number(a) || 1' : this.#value(2);
    return `let a = 1, b = [1, 2], c = 'c', d = { x: 1 };\n${top}\nfunction run(input) {\n  ${body}\n  return ${result};\n}\n`;
  }

  #statement(depth: number): string {
    const value = (): string => this.#value(depth);
    const block = (): string =>
      depth === 0 ? ';' : `{ ${this.#statement(depth - 1)} ${this.#statement(depth - 1)} }`;
    switch (this.#random.below(14)) {
      case 0:
        return `if (${value()}) ${block()} else ${block()}`;
      case 1:
        return `for (let i = 0; i < ${this.#random.pick(['3', '99', '1e9', value()])}; i++) ${block()}`;
      case 2:
        return `for (const e of ${value()}) ${block()}`;
      case 3:
        return `for (const e in ${value()}) ${block()}`;
      case 4:
        return `try ${block()} catch (e) ${block()} finally ${block()}`;
      case 5:
        return `while (${value()}) ${block()}`;
      case 6:
        return `throw ${value()};`;
      case 7:
        return `{ const f = (v) => ${value()}; a = f(${value()}); }`;
      case 8:
        return `class K { get x() { return ${value()}; } static y = ${value()}; }`;
      case 9:
        return `Object.defineProperty(${value()}, 'x', { get() { return ${value()}; } });`;
      case 10:
        return `{ const [p, ...q] = ${value()}; b = q; }`;
      case 11:
        return `b = [...(function* () { yield ${value()}; yield* ${value()}; })()];`;
      default:
        return `${this.#random.pick(['a', 'b', 'c', 'd', 'd.x', 'b[0]', 'b.length'])} = ${value()};`;
    }
  }

  #value(depth: number): string {
    const inner = (): string => this.#value(depth - 1);
    if (depth === 0) return this.#random.chance(0.5) ? this.#random.pick(names) : this.#random.pick(literals);
    switch (this.#random.below(11)) {
      case 0:
        return `((${inner()}) ${this.#random.pick(operators)} (${inner()}))`;
      case 1:
        return `(${inner()}).${this.#random.pick(methods)}`;
      case 2:
        return `(${inner()})?.[${JSON.stringify(this.#random.pick(fields))}]`;
      case 3:
        return `[${inner()}, ...[${inner()}]]`;
      case 4:
        return `({ x: ${inner()}, [Symbol.iterator]() { return ${inner()}; } })`;
      case 5:
        return `JSON.stringify(${inner()})`;
      case 6:
        return `(() => ${inner()})()`;
      case 7:
        return `run(${inner()})`;
      case 8:
        return `new Array(${this.#random.pick(['3', '999', '9999', '4294967295'])}).fill(${inner()})`;
      default:
        return inner();
    }
  }
}
