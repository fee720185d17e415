/**
 * From text to tokens, as https://github.com/bazelbuild/starlark/blob/master/spec.md#lexical-elements says:
 * indentation becomes `indent` and `dedent`, line ends inside brackets vanish. Byte strings are left out.
 */

import { PolicyError } from '../program.ts';

export interface Token {
  readonly kind: 'name' | 'integer' | 'float' | 'text' | 'operator' | 'newline' | 'indent' | 'dedent' | 'end';
  /** The name, the operator, or the value of a string. */
  readonly text: string;
  readonly number: number;
  readonly line: number;
}

const MAX_NESTING = 64;

const operators = [
  '<<=',
  '>>=',
  '//=',
  '**',
  '//',
  '<<',
  '>>',
  '<=',
  '>=',
  '==',
  '!=',
  '+=',
  '-=',
  '*=',
  '/=',
  '%=',
  '&=',
  '|=',
  '^=',
  '->',
  '+',
  '-',
  '*',
  '/',
  '%',
  '&',
  '|',
  '^',
  '~',
  '<',
  '>',
  '=',
  '(',
  ')',
  '[',
  ']',
  '{',
  '}',
  ',',
  ':',
  ';',
  '.',
];

/** Signs of other languages, and of what stands around a program, with the way out. */
const signs: Readonly<Record<string, string>> = {
  '`': 'Give the program alone, without Markdown around it',
  '!': 'Write "not x", or a != b',
  '?': 'Write "a if condition else b"',
  '@': 'There are no decorators: remove it',
};

const NAME = /[A-Za-z_][A-Za-z_0-9]*/y;
/** Prefixes of string literals in Python. */
const PREFIX = /^(?:f|fr|rf|b|br|rb|u)$/i;
const NUMBER =
  /0[xX][0-9a-fA-F]+|0[oO][0-7]+|0[bB][01]+|(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+)(?:[eE][+-]?[0-9]+)?/y;

export function tokenize(source: string): Token[] {
  return new Lexer(source).run();
}

class Lexer {
  readonly #source: string;
  readonly #tokens: Token[] = [];
  readonly #indents: number[] = [0];
  #at = 0;
  #line = 1;
  /** Brackets that are open. */
  readonly #open: { readonly bracket: string; readonly line: number }[] = [];

  constructor(source: string) {
    this.#source = source.replaceAll('\r\n', '\n');
  }

  run(): Token[] {
    this.#indentation();
    while (this.#at < this.#source.length) this.#next();
    const unclosed = this.#open.at(-1);
    if (unclosed !== undefined) {
      const { bracket, line } = unclosed;
      throw new PolicyError('compile', `the "${bracket}" of this line is not closed. Close it`, { line });
    }
    const last = this.#tokens.at(-1);
    if (last !== undefined && last.kind !== 'newline') this.#push('newline', '');
    while (this.#indents.length > 1) {
      this.#indents.pop();
      this.#push('dedent', '');
    }
    this.#push('end', '');
    return this.#tokens;
  }

  #next(): void {
    const c = this.#source[this.#at];
    if (c === '\n') this.#lineEnd();
    else if (c === ' ' || c === '\t') this.#at++;
    else if (c === '#') this.#skipComment();
    else if (c === '\\' && this.#source[this.#at + 1] === '\n') {
      this.#at += 2;
      this.#line++;
    } else if (!this.#string() && !this.#number() && !this.#name()) this.#operator();
  }

  #push(kind: Token['kind'], text: string, number = 0, line = this.#line): void {
    this.#tokens.push({ kind, text, number, line });
  }

