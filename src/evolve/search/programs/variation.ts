/**
 * Mutations of an expression, each small and named, so that a lineage can say what was done. A mutation may
 * make a program that fails; whoever calls tries the text, and evaluation says the rest.
 */

import { elementary, type GoRandom } from '../../../sim/random/index.ts';
import type { Expression } from '../../../sim/sandbox/starlark/syntax/index.ts';
import { type FieldExpression, type Fields, isField, sizeOf } from './fields.ts';
import { print } from './printer.ts';
import type { Site } from './sites.ts';

export interface Variation {
  readonly expression: Expression;
  readonly about: string;
}

/** What mutations draw from. */
export interface Material {
  /** All sites of the program. */
  readonly sites: readonly Site[];
  readonly fields: Fields;
  /** Those that are drawn half of the time. */
  readonly favoured: Fields;
  readonly random: GoRandom;
}

export type Mutation = (site: Site, material: Material) => Variation | undefined;

type Binary = Expression & { readonly kind: 'binary' };

const line = 0;

export function pick<T>(items: readonly T[], random: GoRandom): T {
  return items[random.intn(items.length)];
}

function float(value: number): Expression {
  return { kind: 'float', value: round(value), line };
}

/** Four significant digits: more tell nothing, and texts that differ by noise are no use to a cache. */
export function round(value: number): number {
  return Number(value.toPrecision(4));
}

const nudge: Mutation = ({ expression }, { random }) => {
  if (expression.kind !== 'float' && expression.kind !== 'integer') return undefined;
  const factor = elementary.exp(0.5 * random.normFloat64());
  const moved = expression.value === 0 ? random.normFloat64() * 0.1 : expression.value * factor;
  const value = round(moved);
  if (value === expression.value) return undefined;
  return { expression: float(value), about: `${expression.value} becomes ${value}` };
};

const relatives: Readonly<Record<string, readonly Binary['operator'][]>> = {
  '+': ['-'],
  '-': ['+'],
  '*': ['/'],
  '/': ['*'],
  '<': ['<=', '>'],
  '<=': ['<', '>='],
  '>': ['>=', '<'],
  '>=': ['>', '<='],
};

const swapOperator: Mutation = ({ expression }, { random }) => {
  if (expression.kind === 'logical') {
    const operator = expression.operator === 'and' ? 'or' : 'and';
    return { expression: { ...expression, operator }, about: `${expression.operator} becomes ${operator}` };
  }
  const others = expression.kind === 'binary' ? relatives[expression.operator] : undefined;
  if (expression.kind !== 'binary' || others === undefined) return undefined;
  const operator = pick(others, random);
  return { expression: { ...expression, operator }, about: `${expression.operator} becomes ${operator}` };
};

/** Another field, half of the time brought to the size of the one before. */
const swapField: Mutation = ({ expression }, { fields, random }) => {
  if (!isField(expression)) return undefined;
  const names = Object.keys(fields[expression.object.name] ?? {});
  const others = names.filter((name) => name !== expression.name);
  if (others.length === 0) return undefined;
  const other: FieldExpression = { ...expression, name: pick(others, random) };
  const factor = round(sizeOf(expression, fields) / sizeOf(other, fields));
  const changed: Expression =
    factor === 1 || random.intn(2) === 0
      ? other
      : { kind: 'binary', operator: '*', left: float(factor), right: other, line };
  return { expression: changed, about: `${expression.name} becomes ${print(changed)}` };
};

/** Another expression of the same function and sort takes the place. */
const replace: Mutation = (site, { sites, random }) => {
  const donors = sites.filter(({ sort, within, expression }) => {
    return sort === site.sort && within === site.within && expression !== site.expression;
  });
  if (donors.length === 0) return undefined;
  const { expression } = pick(donors, random);
  return { expression, about: `${print(site.expression)} becomes ${print(expression)}` };
};

