/**
 * Children of Starlark programs, by a mutation, or by an expression of another program. Every child compiles. Between
 * the lines `# EVOLVE-BLOCK-START` and `# EVOLVE-BLOCK-END` lies the open part of a program; the rest of such a text
 * stays, letter for letter. Without the second line, the open part reaches to the end; without the first, all is open.
 */

import * as elementary from '../../../sim/random/elementary.ts';
import type { GoRandom } from '../../../sim/random/goRand.ts';
import { PolicyError } from '../../sandbox/program.ts';
import type { Expression, FunctionNode, Statement } from '../../sandbox/starlark/ast.ts';
import { parse } from '../../sandbox/starlark/parser.ts';
import { childrenOf } from '../../sandbox/starlark/resolver.ts';
import { StarlarkProgram } from '../../sandbox/starlark/starlarkPolicy.ts';
import { print, printProgram } from './printer.ts';

interface ProgramChild {
  readonly source: string;
  readonly changes: readonly string[];
}

/** Tries before a program counts as one that cannot be changed. */
const TRIES = 24;
/** Longest text of a child, in characters; frameworks take programs up to that length. */
const SOURCE_MAX = 10_000;
/** Most expressions and statements of a child, so that programs do not grow without end. */
const NODES_MAX = 600;

/** The text in three parts. The search changes the open one only. */
function regionsOf(source: string): [before: string, open: string, after: string] {
  const lines = source.split('\n');
  const start = lines.findIndex((line) => /^\s*#\s*EVOLVE-BLOCK-START/.test(line));
  if (start < 0) return ['', source, ''];
  const end = lines.findIndex((line, i) => i > start && /^\s*#\s*EVOLVE-BLOCK-END/.test(line));
  const text = (from: number, to?: number): string => lines.slice(from, to).join('\n');
  const before = `${text(0, start + 1)}\n`;
  return end < 0 ? [before, text(start + 1), ''] : [before, `${text(start + 1, end)}\n`, text(end)];
}

function tryParse(text: string): FunctionNode | undefined {
  try {
    return parse(text);
  } catch (error) {
    if (error instanceof PolicyError) return undefined;
    throw error;
  }
}

function compiles(source: string): boolean {
  try {
    new StarlarkProgram(source);
    return true;
  } catch (error) {
    if (error instanceof PolicyError) return false;
    throw error;
  }
}

/** Applies `change` to the open part until a new text compiles, at most `most` times. */
function vary(
  source: string,
  change: (module: FunctionNode) => ModuleChild | undefined,
  most = TRIES,
): ProgramChild | undefined {
  const [before, open, after] = regionsOf(source);
  const module = tryParse(open);
  if (module === undefined) return undefined;
  const unchanged = printProgram(module);
  for (let tries = 0; tries < most; tries++) {
    const changed = change(module);
    if (changed === undefined || programNodes(changed.module) > NODES_MAX) continue;
    const printed = printProgram(changed.module);
    const text = before + printed + after;
    if (printed === unchanged || text.length > SOURCE_MAX || !compiles(text)) continue;
    return { source: text, changes: [shortened(changed.about)] };
  }
  return undefined;
}

function shortened(about: string): string {
  return about.length <= 120 ? about : `${about.slice(0, 117)}...`;
}

/** A child of one program; undefined where every try fails. */
export function mutateProgram(
  source: string,
  random: GoRandom,
  known: ProgramFields = {},
  favoured: ProgramFields = {},
): ProgramChild | undefined {
  return vary(source, (module) => {
    const sites = sitesOf(module);
    if (sites.length === 0) return undefined;
    const site = pick(sites, random);
    const material = { sites, fields: fieldsOf([module], known), favoured, random };
    const variation = pick(mutations, random)(site, material);
    if (variation === undefined) return undefined;
    return {
      module: replaceIn(module, site.expression, variation.expression),
      about: variation.about,
    };
  });
}

/**
 * All children with one more term: each favoured field, scaled to a fifth of the sum, added to each sum of the program
 * and subtracted from it. Chance would need thousands of children for them.
 */
export function withOneMoreTerm(
  source: string,
  known: ProgramFields,
  favoured: ProgramFields,
): ProgramChild[] {
  const module = tryParse(regionsOf(source)[1]);
  if (module === undefined) return [];
  return withEachTerm(module, known, favoured).flatMap((changed) => vary(source, () => changed, 1) ?? []);
}

/** A child of two programs: an expression of the second replaces one of the first, or is added to it. */
export function crossPrograms(
  source: string,
  other: string,
  random: GoRandom,
  known: ProgramFields = {},
): ProgramChild | undefined {
  const donor = tryParse(regionsOf(other)[1]);
  if (donor === undefined) return undefined;
  const donors = sitesOf(donor).filter(({ expression }) => !isNumber(expression));
  return vary(source, (module) => {
    const sites = sitesOf(module);
    if (sites.length === 0 || donors.length === 0) return undefined;
    const site = pick(sites, random);
    // names have the same meaning in functions of the same name
    const fitting = donors.filter(({ sort, within }) => sort === site.sort && within === site.within);
    if (fitting.length === 0) return undefined;
    const { expression } = pick(fitting, random);
    if (site.sort === 'number' && random.intn(2) === 0) {
      const material = { fields: fieldsOf([module], known), random };
      const { expression: sum, about } = addScaled(site.expression, expression, material);
      return { module: replaceIn(module, site.expression, sum), about: `${about} of the other parent` };
    }
    return {
      module: replaceIn(module, site.expression, expression),
      about: `${print(site.expression)} becomes ${print(expression)} of the other parent`,
    };
  });
}

/** Fields that programs read, with their usual values; see `fieldsOf`. A text that does not parse reads none. */
export function fieldsRead(sources: readonly string[], known: ProgramFields): ProgramFields {
  const read = fieldsOf(sources.flatMap((source) => tryParse(regionsOf(source)[1]) ?? []));
  return Object.fromEntries(
    Object.entries(read).map(([object, fields]) => [
      object,
      Object.fromEntries(Object.keys(fields).map((name) => [name, known[object]?.[name] ?? 1])),
    ]),
  );
}

/** Numbers of the open part, without signs, in the order of the text. */
export function numbersOf(source: string): number[] {
  const module = tryParse(regionsOf(source)[1]);
  return module === undefined ? [] : literalsOf(module).map(({ value }) => value);
}

/** The program with other numbers in the same places. A number that changes becomes a float. */
export function withNumbers(source: string, numbers: readonly number[]): string {
  const [before, open, after] = regionsOf(source);
  const parsed = tryParse(open);
  if (parsed === undefined) return source;
  let module = parsed;
  const literals = literalsOf(parsed);
  literals.forEach((literal, i) => {
    if (literal.value === numbers[i]) return;
    module = replaceIn(module, literal, { ...literal, kind: 'float', value: numbers[i] });
  });
  if (module === parsed) return source;
  const printed = printProgram(module);
  return before + printed + after;
}

function literalsOf(module: FunctionNode): { value: number }[] {
  return sitesOf(module).flatMap(({ expression }) => {
    return expression.kind === 'float' || expression.kind === 'integer' ? [expression] : [];
  });
}

// All programs with one more term.

/** Size of the new term, as a share of the size of the sum. */
const SHARE = 0.2;
const signs: readonly Sign[] = ['+', '-'];

interface ModuleChild {
  readonly module: FunctionNode;
  readonly about: string;
}

/** One field of each object that a function reads: these objects are in scope there. */
function objectsIn(within: string, sites: readonly Site[]): FieldExpression[] {
  const found = new Map<string, FieldExpression>();
  for (const site of sites) {
    if (site.within === within && isField(site.expression)) {
      found.set(site.expression.object.name, site.expression);
    }
  }
  return [...found.values()];
}

/** Parts of an expression to which a term need not be added, since adding it to the whole gives the same form. */
function linearParts(expression: Expression): readonly Expression[] {
  if (expression.kind === 'unary') return [expression.operand];
  if (expression.kind !== 'binary') return [];
  const { operator, left, right } = expression;
  if (operator === '+' || operator === '-') return [left, right];
  if (operator === '*' && isNumber(left)) return [right];
  return (operator === '*' || operator === '/') && isNumber(right) ? [left] : [];
}

/** @param favoured fields to add @param known all fields, for their sizes */
function withEachTerm(module: FunctionNode, known: ProgramFields, favoured: ProgramFields): ModuleChild[] {
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

// Mutations of an expression. Each is small and says what it did, for the lineage. A mutation may make a program that
// fails: the caller compiles the text, and the evaluation shows the rest.

interface Variation {
  readonly expression: Expression;
  readonly about: string;
}

/** Material of mutations. */
interface Material {
  /** All sites of the program, for donors. */
  readonly sites: readonly Site[];
  readonly fields: ProgramFields;
  /** Fields that are drawn half of the time. */
  readonly favoured: ProgramFields;
  readonly random: GoRandom;
}

type Mutation = (site: Site, material: Material) => Variation | undefined;

type BinaryNode = Expression & { readonly kind: 'binary' };

const line = 0;

function pick<T>(items: readonly T[], random: GoRandom): T {
  return items[random.intn(items.length)];
}

function float(value: number): Expression {
  return { kind: 'float', value: round(value), line };
}

/** Four significant digits: more would be noise, and a cache misses texts that differ by noise. */
function round(value: number): number {
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

const relatives: Readonly<Record<string, readonly BinaryNode['operator'][]>> = {
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

/** Another field, half of the time scaled to the size of the field before. */
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

/** Another expression of the same function and sort. */
const replace: Mutation = (site, { sites, random }) => {
  const donors = sites.filter(({ sort, within, expression }) => {
    return sort === site.sort && within === site.within && expression !== site.expression;
  });
  if (donors.length === 0) return undefined;
  const { expression } = pick(donors, random);
  return { expression, about: `${print(site.expression)} becomes ${print(expression)}` };
};

/** An operand of the expression. */
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

/** A field of an object that the same function reads, so that the object is in scope. */
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
  // fields of an object that conditions alone read are not known to be numbers
  if (fields[object] === undefined) return undefined;
  const names = liked.length > 0 && random.intn(2) === 0 ? liked : Object.keys(fields[object]);
  return { ...expression, name: pick(names, random) };
}

/** The term times a number, so that its usual value is `size`. */
function scaled(term: Expression, size: number, fields: ProgramFields): Expression {
  const weight = float(size / sizeOf(term, fields));
  return { kind: 'binary', operator: '*', left: weight, right: term, line };
}

/** A random share of a size, mostly between a tenth and twice. */
function drawShare(random: GoRandom): number {
  return elementary.exp(1.5 * random.normFloat64() - 1);
}

type Sign = '+' | '-';

/** The sum of `left` and `term`, which is scaled to a share of the size of `left`. */
function sumOf(
  left: Expression,
  operator: Sign,
  term: Expression,
  share: number,
  fields: ProgramFields,
): Variation {
  const right = scaled(term, share * sizeOf(left, fields), fields);
  return {
    expression: { kind: 'binary', operator, left, right, line },
    about: `${operator} ${print(right)}`,
  };
}

/** Such a sum with a random share and sign. */
function addScaled(
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

/** Half of the expression where a field is above a bound. */
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

/** Mutations are drawn with equal chances. `nudge` stands here three times, since most steps of a search are small. */
const mutations: readonly Mutation[] = [
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

// Sites: places of a program where one expression may replace another. Their sort follows from the place: operands of
// arithmetic and of comparisons are numbers, the expression of an `if` is a condition. Targets of assignments,
// callees and indexes are left out.

type Sort = 'number' | 'condition';

interface Site {
  readonly sort: Sort;
  readonly expression: Expression;
  /** Function in which it stands. */
  readonly within: string;
}

const arithmetic = new Set(['+', '-', '*', '/', '//', '%']);
const comparisons = new Set(['<', '<=', '>', '>=']);
const numberFunctions = new Set(['min', 'max', 'abs', 'float']);

/** All sites, in the order of the text. */
function sitesOf(module: FunctionNode): Site[] {
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

/** The sort of an expression by its own form; null where the form does not tell. */
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

/** @param sort the sort that the place expects; null for a place of neither sort */
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

/** The tree with the node `old` (by identity) replaced. A tree that was parsed and not yet resolved is plain data. */
function replaceIn<T>(tree: T, old: object, replacement: unknown): T {
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
  // callers replace an expression by an expression
  return walk(tree) as T;
}

/** Number of expressions and statements of a program. */
function programNodes(module: FunctionNode): number {
  let count = 0;
  const walk = (node: unknown): void => {
    if (typeof node !== 'object' || node === null) return;
    if ('kind' in node) count++;
    for (const value of Object.values(node)) walk(value);
  };
  walk(module.body);
  return count;
}

// Fields of objects that programs read as numbers. A mutation may replace one by another of the same object.

/**
 * The usual value of each field, above 0, by the name of the object and of the field. Weights are drawn in proportion
 * to it, so that tokens, of which there are thousands, count as much as shares.
 */
export type ProgramFields = Readonly<Record<string, Readonly<Record<string, number>>>>;

/** The known fields and the fields that the programs read, in the order of their names. An unknown field counts as 1. */
function fieldsOf(modules: readonly FunctionNode[], known: ProgramFields = {}): ProgramFields {
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

type FieldExpression = Expression & {
  readonly kind: 'attribute';
  readonly object: Expression & { readonly kind: 'name' };
};

function isField(expression: Expression): expression is FieldExpression {
  return (
    expression.kind === 'attribute' && expression.object.kind === 'name' && expression.object.name !== 'math'
  );
}

function isNumber({ kind }: Expression): boolean {
  return kind === 'integer' || kind === 'float';
}

/**
 * The usual size of an expression, above 0: the usual value of a field, a number itself, and for operations what they
 * make of the sizes of their operands. Anything else counts as 1.
 */
function sizeOf(expression: Expression, fields: ProgramFields): number {
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