  #fail(problem: string): never {
    throw new PolicyError('compile', problem, { line: this.#line });
  }

  #skipComment(): void {
    while (this.#at < this.#source.length && this.#source[this.#at] !== '\n') this.#at++;
  }

  #lineEnd(): void {
    this.#at++;
    if (this.#open.length === 0) this.#push('newline', '');
    this.#line++;
    if (this.#open.length === 0) this.#indentation();
  }

  /** Reads the blanks before a line's first token. Blank lines and comments do not count. */
  #indentation(): void {
    for (;;) {
      let width = 0;
      while (this.#source[this.#at] === ' ') {
        width++;
        this.#at++;
      }
      const c = this.#source[this.#at];
      if (c === '\t') this.#fail('a tab stands in the indentation. Indent with spaces');
      if (c === '#') this.#skipComment();
      if (this.#at >= this.#source.length) return;
      if (this.#source[this.#at] !== '\n') {
        this.#indentTo(width);
        return;
      }
      this.#at++;
      this.#line++;
    }
  }

  #indentTo(width: number): void {
    const current = this.#indents.at(-1) ?? 0;
    if (width > current) {
      if (this.#indents.length >= MAX_NESTING) this.#fail(`blocks nest deeper than ${MAX_NESTING}`);
      this.#indents.push(width);
      this.#push('indent', '');
      return;
    }
    while (width < (this.#indents.at(-1) ?? 0)) {
      this.#indents.pop();
      this.#push('dedent', '');
    }
    if (width !== this.#indents.at(-1)) {
      this.#fail(`${width} spaces fit no block around the line. Indent it as the lines of its block`);
    }
  }

  #name(): boolean {
    NAME.lastIndex = this.#at;
    const match = NAME.exec(this.#source);
    if (match === null) return false;
    this.#at += match[0].length;
    if (PREFIX.test(match[0]) && /["']/.test(this.#source[this.#at] ?? '')) {
      this.#fail(
        `there are no strings with ${match[0]} before them. Join texts with +, or use "{}".format(x)`,
      );
    }
    this.#push('name', match[0]);
    return true;
  }

  #number(): boolean {
    NUMBER.lastIndex = this.#at;
    const match = NUMBER.exec(this.#source);
    if (match === null) return false;
    const text = match[0];
    this.#at += text.length;
    NAME.lastIndex = this.#at;
    if (NAME.test(this.#source)) {
      if (this.#source[this.#at] === '_') this.#fail(`numbers have no "_". Write the digits alone`);
      this.#fail(`${text} is followed by a letter. Put a blank between them`);
    }
    const isFloat = /[.eE]/.test(text) && !/^0[xX]/.test(text);
    if (!isFloat && /^0[0-9]/.test(text)) this.#fail(`${text} begins with 0. Write 0o for an octal number`);
    const value = Number(text);
    if (!isFloat && !Number.isSafeInteger(value)) {
      this.#fail(`${text} is over 2^53, beyond which integers are not exact. Write a float`);
    }
    if (!Number.isFinite(value)) this.#fail(`${text} is too large for a float`);
    this.#push(isFloat ? 'float' : 'integer', text, value);
    return true;
  }

  #string(): boolean {
    const start = /[rR]?("""|'''|"|')/y;
    start.lastIndex = this.#at;
    const match = start.exec(this.#source);
    if (match === null) return false;
    const quote = match[1] as string;
    const isRaw = match[0].length > quote.length;
    const line = this.#line;
    this.#at += match[0].length;
    let value = '';
    while (!this.#source.startsWith(quote, this.#at)) {
      const c = this.#source[this.#at];
      if (c === undefined || (c === '\n' && quote.length === 1)) {
        throw new PolicyError('compile', `a string is not closed. Add ${quote}`, { line });
      }
      if (c === '\n') this.#line++;
      if (c === '\\') value += isRaw ? this.#rawEscape() : this.#escape();
      else {
        value += c;
        this.#at++;
      }
    }
    this.#at += quote.length;
    this.#push('text', value, 0, line);
    return true;
  }

  #rawEscape(): string {
    const pair = this.#source.slice(this.#at, this.#at + 2);
    if (pair[1] === '\n') this.#line++;
    this.#at += 2;
    return pair;
  }

  #escape(): string {
    const c = this.#source[this.#at + 1] ?? '';
    this.#at += 2;
    const simple: Record<string, string> = {
      n: '\n',
      t: '\t',
      r: '\r',
      '\\': '\\',
      "'": "'",
      '"': '"',
      a: '\x07',
      b: '\b',
      f: '\f',
      v: '\v',
    };
    if (c === '\n') {
      this.#line++;
      return '';
    }
    const known = Object.hasOwn(simple, c) ? simple[c] : undefined;
    if (known !== undefined) return known;
    const digits = c === 'x' ? 2 : c === 'u' ? 4 : c === 'U' ? 8 : 0;
    const code = this.#source.slice(this.#at, this.#at + digits);
    if (digits === 0 || !new RegExp(`^[0-9a-fA-F]{${digits}}$`).test(code)) {
      this.#fail(`\\${c} is not an escape. Write \\\\ for a backslash`);
    }
    this.#at += digits;
    const point = Number.parseInt(code, 16);
    if (point > 0x10ffff || (point >= 0xd800 && point < 0xe000))
      this.#fail(`\\${c}${code} is not a character`);
    return String.fromCodePoint(point);
  }

  #operator(): void {
    const operator = operators.find((each) => this.#source.startsWith(each, this.#at));
    if (operator === undefined) {
      const c = String.fromCodePoint(this.#source.codePointAt(this.#at) ?? 0);
      const remedy = Object.hasOwn(signs, c) ? `. ${signs[c]}` : '';
      this.#fail(`${JSON.stringify(c)} does not belong in a program${remedy}`);
    }
    if ('([{'.includes(operator)) this.#open.push({ bracket: operator, line: this.#line });
    if (')]}'.includes(operator)) this.#open.pop();
    this.#push('operator', operator);
    this.#at += operator.length;
  }
}

// Names that Python, JavaScript and C know and Starlark does not, each with what to write instead.

const mathNames = ['ceil', 'exp', 'fabs', 'floor', 'log', 'pi', 'pow', 'sqrt'];

const remedies: Readonly<Record<string, string>> = {
  null: 'Write None',
  undefined: 'Write None',
  nil: 'Write None',
  print: 'A policy prints nothing: remove it',
  console: 'A policy prints nothing: remove it',
  sum: 'Add up in a loop',
  round: 'Write math.round(x)',
  set: 'Use a dict with True for each member',
  map: 'Write [f(x) for x in items]',
  filter: 'Write [x for x in items if f(x)]',
  isinstance: 'Compare type(x) with a text, as "int"',
  random: 'A policy has no chance: decide by what it is given',
  time: 'A policy has no clock: read nowUs',
  datetime: 'A policy has no clock: read nowUs',
  np: 'Nothing can be imported: use math and lists',
  numpy: 'Nothing can be imported: use math and lists',
  Math: 'Write math',
  this: 'Functions are no methods: pass what they need',
  self: 'Functions are no methods: pass what they need',
  const: 'Assign without it: x = 1',
  let: 'Assign without it: x = 1',
  var: 'Assign without it: x = 1',
  function: 'Write def name(...):',
  ...Object.fromEntries(mathNames.map((name) => [name, `Write math.${name}`])),
};

export function remedyFor(name: string): string | undefined {
  return Object.hasOwn(remedies, name) ? remedies[name] : undefined;
}
