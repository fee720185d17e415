/** Expressions: https://github.com/bazelbuild/starlark/blob/master/spec.md#expressions. */

import type { BinaryOperator, ComprehensionClause, Expression, FunctionNode } from '../ast.ts';
import { parseParameters } from './parameters.ts';
import { checkTarget } from './target.ts';
import type { TokenStream } from './tokenStream.ts';

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
export function parseTuple(stream: TokenStream): Expression {
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

export function parseExpression(stream: TokenStream): Expression {
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
export function parseTargets(stream: TokenStream): Expression {
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
    if (text === '**') stream.fail('there is no operator "**". Use math.pow(x, y)');
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
    stream.fail(`there is no "${text}${text}". Write "${text === '&' ? 'and' : 'or'}"`);
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
