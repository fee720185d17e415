/**
 * Fields of objects that programs read in number places, by the object's name: what a mutation may put in
 * place of one another. Learnt from the programs at hand, so that it knows no name of its own.
 */

import type { Expression, FunctionNode } from '../../../sim/sandbox/starlark/syntax/index.ts';
import { sitesOf } from './sites.ts';

/** Names of fields by the name of the variable, each once, sorted. */
export type Fields = Readonly<Record<string, readonly string[]>>;

export function fieldsOf(modules: readonly FunctionNode[], known: Fields = {}): Fields {
  const found = new Map<string, Set<string>>();
  const add = (object: string, name: string): void => {
    const names = found.get(object) ?? new Set();
    found.set(object, names.add(name));
  };
  for (const [object, names] of Object.entries(known)) for (const name of names) add(object, name);
  for (const module of modules) {
    for (const { sort, expression } of sitesOf(module)) {
      if (sort === 'number' && isField(expression)) add(expression.object.name, expression.name);
    }
  }
  const sorted = [...found].sort(([a], [b]) => (a < b ? -1 : 1));
  return Object.fromEntries(sorted.map(([object, names]) => [object, [...names].sort()]));
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
