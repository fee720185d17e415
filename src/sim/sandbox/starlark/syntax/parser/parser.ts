/** Statements: https://github.com/bazelbuild/starlark/blob/master/spec.md#statements. */

import { PolicyError } from '../../../policyError.ts';
import type { BinaryOperator, FunctionNode, Statement } from '../ast.ts';
import { tokenize } from '../lexer.ts';
import { parseExpression, parseTargets, parseTuple } from './expressionParser.ts';
import { parseParameters } from './parameters.ts';
import { checkTarget } from './target.ts';
import { TokenStream } from './tokenStream.ts';

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
  const remedy =
    stream.token.kind === 'name' ? '. A line is one statement; what is no program stands behind "#"' : '';
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
    if (stream.is('if')) stream.fail('there is no "else if". Write "elif"');
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
