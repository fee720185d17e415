/**
 * Text of a Starlark syntax tree. What it prints parses to the same tree again, apart from lines. Brackets
 * stand only where they are needed.
 */

import type {
  BinaryOperator,
  Comprehension,
  Expression,
  FunctionNode,
  Statement,
} from '../../sandbox/starlark/ast.ts';

/** How tightly an expression binds: a weaker one inside a stronger one stands in brackets. */
const strength = {
  tuple: 0,
  lambda: 1,
  conditional: 1,
  or: 2,
  and: 3,
  not: 4,
  comparison: 5,
  unary: 12,
  primary: 13,
} as const;

const binaryStrength: Readonly<Record<BinaryOperator, number>> = {
  '==': 5,
  '!=': 5,
  '<': 5,
  '<=': 5,
  '>': 5,
  '>=': 5,
  in: 5,
  'not in': 5,
  '|': 6,
  '^': 7,
  '&': 8,
  '<<': 9,
  '>>': 9,
  '+': 10,
  '-': 10,
  '*': 11,
  '/': 11,
  '//': 11,
  '%': 11,
};

const INDENT = '    ';

export function printProgram(module: FunctionNode): string {
  return printBlock(module.body, '');
}

function printBlock(statements: readonly Statement[], indent: string): string {
  return statements.map((statement) => printStatement(statement, indent)).join('');
}

function printStatement(statement: Statement, indent: string): string {
  const line = (text: string): string => `${indent}${text}\n`;
  switch (statement.kind) {
    case 'expression':
      return line(printTuple(statement.value));
    case 'assign':
      return line(`${printTuple(statement.target)} = ${printTuple(statement.value)}`);
    case 'augment':
      return line(`${print(statement.target)} ${statement.operator}= ${printTuple(statement.value)}`);
    case 'if':
      return printIf(statement, indent, 'if');
    case 'for': {
      const head = `for ${printTarget(statement.target)} in ${printTuple(statement.iterable)}:`;
      return line(head) + printBlock(statement.body, indent + INDENT);
    }
    case 'def': {
      const head = `def ${statement.target.name}(${printParameters(statement.function)}):`;
      return line(head) + printBlock(statement.function.body, indent + INDENT);
    }
    case 'return':
      return line(statement.value === null ? 'return' : `return ${printTuple(statement.value)}`);
    default:
      return line(statement.kind);
  }
}

function printIf(statement: Statement & { kind: 'if' }, indent: string, word: 'if' | 'elif'): string {
  const head = `${indent}${word} ${print(statement.condition)}:\n`;
  const then = printBlock(statement.then, indent + INDENT);
  const [only, ...more] = statement.else;
  if (only === undefined) return head + then;
  if (only.kind === 'if' && more.length === 0) return head + then + printIf(only, indent, 'elif');
  return `${head}${then}${indent}else:\n${printBlock(statement.else, indent + INDENT)}`;
}

function printParameters(node: FunctionNode): string {
  const parts = node.parameters.map((parameter) => {
    return parameter.default === null ? parameter.name : `${parameter.name} = ${print(parameter.default)}`;
  });
  const star = node.rest !== null ? `*${node.rest}` : node.positionalCount < parts.length ? '*' : null;
  if (star !== null) parts.splice(node.positionalCount, 0, star);
  if (node.namedRest !== null) parts.push(`**${node.namedRest}`);
  return parts.join(', ');
}

/** Where several values may stand with commas between them. */
function printTuple(expression: Expression): string {
  if (expression.kind !== 'tuple' || expression.elements.length === 0) return print(expression);
  return printElements(expression.elements);
}

function printElements(elements: readonly Expression[]): string {
  const text = elements.map((element) => print(element)).join(', ');
  return elements.length === 1 ? `${text},` : text;
}

/** Prints the target between "for" and "in", which must not be a comparison. */
function printTarget(target: Expression): string {
  if (target.kind === 'tuple' && target.elements.length > 0) return printElements(target.elements);
  return print(target);
}

/** @param least weaker expressions get brackets */
export function print(expression: Expression, least: number = strength.conditional): string {
  const [text, own] = shape(expression);
  return own < least ? `(${text})` : text;
}

