/**
 * From tokens to a syntax tree, by recursive descent. Every error names its line and what to write instead;
 * words of Python, JavaScript and C that Starlark lacks are named as such.
 */

import { PolicyError } from '../program.ts';
import type {
  BinaryOperator,
  ComprehensionClause,
  Expression,
  FunctionNode,
  Parameter,
  Statement,
} from './ast.ts';
import { type Token, tokenize } from './lexer.ts';

// Expressions: https://github.com/bazelbuild/starlark/blob/master/spec.md#expressions.

/** Binary operators, the loosest first. All of a row bind alike and to the left. */
const levels: readonly (readonly BinaryOperator[])[] = [
  ['==', '!=', '<', '<=', '>', '>=', 'in', 'not in'],
  ['|'],
  ['^'],
  ['&'],
  ['<<', '>>'],
  ['+', '-'],
  ['*', '/', '//', '%'],
];

/** An expression, or several with commas between them: a tuple without parentheses. */
function parseTuple(stream: TokenStream): Expression {
  const line = stream.line;
  const first = parseExpression(stream);
  if (!stream.is(',')) return first;
  const elements = [first];
  while (stream.accept(',')) {
    if (endsTuple(stream)) break;
    elements.push(parseExpression(stream));
  }
  return { kind: 'tuple', elements, line };
}

function endsTuple(stream: TokenStream): boolean {
  const { kind } = stream.token;
  return kind === 'newline' || kind === 'end' || stream.isAny([')', ']', '}', '=', ';', ':', 'in']);
}

function parseExpression(stream: TokenStream): Expression {
  return stream.nested(() => {
    if (stream.is('lambda')) return parseLambda(stream);
    const line = stream.line;
    const whenTrue = parseOr(stream);
    if (!stream.accept('if')) return whenTrue;
    const condition = parseOr(stream);
    stream.expect('else');
    return { kind: 'conditional', condition, whenTrue, whenFalse: parseExpression(stream), line };
  });
}

/** The targets of an assignment or a loop: no comparison, since "in" ends them. */
function parseTargets(stream: TokenStream): Expression {
  const line = stream.line;
  const first = parseBinary(stream, 1);
  if (!stream.is(',')) return first;
  const elements = [first];
  while (stream.accept(',')) {
    if (endsTuple(stream)) break;
    elements.push(parseBinary(stream, 1));
  }
  return { kind: 'tuple', elements, line };
}

function parseLambda(stream: TokenStream): Expression {
  const { line } = stream.expect('lambda');
  const parameters = parseParameters(stream, ':', parseExpression);
  stream.expect(':');
  const value = parseExpression(stream);
  const node: FunctionNode = {
    ...parameters,
    name: 'lambda',
    body: [{ kind: 'return', value, line, charge: 0 }],
    slots: [],
    captures: [],
    id: 0,
    line,
  };
  return { kind: 'lambda', function: node, line };
}

function parseOr(stream: TokenStream): Expression {
  let left = parseAnd(stream);
  while (stream.is('or')) {
    const { line } = stream.advance();
    left = { kind: 'logical', operator: 'or', left, right: parseAnd(stream), line };
  }
  return left;
}

function parseAnd(stream: TokenStream): Expression {
  let left = parseNot(stream);
  while (stream.is('and')) {
    const { line } = stream.advance();
    left = { kind: 'logical', operator: 'and', left, right: parseNot(stream), line };
  }
  return left;
}

function parseNot(stream: TokenStream): Expression {
  if (!stream.is('not')) return parseBinary(stream, 0);
  const { line } = stream.advance();
  return stream.nested(() => ({ kind: 'unary', operator: 'not', operand: parseNot(stream), line }));
}

function binaryOperator(stream: TokenStream, level: number): BinaryOperator | undefined {
  if (level === 0 && stream.is('not') && stream.following?.text === 'in') return 'not in';
  return levels[level].find((operator) => operator !== 'not in' && stream.is(operator));
}