/** An operand takes the place of the whole. */
const hoist: Mutation = ({ expression }, { random }) => {
  const parts =
    expression.kind === 'binary' && expression.operator in relatives && /^[-+*/]$/.test(expression.operator)
      ? [expression.left, expression.right]
      : expression.kind === 'logical'
        ? [expression.left, expression.right]
        : expression.kind === 'conditional'
          ? [expression.whenTrue, expression.whenFalse]
          : [];
  if (parts.length === 0) return undefined;
  const part = pick(parts, random);
  return { expression: part, about: `${print(expression)} becomes ${print(part)}` };
};

/** A field that is read in the same function as a new expression, so that its object is in reach. */
function someField(
  { within }: Site,
  { sites, fields, favoured, random }: Material,
): FieldExpression | undefined {
  const objects = sites.filter((site) => site.within === within && isField(site.expression));
  if (objects.length === 0) return undefined;
  const { expression } = pick(objects, random);
  if (!isField(expression)) return undefined;
  const object = expression.object.name;
  const liked = Object.keys(favoured[object] ?? {});
  const names = liked.length > 0 && random.intn(2) === 0 ? liked : Object.keys(fields[object]);
  return { ...expression, name: pick(names, random) };
}

/** An expression times a number with which it comes to `size`. */
function scaled(term: Expression, size: number, fields: Fields): Expression {
  const weight = float(size / sizeOf(term, fields));
  return { kind: 'binary', operator: '*', left: weight, right: term, line };
}

/** Shares of a size, most of them between a tenth and twice it. */
function drawShare(random: GoRandom): number {
  return elementary.exp(1.5 * random.normFloat64() - 1);
}

export type Sign = '+' | '-';

/** `left` and `term`, which is scaled to a share of its size. */
export function sumOf(
  left: Expression,
  operator: Sign,
  term: Expression,
  share: number,
  fields: Fields,
): Variation {
  const right = scaled(term, share * sizeOf(left, fields), fields);
  return {
    expression: { kind: 'binary', operator, left, right, line },
    about: `${operator} ${print(right)}`,
  };
}

/** The same with a share and a sign by chance. */
export function addScaled(
  left: Expression,
  term: Expression,
  { fields, random }: Pick<Material, 'fields' | 'random'>,
): Variation {
  const share = drawShare(random);
  return sumOf(left, random.intn(2) === 0 ? '+' : '-', term, share, fields);
}

/** A new term or factor that depends on a field. */
const addTerm: Mutation = (site, material) => {
  const field = site.sort === 'number' ? someField(site, material) : undefined;
  if (field === undefined) return undefined;
  const { fields, random } = material;
  const left = site.expression;
  if (random.intn(2) === 0) return addScaled(left, field, material);
  const one: Expression = { kind: 'integer', value: 1, line };
  const right: Expression = {
    kind: 'binary',
    operator: '+',
    left: one,
    right: scaled(field, drawShare(random), fields),
    line,
  };
  return {
    expression: { kind: 'binary', operator: '/', left, right, line },
    about: `/ (${print(right)})`,
  };
};

/** A condition on a field, below which another value counts. */
const guard: Mutation = (site, material) => {
  const field = site.sort === 'number' ? someField(site, material) : undefined;
  if (field === undefined) return undefined;
  const { random, fields } = material;
  const bound = float(sizeOf(field, fields) * elementary.exp(2 * random.normFloat64()));
  const condition: Expression = { kind: 'binary', operator: '>', left: field, right: bound, line };
  const other: Expression = { kind: 'binary', operator: '*', left: site.expression, right: float(0.5), line };
  const expression: Expression = {
    kind: 'conditional',
    condition,
    whenTrue: other,
    whenFalse: site.expression,
    line,
  };
  return { expression, about: `half where ${print(condition)}` };
};

const negate: Mutation = ({ sort, expression }) => {
  if (sort !== 'condition') return undefined;
  const negated: Expression =
    expression.kind === 'unary' && expression.operator === 'not'
      ? expression.operand
      : { kind: 'unary', operator: 'not', operand: expression, line };
  return { expression: negated, about: `not ${print(expression)}` };
};

/** Drawn alike; numbers are moved most often, since most steps of a search are small. */
export const mutations: readonly Mutation[] = [
  nudge,
  nudge,
  nudge,
  swapField,
  swapOperator,
  replace,
  hoist,
  addTerm,
  addTerm,
  guard,
  negate,
];