function shape(expression: Expression): [string, number] {
  switch (expression.kind) {
    case 'name':
      return [expression.name, strength.primary];
    case 'integer':
      return [String(expression.value), expression.value < 0 ? strength.unary : strength.primary];
    case 'float':
      return [floatText(expression.value), expression.value < 0 ? strength.unary : strength.primary];
    case 'text':
      return [JSON.stringify(expression.value), strength.primary];
    case 'list':
      return [`[${expression.elements.map((each) => print(each)).join(', ')}]`, strength.primary];
    case 'tuple':
      return [
        `(${expression.elements.length === 0 ? '' : printElements(expression.elements)})`,
        strength.primary,
      ];
    case 'dict': {
      const entries = expression.entries.map(([key, value]) => `${print(key)}: ${print(value)}`);
      return [`{${entries.join(', ')}}`, strength.primary];
    }
    case 'unary': {
      const { operator, operand } = expression;
      if (operator === 'not') return [`not ${print(operand, strength.not)}`, strength.not];
      return [`${operator}${print(operand, strength.unary)}`, strength.unary];
    }
    case 'binary': {
      const own = binaryStrength[expression.operator];
      // comparisons cannot be chained; all others bind to the left
      const left = print(expression.left, own === strength.comparison ? own + 1 : own);
      return [`${left} ${expression.operator} ${print(expression.right, own + 1)}`, own];
    }
    case 'logical': {
      const own = strength[expression.operator];
      const right = print(expression.right, own + 1);
      return [`${print(expression.left, own)} ${expression.operator} ${right}`, own];
    }
    case 'conditional': {
      const { condition, whenTrue, whenFalse } = expression;
      const head = `${print(whenTrue, strength.or)} if ${print(condition, strength.or)}`;
      return [`${head} else ${print(whenFalse, strength.conditional)}`, strength.conditional];
    }
    case 'attribute':
      return [`${printObject(expression.object)}.${expression.name}`, strength.primary];
    case 'index':
      return [`${printObject(expression.object)}[${printTuple(expression.index)}]`, strength.primary];
    case 'slice': {
      const bound = (each: Expression | null): string => (each === null ? '' : print(each));
      const { object, start, stop, step } = expression;
      const last = step === null ? '' : `:${print(step)}`;
      return [`${printObject(object)}[${bound(start)}:${bound(stop)}${last}]`, strength.primary];
    }
    case 'call':
      return [printCall(expression), strength.primary];
    case 'comprehension':
      return [printComprehension(expression), strength.primary];
    case 'lambda': {
      const { function: node } = expression;
      const [body] = node.body;
      const parameters = printParameters(node);
      const value = body.kind === 'return' && body.value !== null ? print(body.value) : 'None';
      return [`lambda${parameters === '' ? '' : ` ${parameters}`}: ${value}`, strength.lambda];
    }
  }
}

/** Prints the operand before a point or a bracket. A point behind an integer would make it a float. */
function printObject(object: Expression): string {
  return object.kind === 'integer' ? `(${print(object)})` : print(object, strength.primary);
}

function printCall({ callee, positional, named, rest, namedRest }: Expression & { kind: 'call' }): string {
  const parts = positional.map((each) => print(each));
  for (const { name, value } of named) parts.push(`${name} = ${print(value)}`);
  if (rest !== null) parts.push(`*${print(rest)}`);
  if (namedRest !== null) parts.push(`**${print(namedRest)}`);
  return `${printObject(callee)}(${parts.join(', ')})`;
}

function printComprehension({ key, value, clauses }: Comprehension): string {
  const tail = clauses.map((clause) =>
    clause.kind === 'if'
      ? `if ${print(clause.condition, strength.or)}`
      : `for ${printTarget(clause.target)} in ${print(clause.iterable, strength.or)}`,
  );
  const inner = `${key === null ? '' : `${print(key)}: `}${print(value)} ${tail.join(' ')}`;
  return key === null ? `[${inner}]` : `{${inner}}`;
}

/** The shortest text that reads as this float and as no integer. */
function floatText(value: number): string {
  const text = String(value);
  return /[.e]/.test(text) ? text : `${text}.0`;
}