function parseBinary(stream: TokenStream, level: number): Expression {
  if (level === levels.length) return parseUnary(stream);
  let left = parseBinary(stream, level + 1);
  for (let count = 0; ; count++) {
    const operator = binaryOperator(stream, level);
    if (operator === undefined) return left;
    if (level === 0 && count > 0) {
      stream.fail('comparisons cannot be chained. Write "a < b and b < c"');
    }
    const { line } = stream.advance();
    if (operator === 'not in') stream.advance();
    left = { kind: 'binary', operator, left, right: parseBinary(stream, level + 1), line };
  }
}

function parseUnary(stream: TokenStream): Expression {
  const operator = (['-', '+', '~'] as const).find((each) => stream.is(each));
  if (operator === undefined) return parsePrimary(stream);
  const { line } = stream.advance();
  return stream.nested(() => ({ kind: 'unary', operator, operand: parseUnary(stream), line }));
}

function parsePrimary(stream: TokenStream): Expression {
  let value = parseOperand(stream);
  for (let count = 0; stream.isAny(['.', '[', '(', '**']); count++) {
    if (count > 32) stream.fail('more than 32 calls, indexes and attributes follow each other');
    const { line, text } = stream.advance();
    if (text === '**') stream.fail('Starlark has no operator "**". Use math.pow(x, y)');
    if (text === '.') value = { kind: 'attribute', object: value, name: stream.field().text, line };
    else if (text === '[') value = parseIndex(stream, value, line);
    else value = parseCall(stream, value, line);
  }
  return value;
}

function parseIndex(stream: TokenStream, object: Expression, line: number): Expression {
  const bound = (): Expression | null => (stream.isAny([':', ']']) ? null : parseExpression(stream));
  const start = stream.is(':') ? null : parseTuple(stream);
  if (start !== null && stream.accept(']')) return { kind: 'index', object, index: start, line };
  stream.expect(':');
  const stop = bound();
  const step = stream.accept(':') ? bound() : null;
  stream.expect(']');
  return { kind: 'slice', object, start, stop, step, line };
}

function parseCall(stream: TokenStream, callee: Expression, line: number): Expression {
  const positional: Expression[] = [];
  const named: { name: string; value: Expression }[] = [];
  let rest: Expression | null = null;
  let namedRest: Expression | null = null;
  while (!stream.is(')')) {
    if (namedRest !== null) stream.fail('nothing may follow **kwargs in a call');
    if (stream.accept('**')) namedRest = parseExpression(stream);
    else if (rest === null && stream.accept('*')) rest = parseExpression(stream);
    else if (stream.token.kind === 'name' && stream.following?.text === '=' && !stream.isKeyword()) {
      const { text: name } = stream.name('a name');
      stream.expect('=');
      if (named.some((each) => each.name === name)) stream.fail(`the argument ${name} is given twice`);
      named.push({ name, value: parseExpression(stream) });
    } else {
      if (rest !== null || named.length > 0) stream.fail('a positional argument follows a named one');
      positional.push(parseExpression(stream));
      if (positional.length === 1 && stream.is('for')) {
        stream.fail('there are no generators. Write a list: [... for ...]');
      }
    }
    if (!stream.accept(',')) break;
  }
  stream.expect(')');
  return { kind: 'call', callee, positional, named, rest, namedRest, line };
}

function parseOperand(stream: TokenStream): Expression {
  const { kind, text, number, line } = stream.token;
  if (kind === 'integer' || kind === 'float') {
    stream.advance();
    return { kind, value: number, line };
  }
  if (kind === 'text') return parseText(stream);
  if (stream.accept('[')) return parseList(stream, line);
  if (stream.accept('{')) return parseDict(stream, line);
  if (stream.accept('(')) return parseParentheses(stream, line);
  if (kind === 'name' && !stream.isKeyword()) {
    stream.name('a value');
    return { kind: 'name', name: text, binding: null, line };
  }
  const twice = stream.previous?.text;
  if ((text === '&' || text === '|') && twice === text) {
    stream.fail(`Starlark has no "${text}${text}". Write "${text === '&' ? 'and' : 'or'}"`);
  }
  if (kind === 'newline' && (twice === '+' || twice === '-')) {
    stream.fail(`a value is expected behind "${twice}". To count, write x ${twice}= 1`);
  }
  return stream.fail(`a value is expected, not ${stream.describe()}`);
}

