/**
 * Children of Starlark programs: by a mutation or two, or by a part of one program put into another one. The
 * text that comes out compiles. Where a text has lines `# EVOLVE-BLOCK-START` and `# EVOLVE-BLOCK-END`, only
 * what stands between them changes, and all else stays as it is, letter for letter.
 */

import type { GoRandom } from '../../../sim/random/index.ts';
import { PolicyError, StarlarkProgram } from '../../../sim/sandbox/index.ts';
import { type FunctionNode, parse } from '../../../sim/sandbox/starlark/syntax/index.ts';
import { type Fields, fieldsOf, isNumber } from './fields.ts';
import { type ModuleChild, withEachTerm } from './oneMoreTerm.ts';
import { print, printProgram } from './printer.ts';
import { programNodes, replaceIn, type Site, sitesOf } from './sites.ts';
import { addScaled, mutations, pick } from './variation.ts';

export interface ProgramChild {
  readonly source: string;
  readonly changes: readonly string[];
}

const TRIES = 24;
const SOURCE_MAX = 10_000;
const NODES_MAX = 600;

/** Whole text in three parts, of which search may touch the second. */
function regionsOf(source: string): [before: string, open: string, after: string] {
  const lines = source.split('\n');
  const start = lines.findIndex((line) => /^\s*#\s*EVOLVE-BLOCK-START/.test(line));
  const end = lines.findIndex((line) => /^\s*#\s*EVOLVE-BLOCK-END/.test(line));
  if (start < 0 || end < start) return ['', source, ''];
  const text = (from: number, to?: number): string => lines.slice(from, to).join('\n');
  return [`${text(0, start + 1)}\n`, `${text(start + 1, end)}\n`, text(end)];
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

/** Applies `change` to the open part until a new text compiles, `most` times at most. */
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

/** A child of one program; undefined where nothing in it can be changed. */
export function mutateProgram(
  source: string,
  random: GoRandom,
  known: Fields = {},
  favoured: Fields = {},
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

/** All children with one more term: see `withEachTerm`. */
export function withOneMoreTerm(source: string, known: Fields, favoured: Fields): ProgramChild[] {
  const module = tryParse(regionsOf(source)[1]);
  if (module === undefined) return [];
  return withEachTerm(module, known, favoured).flatMap((changed) => vary(source, () => changed, 1) ?? []);
}

/** A child of two programs: an expression of the second in the place of one of the first, or added to it. */
export function crossPrograms(
  source: string,
  other: string,
  random: GoRandom,
  known: Fields = {},
): ProgramChild | undefined {
  const donor = tryParse(regionsOf(other)[1]);
  if (donor === undefined) return undefined;
  const donors = sitesOf(donor).filter(({ expression }) => !isNumber(expression));
  return vary(source, (module) => {
    const sites = sitesOf(module);
    if (sites.length === 0 || donors.length === 0) return undefined;
    const site = pick(sites, random);
    const fitting = donors.filter((each) => fits(each, site));
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

/** Names mean the same in functions of the same name. */
function fits(donor: Site, { sort, within }: Site): boolean {
  return donor.sort === sort && donor.within === within;
}

/** Fields that programs read; see `fieldsOf`. A text that does not parse has none. */
export function fieldsRead(sources: readonly string[], known: Fields): Fields {
  const read = fieldsOf(sources.flatMap((source) => tryParse(regionsOf(source)[1]) ?? []));
  return Object.fromEntries(
    Object.entries(read).map(([object, fields]) => [
      object,
      Object.fromEntries(Object.keys(fields).map((name) => [name, known[object]?.[name] ?? 1])),
    ]),
  );
}

/** Numbers of the open part in the order of the text; signs are not part of them. */
export function numbersOf(source: string): number[] {
  const module = tryParse(regionsOf(source)[1]);
  return module === undefined ? [] : literalsOf(module).map(({ value }) => value);
}

/** The program with other numbers in the same places. Integers become floats where they must. */
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
