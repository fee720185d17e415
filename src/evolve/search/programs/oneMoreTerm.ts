/**
 * A program with one more term, in every way there is: each of some fields, scaled to a fifth of the size of
 * what stands there, added to each sum of the program and taken from it. What chance would try in a thousand
 * children, if ever, is tried once each.
 */

import type { Expression, FunctionNode } from '../../../sim/sandbox/starlark/syntax/index.ts';
import { type FieldExpression, type Fields, fieldsOf, isField, isNumber } from './fields.ts';
import { print } from './printer.ts';
import { replaceIn, type Site, sitesOf } from './sites.ts';
import { type Sign, sumOf } from './variation.ts';

const SHARE = 0.2;
const signs: readonly Sign[] = ['+', '-'];

export interface ModuleChild {
  readonly module: FunctionNode;
  readonly about: string;
}

/** One field of each object that a function reads, so that the object is in reach there. */
function objectsIn(within: string, sites: readonly Site[]): FieldExpression[] {
  const found = new Map<string, FieldExpression>();
  for (const site of sites) {
    if (site.within === within && isField(site.expression)) {
      found.set(site.expression.object.name, site.expression);
    }
  }
  return [...found.values()];
}

/** Parts to which a term may as well be added outside: those of a sum, and what a number multiplies. */
function linearParts(expression: Expression): readonly Expression[] {
  if (expression.kind === 'unary') return [expression.operand];
  if (expression.kind !== 'binary') return [];
  const { operator, left, right } = expression;
  if (operator === '+' || operator === '-') return [left, right];
  if (operator === '*' && isNumber(left)) return [right];
  return (operator === '*' || operator === '/') && isNumber(right) ? [left] : [];
}

/** @param favoured the fields that are added; `known` are all, for their sizes */
export function withEachTerm(module: FunctionNode, known: Fields, favoured: Fields): ModuleChild[] {
  const sites = sitesOf(module);
  const fields = fieldsOf([module], known);
  const parts = new Set(sites.flatMap(({ expression }) => linearParts(expression)));
  const sums = sites.filter(
    ({ sort, expression }) => sort === 'number' && !isNumber(expression) && !parts.has(expression),
  );
  return sums.flatMap(({ expression, within }) =>
    objectsIn(within, sites).flatMap((read) =>
      Object.keys(favoured[read.object.name] ?? {}).flatMap((name) =>
        signs.map((sign): ModuleChild => {
          const sum = sumOf(expression, sign, { ...read, name }, SHARE, fields);
          const about = `${print(expression)} ${sum.about}`;
          return { module: replaceIn(module, expression, sum.expression), about };
        }),
      ),
    ),
  );
}