function parseText(stream: TokenStream): Expression {
  const { text, line } = stream.advance();
  if (stream.token.kind === 'text') stream.fail('two strings follow each other. Put a + between them');
  return { kind: 'text', value: text, line };
}

function parseParentheses(stream: TokenStream, line: number): Expression {
  if (stream.accept(')')) return { kind: 'tuple', elements: [], line };
  const value = parseTuple(stream);
  if (stream.is('for')) stream.fail('there are no generators. Write a list: [... for ...]');
  stream.expect(')');
  return value;
}

function parseList(stream: TokenStream, line: number): Expression {
  if (stream.accept(']')) return { kind: 'list', elements: [], line };
  const first = parseExpression(stream);
  if (stream.is('for')) return parseComprehension(stream, null, first, ']', line);
  const elements = [first];
  while (stream.accept(',') && !stream.is(']')) elements.push(parseExpression(stream));
  stream.expect(']');
  return { kind: 'list', elements, line };
}

function parseDict(stream: TokenStream, line: number): Expression {
  const entries: [Expression, Expression][] = [];
  while (!stream.is('}')) {
    const key = parseExpression(stream);
    if (stream.isAny([',', '}'])) stream.fail('there are no sets. Write a list, or a dict: {key: True}');
    stream.expect(':');
    const value = parseExpression(stream);
    if (entries.length === 0 && stream.is('for')) return parseComprehension(stream, key, value, '}', line);
    entries.push([key, value]);
    if (!stream.accept(',')) break;
  }
  stream.expect('}');
  return { kind: 'dict', entries, line };
}

function parseComprehension(
  stream: TokenStream,
  key: Expression | null,
  value: Expression,
  end: string,
  line: number,
): Expression {
  const clauses: ComprehensionClause[] = [];
  while (!stream.is(end)) {
    const at = stream.line;
    if (clauses.length >= 16) stream.fail('a comprehension has more than 16 clauses');
    if (clauses.length > 0 && stream.accept('if')) {
      clauses.push({ kind: 'if', condition: parseOr(stream), line: at });
    } else {
      stream.expect('for');
      const target = parseTargets(stream);
      checkTarget(target);
      stream.expect('in');
      clauses.push({ kind: 'for', target, iterable: parseOr(stream), line: at });
    }
  }
  stream.expect(end);
  return { kind: 'comprehension', key, value, clauses, line };
}

// The parameters of a `def` or a lambda.

type ParameterList = Pick<FunctionNode, 'parameters' | 'positionalCount' | 'rest' | 'namedRest'>;

/** Reads up to the token `end`, which stays. Defaults are read by `parseDefault`. */
function parseParameters(
  stream: TokenStream,
  end: string,
  parseDefault: (stream: TokenStream) => Expression,
): ParameterList {
  const parameters: Parameter[] = [];
  let positionalCount = -1;
  let rest: string | null = null;
  let namedRest: string | null = null;
  const seen = new Set<string>();
  const name = (): string => {
    const { text } = stream.name('a parameter');
    if (seen.has(text)) stream.fail(`the parameter ${text} stands there twice`);
    seen.add(text);
    if (end === ')' && stream.is(':')) stream.fail(`there are no types of parameters. Write ${text} alone`);
    return text;
  };
  while (!stream.is(end)) {
    if (namedRest !== null) stream.fail('nothing may follow **kwargs');
    if (stream.accept('**')) namedRest = name();
    else if (stream.accept('*')) {
      if (positionalCount >= 0) stream.fail('a second * stands among the parameters');
      positionalCount = parameters.length;
      if (!stream.is(',')) rest = name();
    } else {
      const line = stream.line;
      const parameter = { name: name(), default: stream.accept('=') ? parseDefault(stream) : null, line };
      const last = parameters.at(-1);
      if (positionalCount < 0 && parameter.default === null && last !== undefined && last.default !== null) {
        stream.fail(`the parameter ${parameter.name} has no default, but follows one that has`);
      }
      parameters.push(parameter);
    }
    if (!stream.accept(',')) break;
  }
  if (positionalCount === parameters.length && rest === null) stream.fail('a parameter must follow *');
  return {
    parameters,
    positionalCount: positionalCount < 0 ? parameters.length : positionalCount,
    rest,
    namedRest,
  };
}

