/** Tokens one after the other, with the questions and the errors that a parser needs. */

import { PolicyError } from '../../../policyError.ts';
import type { Token } from '../lexer.ts';

/** Python's words that Starlark has no use for, with the way out. */
const foreign: Readonly<Record<string, string>> = {
  while: 'There is no "while". Write "for i in range(n)" with a bound',
  class: 'There are no classes. Use functions and dicts',
  import: 'Nothing can be imported. "math" is there already: remove the line',
  from: 'Nothing can be imported. "math" is there already: remove the line',
  try: 'There are no exceptions. Test before you compute',
  except: 'There are no exceptions. Test before you compute',
  raise: 'There are no exceptions. Call fail(text)',
  assert: 'There is no "assert". Call fail(text) after an "if"',
  with: 'There is no "with"',
  yield: 'There are no generators. Build a list',
  async: 'There is no "async"',
  await: 'There is no "await"',
  global: 'There is no "global". Keep what must last in the state that the call is given',
  nonlocal: 'There is no "nonlocal". Use a list or a dict of the outer function',
  del: 'There is no "del". Use the method pop',
  is: 'There is no "is". Compare with ==',
  finally: 'There are no exceptions',
  as: 'There is no "as"',
};

const keywords = new Set([
  'and',
  'break',
  'continue',
  'def',
  'elif',
  'else',
  'for',
  'if',
  'in',
  'lambda',
  'not',
  'or',
  'pass',
  'return',
]);

const MAX_DEPTH = 48;

export class TokenStream {
  readonly #tokens: readonly Token[];
  #at = 0;
  #depth = 0;

  constructor(tokens: readonly Token[]) {
    this.#tokens = tokens;
  }

  get token(): Token {
    return this.#tokens[this.#at];
  }

  get line(): number {
    return this.token.line;
  }

  /** The token before this one. */
  get previous(): Token | undefined {
    return this.#tokens[this.#at - 1];
  }

  /** The token after this one. */
  get following(): Token | undefined {
    return this.#tokens[this.#at + 1];
  }

  advance(): Token {
    const token = this.token;
    if (token.kind !== 'end') this.#at++;
    return token;
  }

  /** Whether the token is this operator or keyword. */
  is(text: string): boolean {
    const { kind, text: found } = this.token;
    return found === text && (kind === 'operator' || kind === 'name');
  }

  isAny(texts: readonly string[]): boolean {
    return texts.some((text) => this.is(text));
  }

  accept(text: string): boolean {
    if (!this.is(text)) return false;
    this.advance();
    return true;
  }

  expect(text: string): Token {
    if (!this.is(text)) this.refuseForeign();
    if (!this.is(text)) this.fail(`"${text}" is expected, not ${this.describe()}`);
    return this.advance();
  }

  acceptKind(kind: Token['kind']): boolean {
    if (this.token.kind !== kind) return false;
    this.advance();
    return true;
  }

  /** A name after a point. Each word is one, since nothing else can stand there. */
  field(): Token {
    if (this.token.kind !== 'name') this.fail(`the name of a field is expected, not ${this.describe()}`);
    return this.advance();
  }

  /** A name that is no keyword. */
  name(what: string): Token {
    const { kind, text } = this.token;
    if (kind !== 'name' || keywords.has(text)) this.fail(`${what} is expected, not ${this.describe()}`);
    this.refuseForeign();
    return this.advance();
  }

  isKeyword(): boolean {
    return this.token.kind === 'name' && keywords.has(this.token.text);
  }

  refuseForeign(): void {
    const { kind, text } = this.token;
    const remedy = kind === 'name' && Object.hasOwn(foreign, text) ? foreign[text] : undefined;
    if (remedy !== undefined) this.fail(remedy);
  }

  describe(): string {
    const { kind, text } = this.token;
    if (kind === 'end') return 'the end of the text';
    if (kind === 'newline') return 'the end of the line';
    if (kind === 'indent' || kind === 'dedent') return 'a change of indentation';
    return kind === 'text' ? `the string ${JSON.stringify(text.slice(0, 20))}` : `"${text}"`;
  }

  fail(problem: string): never {
    throw new PolicyError('compile', problem, { line: this.line });
  }

  /** Runs a part of the parser one level deeper. Deep nesting would exhaust the stack of either engine. */
  nested<T>(parse: () => T): T {
    if (++this.#depth > MAX_DEPTH) {
      this.fail(`the text nests deeper than ${MAX_DEPTH} levels. Give parts of it names`);
    }
    const result = parse();
    this.#depth--;
    return result;
  }
}
