/**
 * Fields of objects that programs read in number places, by the object's name: what a mutation may put in
 * place of one another. Those of the programs at hand come to those that are known.
 */

import type { Expression, FunctionNode } from '../../../sim/sandbox/starlark/syntax/index.ts';
import { sitesOf } from './sites.ts';

/**
 * By the name of the variable, its fields with a usual value of each, above 0. Weights are drawn beside it,
 * so that tokens, of which there are thousands, count as much as shares.
 */
export type Fields = Readonly<Record<string, Readonly<Record<string, number>>>>;

/** Objects and fields in the order of their names. A field that is not known is taken for a number near 1. */
export function fieldsOf(modules: readonly FunctionNode[], known: Fields = {}): Fields {
  const found = new Map<string, Map<string, number>>();
  const add = (object: string, name: string, usual: number): void => {
    const fields = found.get(object) ?? new Map<string, number>();
    if (!fields.has(name)) fields.set(name, usual);
    found.set(object, fields);
  };
  for (const [object, fields] of Object.entries(known)) {
    for (const [name, usual] of Object.entries(fields)) add(object, name, usual);
  }
  for (const module of modules) {
    for (const { sort, expression } of sitesOf(module)) {
      if (sort === 'number' && isField(expression)) add(expression.object.name, expression.name, 1);
    }
  }
  const byName = ([a]: readonly [string, unknown], [b]: readonly [string, unknown]): number =>
    a < b ? -1 : 1;
  return Object.fromEntries(
    [...found].sort(byName).map(([object, fields]) => [object, Object.fromEntries([...fields].sort(byName))]),
  );
}

export type FieldExpression = Expression & {
  readonly kind: 'attribute';
  readonly object: Expression & { readonly kind: 'name' };
};

export function isField(expression: Expression): expression is FieldExpression {
  return (
    expression.kind === 'attribute' && expression.object.kind === 'name' && expression.object.name !== 'math'
  );
}

export function isNumber({ kind }: Expression): boolean {
  return kind === 'integer' || kind === 'float';
}

/**
 * How large an expression usually is, above 0: of a field its usual value, of a number the number, of sums
 * and products what their parts come to. A name of the program's own, and what has no size, counts as 1.
 */
export function sizeOf(expression: Expression, fields: Fields): number {
  switch (expression.kind) {
    case 'integer':
    case 'float':
      return Math.abs(expression.value) || 1;
    case 'attribute':
      return isField(expression) ? (fields[expression.object.name]?.[expression.name] ?? 1) : 1;
    case 'unary':
      return sizeOf(expression.operand, fields);
    case 'binary': {
      const [left, right] = [sizeOf(expression.left, fields), sizeOf(expression.right, fields)];
      if (expression.operator === '*') return left * right;
      if (expression.operator === '/') return left / right;
      return Math.max(left, right);
    }
    case 'conditional':
      return Math.max(sizeOf(expression.whenTrue, fields), sizeOf(expression.whenFalse, fields));
    case 'call':
      return Math.max(...expression.positional.map((each) => sizeOf(each, fields)), 0) || 1;
    default:
      return 1;
  }
}