// Statements: https://github.com/bazelbuild/starlark/blob/master/spec.md#statements.

const MAX_SOURCE_LENGTH = 100_000;

const augmented: Readonly<Record<string, BinaryOperator>> = {
  '+=': '+',
  '-=': '-',
  '*=': '*',
  '/=': '/',
  '//=': '//',
  '%=': '%',
  '&=': '&',
  '|=': '|',
  '^=': '^',
  '<<=': '<<',
  '>>=': '>>',
};

/**
 * The program as the body of a function without parameters.
 *
 * @throws PolicyError compile, with the line
 */
export function parse(source: string): FunctionNode {
  if (source.length > MAX_SOURCE_LENGTH) {
    throw new PolicyError('compile', `the text is longer than ${MAX_SOURCE_LENGTH} characters. Shorten it`);
  }
  const stream = new TokenStream(tokenize(source));
  const body: Statement[] = [];
  while (stream.token.kind !== 'end') body.push(...parseStatement(stream));
  return {
    name: 'module',
    parameters: [],
    positionalCount: 0,
    rest: null,
    namedRest: null,
    body,
    slots: [],
    captures: [],
    id: 0,
    line: 1,
  };
}

function parseStatement(stream: TokenStream): Statement[] {
  if (stream.acceptKind('newline')) return [];
  if (stream.token.kind === 'indent')
    stream.fail('the line is indented, but nothing opens a block before it');
  if (stream.is('def')) return [parseDef(stream)];
  if (stream.is('if')) return [parseIf(stream)];
  if (stream.is('for')) return [parseFor(stream)];
  return parseSimpleLine(stream);
}

/** The statements of one line, with semicolons between them. */
function parseSimpleLine(stream: TokenStream): Statement[] {
  const statements = [parseSimple(stream)];
  while (stream.accept(';')) {
    if (stream.token.kind === 'newline') break;
    statements.push(parseSimple(stream));
  }
  if (!stream.acceptKind('newline')) noEnd(stream);
  return statements;
}

function noEnd(stream: TokenStream): never {
  stream.refuseForeign();
  if (stream.is(':')) stream.fail('there are no types of variables. Assign without: x = 1');
  const remedy = stream.token.kind === 'name' ? '. A line is one statement; a comment stands behind "#"' : '';
  return stream.fail(`the end of the line is expected, not ${stream.describe()}${remedy}`);
}

function parseSimple(stream: TokenStream): Statement {
  const line = stream.line;
  if (stream.isAny(['pass', 'break', 'continue'])) {
    const { text } = stream.advance();
    const kind = text === 'pass' ? 'pass' : text === 'break' ? 'break' : 'continue';
    return { kind, line, charge: 0 };
  }
  if (stream.accept('return')) {
    const isBare = stream.token.kind === 'newline' || stream.is(';');
    return { kind: 'return', value: isBare ? null : parseTuple(stream), line, charge: 0 };
  }
  stream.refuseForeign();
  if (stream.is('load') && stream.following?.text === '(') {
    stream.fail('Nothing can be loaded. Put all functions into one text');
  }
  const value = parseTuple(stream);
  if (stream.accept('=')) {
    checkTarget(value);
    const assigned = parseTuple(stream);
    if (stream.is('=')) stream.fail('only one "=" may stand in an assignment');
    return { kind: 'assign', target: value, value: assigned, line, charge: 0 };
  }
  const { kind, text } = stream.token;
  const operator = kind === 'operator' && Object.hasOwn(augmented, text) ? augmented[text] : undefined;
  if (operator === undefined) return { kind: 'expression', value, line, charge: 0 };
  if (value.kind === 'tuple' || value.kind === 'list') stream.fail(`${text} takes one target`);
  checkTarget(value);
  stream.advance();
  return { kind: 'augment', target: value, operator, value: parseTuple(stream), line, charge: 0 };
}

