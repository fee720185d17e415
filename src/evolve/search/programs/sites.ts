/**
 * Places of a program where an expression may be put in place of another: found by where they stand. The
 * operands of arithmetic and of comparisons are numbers, what an `if` asks is a condition. Names that are
 * assigned to, callees and indexes are no such places.
 */

import {
  childrenOf,
  type Expression,
  type FunctionNode,
  type Statement,
} from '../../../sim/sandbox/starlark/syntax/index.ts';

export type Sort = 'number' | 'condition';

export interface Site {
  readonly sort: Sort;
  readonly expression: Expression;
  /** Function in which it stands. */
  readonly within: string;
}

const arithmetic = new Set(['+', '-', '*', '/', '//', '%']);
const comparisons = new Set(['<', '<=', '>', '>=']);
const numberFunctions = new Set(['min', 'max', 'abs', 'float']);

/** All sites, in the order of the text. */
export function sitesOf(module: FunctionNode): Site[] {
  const sites: Site[] = [];
  visitBlock(module.body, 'module', sites);
  return sites;
}

function visitBlock(statements: readonly Statement[], within: string, sites: Site[]): void {
  for (const statement of statements) visitStatement(statement, within, sites);
}

function visitStatement(statement: Statement, within: string, sites: Site[]): void {
  switch (statement.kind) {
    case 'expression':
      visit(statement.value, null, within, sites);
      break;
    case 'assign':
      visit(statement.value, sortOf(statement.value), within, sites);
      break;
    case 'augment':
      visit(statement.value, arithmetic.has(statement.operator) ? 'number' : null, within, sites);
      break;
    case 'return':
      if (statement.value !== null) visit(statement.value, sortOf(statement.value), within, sites);
      break;
    case 'if':
      visit(statement.condition, 'condition', within, sites);
      visitBlock(statement.then, within, sites);
      visitBlock(statement.else, within, sites);
      break;
    case 'for':
      visit(statement.iterable, null, within, sites);
      visitBlock(statement.body, within, sites);
      break;
    case 'def':
      visitBlock(statement.function.body, statement.function.name, sites);
      break;
  }
}

/** What an expression is by its own form; null where that cannot be told. */
function sortOf(expression: Expression): Sort | null {
  switch (expression.kind) {
    case 'integer':
    case 'float':
      return 'number';
    case 'unary':
      return expression.operator === 'not' ? 'condition' : 'number';
    case 'logical':
      return 'condition';
    case 'binary':
      if (arithmetic.has(expression.operator)) return 'number';
      return comparisons.has(expression.operator) ? 'condition' : null;
    case 'conditional':
      return sortOf(expression.whenTrue) ?? sortOf(expression.whenFalse);
    case 'call':
      return isNumberFunction(expression.callee) ? 'number' : null;
    default:
      return null;
  }
}

function isNumberFunction(callee: Expression): boolean {
  if (callee.kind === 'name') return numberFunctions.has(callee.name);
  return callee.kind === 'attribute' && callee.object.kind === 'name' && callee.object.name === 'math';
}

/** @param sort what is expected where it stands */
function visit(expression: Expression, sort: Sort | null, within: string, sites: Site[]): void {
  if (sort !== null) sites.push({ sort, expression, within });
  const each = (child: Expression, expected: Sort | null): void => visit(child, expected, within, sites);
  switch (expression.kind) {
    case 'unary':
      each(expression.operand, expression.operator === 'not' ? 'condition' : 'number');
      break;
    case 'logical':
      each(expression.left, 'condition');
      each(expression.right, 'condition');
      break;
    case 'binary': {
      const { operator } = expression;
      const expected = arithmetic.has(operator) || comparisons.has(operator) ? 'number' : null;
      each(expression.left, expected);
      each(expression.right, expected);
      break;
    }
    case 'conditional':
      each(expression.condition, 'condition');
      each(expression.whenTrue, sort);
      each(expression.whenFalse, sort);
      break;
    case 'call': {
      const expected = isNumberFunction(expression.callee) ? 'number' : null;
      for (const argument of expression.positional) each(argument, expected ?? sortOf(argument));
      for (const { value } of expression.named) each(value, sortOf(value));
      break;
    }
    case 'comprehension':
      each(expression.value, sortOf(expression.value));
      for (const clause of expression.clauses) {
        if (clause.kind === 'if') each(clause.condition, 'condition');
        else each(clause.iterable, null);
      }
      break;
    case 'lambda':
      visitBlock(expression.function.body, within, sites);
      break;
    case 'attribute':
    case 'index':
    case 'slice':
      each(expression.object, null);
      break;
    default:
      for (const child of childrenOf(expression)) each(child, sortOf(child));
  }
}

/**
 * The tree with `old` replaced, compared by identity. A tree that was parsed and not yet resolved is plain
 * data.
 */
export function replaceIn<T>(tree: T, old: object, replacement: unknown): T {
  const walk = (node: unknown): unknown => {
    if (node === old) return replacement;
    if (Array.isArray(node)) {
      const copy = node.map(walk);
      return copy.some((each, i) => each !== node[i]) ? copy : node;
    }
    if (typeof node !== 'object' || node === null) return node;
    let changed: Record<string, unknown> | null = null;
    for (const [key, value] of Object.entries(node)) {
      const walked = walk(value);
      if (walked !== value) {
        changed ??= { ...node };
        changed[key] = walked;
      }
    }
    return changed ?? node;
  };
  // the replacement is of the kind that stood there
  return walk(tree) as T;
}

/** Number of expressions and statements: what a program costs whoever reads it. */
export function programNodes(module: FunctionNode): number {
  let count = 0;
  const walk = (node: unknown): void => {
    if (typeof node !== 'object' || node === null) return;
    if ('kind' in node) count++;
    for (const value of Object.values(node)) walk(value);
  };
  walk(module.body);
  return count;
}