function parseBlock(stream: TokenStream): Statement[] {
  stream.expect(':');
  return stream.nested(() => {
    if (!stream.acceptKind('newline')) return parseSimpleLine(stream);
    while (stream.acceptKind('newline'));
    if (!stream.acceptKind('indent')) stream.fail('an indented block is expected after ":"');
    const statements: Statement[] = [];
    while (!stream.acceptKind('dedent')) {
      if (stream.token.kind === 'end') break;
      statements.push(...parseStatement(stream));
    }
    return statements;
  });
}

function parseIf(stream: TokenStream): Statement {
  const { line } = stream.advance();
  const condition = parseExpression(stream);
  const then = parseBlock(stream);
  let otherwise: Statement[] = [];
  if (stream.is('elif')) otherwise = [stream.nested(() => parseIf(stream))];
  else if (stream.accept('else')) {
    if (stream.is('if')) stream.fail('Starlark has no "else if". Write "elif"');
    otherwise = parseBlock(stream);
  }
  return { kind: 'if', condition, then, else: otherwise, line, charge: 0 };
}

function parseFor(stream: TokenStream): Statement {
  const { line } = stream.advance();
  const target = parseTargets(stream);
  checkTarget(target);
  stream.expect('in');
  const iterable = parseTuple(stream);
  const body = parseBlock(stream);
  if (stream.is('else')) stream.fail('a loop has no "else"');
  return { kind: 'for', target, iterable, body, line, charge: 0 };
}

function parseDef(stream: TokenStream): Statement {
  const { line } = stream.advance();
  const { text: name } = stream.name('the name of the function');
  stream.expect('(');
  const parameters = parseParameters(stream, ')', parseExpression);
  stream.expect(')');
  if (stream.is('->')) stream.fail('there are no types of results. Write ":" after the parameters');
  const body = parseBlock(stream);
  return {
    kind: 'def',
    target: { kind: 'name', name, binding: null, line },
    function: { ...parameters, name, body, slots: [], captures: [], id: 0, line },
    line,
    charge: 0,
  };
}

// Targets: the left side of an assignment, and the part between "for" and "in".

/** @throws PolicyError compile */
function checkTarget(target: Expression): void {
  const { kind, line } = target;
  if (kind === 'tuple' || kind === 'list') {
    for (const element of target.elements) checkTarget(element);
  } else if (kind !== 'name' && kind !== 'index') {
    const remedy =
      kind === 'attribute'
        ? 'Fields are read-only; a dict has keys: d["name"] = 1'
        : 'Assign to a name, an index or a tuple of them';
    throw new PolicyError('compile', `nothing can be assigned to this. ${remedy}`, { line });
  }
}

// Tokens one after the other, with the questions and the errors that a parser needs.

/** Python's words that Starlark has no use for, with the way out. */
const foreign: Readonly<Record<string, string>> = {
  while: 'Starlark has no "while". Write "for i in range(n)" with a bound',
  class: 'There are no classes. Use functions and dicts',
  import: 'Nothing can be imported. "math" is there already: remove the line',
  from: 'Nothing can be imported. "math" is there already: remove the line',
  try: 'There are no exceptions. Test before you compute',
  except: 'There are no exceptions. Test before you compute',
  raise: 'There are no exceptions. Call fail(text)',
  assert: 'Starlark has no "assert". Call fail(text) after an "if"',
  with: 'Starlark has no "with"',
  yield: 'There are no generators. Build a list',
  async: 'Starlark has no "async"',
  await: 'Starlark has no "await"',
  global: 'Starlark has no "global". Keep what must last in the state that the call is given',
  nonlocal: 'Starlark has no "nonlocal". Use a list or a dict of the outer function',
  del: 'Starlark has no "del". Use the method pop',
  is: 'Starlark has no "is". Compare with ==',
  finally: 'There are no exceptions',
  as: 'Starlark has no "as"',
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

class TokenStream {
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

  /** A name other than a keyword. */
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
