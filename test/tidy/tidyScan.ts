/**
 * The rules of the house (CONTRIBUTING.md) as a scan of syntax trees. A source is a path below the project and a text, so
 * that a test can show each rule to fail on sources that do not exist.
 */

import { dirname, join, posix } from 'node:path';
import type { ClassDeclaration, MethodDeclaration, Node, SourceFile } from 'typescript/unstable/ast';
import { SyntaxKind } from 'typescript/unstable/ast';
import {
  isArrowFunction,
  isBlock,
  isCallExpression,
  isClassDeclaration,
  isExportDeclaration,
  isExpressionStatement,
  isFunctionDeclaration,
  isIdentifier,
  isImportDeclaration,
  isInterfaceDeclaration,
  isMethodDeclaration,
  isNamedExports,
  isNamedImports,
  isPropertyAccessExpression,
  isReturnStatement,
  isStringLiteral,
  isTypeAliasDeclaration,
  isVariableStatement,
} from 'typescript/unstable/ast/is';
import { API } from 'typescript/unstable/sync';

export type Rule =
  | 'size'
  | 'folder'
  | 'layer'
  | 'one-subclass'
  | 'forwarding'
  | 'type-name'
  | 'variant-name'
  | 'command-line'
  | 'phrase'
  | 'one-mechanism'
  | 'circle'
  | 'export'
  | 'message'
  | 'flag'
  | 'knob-name'
  | 'check'
  | 'room';

export interface Finding {
  readonly rule: Rule;
  /** Where: a path, or a path and a name. */
  readonly at: string;
  readonly problem: string;
}

export interface TidyRules {
  /** Above this many lines a file needs a reason. */
  readonly mostLines: number;
  /** Below this many lines a file with one importer belongs to its importer. */
  readonly leastLines: number;
  /** Rooms of `src` from low to high: a file imports from its own room and from rooms before it. */
  readonly layers: readonly string[];
  /** Most rooms of `src`. */
  readonly mostRooms: number;
  /** Folders in which a file is a variant, so that the errand for one names one: there a file may be small. */
  readonly variantFolders: readonly string[];
  /** Files that users import from; they may be small and their methods may forward. */
  readonly doors: readonly string[];
  /** Names of variants, each with the files that may name it. */
  readonly variants: Readonly<Record<string, readonly string[]>>;
  /** Variants whose names are words of code too: of these only texts are looked at. */
  readonly everydayWords: readonly string[];
  /** Files below which options of the command line are spelled. */
  readonly spellFlags: readonly string[];
  /** Third names of settings, each with its path and the files of formats that have it for themselves. */
  readonly otherNames: Readonly<Record<string, { readonly path: string; readonly files: readonly string[] }>>;
  /** Ways to check a value, each with the files that make it up. */
  readonly checks: Readonly<Record<string, readonly string[]>>;
  /** Calls or imports that belong to one file. */
  readonly mechanisms: readonly { readonly text: RegExp; readonly file: string }[];
}

/** Phrases that have to be read twice. They are looked for in comments, texts, docs and names of tests. */
export const bannedPhrases: readonly RegExp[] = [
  /\bwhoever\b/i,
  /\b(nobody|somebody)\b/i,
  /\bthose that\b/i,
  /\bso (many|much)\b(?! (as|more|less|that|faster|slower))/i,
  /\bis (none|no)\b(?! (longer|more|less|later|earlier))/i,
  /\b(are|be) none\b/i,
  /\bthat of\b/i,
];

/** Openings of comments that have to be read with the name behind them: they have no subject. */
const bannedOpening = /^(?:Of|By|What|As)\b/;

interface Parsed {
  readonly path: string;
  readonly text: string;
  readonly lines: number;
  readonly file: SourceFile;
  /** Project files that this one imports or re-exports from. */
  readonly imports: readonly string[];
}

/** All findings over `sources` (path below the project to text), in order of rule and place. */
export function findUntidy(
  root: string,
  sources: Readonly<Record<string, string>>,
  rules: TidyRules,
): Finding[] {
  const parsed = parse(root, sources);
  const inSource = parsed.filter(({ path }) => path.startsWith('src/'));
  return [
    ...sizes(inSource, rules),
    ...folders(inSource),
    ...layers(inSource, rules),
    ...rooms(inSource, rules),
    ...classes(inSource, rules),
    ...typeNames(inSource),
    ...variantNames(inSource, rules),
    ...commandLine(parsed),
    ...phrases(parsed),
    ...openings(inSource),
    ...mechanisms(inSource, rules),
    ...circles(inSource),
    ...exportsInVain(parsed, rules),
    ...rewrittenMessages(inSource),
    ...spelledFlags(inSource, rules),
    ...otherNames(inSource, rules),
    ...checks(inSource, rules),
  ].sort((a, b) => `${a.rule} ${a.at}`.localeCompare(`${b.rule} ${b.at}`));
}

/** Findings of the rule on phrases in a text that is not TypeScript. */
export function findPhrases(path: string, text: string): Finding[] {
  const findings: Finding[] = [];
  for (const [i, line] of text.split('\n').entries()) {
    for (const phrase of bannedPhrases) {
      const found = phrase.exec(line);
      if (found) findings.push({ rule: 'phrase', at: `${path}:${i + 1}`, problem: `"${found[0]}"` });
    }
  }
  return findings;
}

function parse(root: string, sources: Readonly<Record<string, string>>): Parsed[] {
  const paths = Object.keys(sources).sort();
  const configPath = join(root, 'tsconfig.tidy.json');
  const virtual = new Map(Object.entries(sources).map(([path, text]) => [join(root, path), text]));
  virtual.set(
    configPath,
    JSON.stringify({
      extends: './tsconfig.json',
      compilerOptions: { types: [], noResolve: true },
      include: [],
      files: paths,
    }),
  );
  const api = new API({
    cwd: root,
    fs: {
      readFile: (path) => virtual.get(path),
      fileExists: (path) => (virtual.has(path) ? true : undefined),
    },
  });
  try {
    const project = api.updateSnapshot({ openProjects: [configPath] }).getProject(configPath);
    if (project === undefined) throw new Error('TypeScript opened no project for the tidy test');
    return paths.map((path) => {
      const file = project.program.getSourceFile(join(root, path));
      if (file === undefined) throw new Error(`TypeScript did not read ${path}`);
      const text = sources[path];
      const lines = text.replace(/\n$/, '').split('\n').length;
      return { path, text, lines, file, imports: importsOf(path, file) };
    });
  } finally {
    api.close();
  }
}

function importsOf(path: string, file: SourceFile): string[] {
  const found = new Set<string>();
  for (const statement of file.statements) {
    if (!isImportDeclaration(statement) && !isExportDeclaration(statement)) continue;
    const specifier = statement.moduleSpecifier;
    if (specifier === undefined || !isStringLiteral(specifier) || !specifier.text.startsWith('.')) continue;
    found.add(posix.normalize(posix.join(dirname(path), specifier.text)));
  }
  return [...found];
}

function sizes(files: readonly Parsed[], rules: TidyRules): Finding[] {
  const importers = new Map<string, number>();
  for (const { imports } of files) for (const to of imports) importers.set(to, (importers.get(to) ?? 0) + 1);
  const findings: Finding[] = [];
  for (const { path, lines } of files) {
    if (rules.doors.includes(path) || path.endsWith('.d.ts')) continue;
    if (lines > rules.mostLines) {
      findings.push({ rule: 'size', at: path, problem: `${lines} lines; say why, or find the second idea` });
    } else if (
      lines < rules.leastLines &&
      importers.get(path) === 1 &&
      !rules.variantFolders.includes(dirname(path))
    ) {
      findings.push({
        rule: 'size',
        at: path,
        problem: `${lines} lines and one importer, to which it belongs`,
      });
    }
  }
  return findings;
}

function folders(files: readonly Parsed[]): Finding[] {
  const findings: Finding[] = [];
  for (const { path } of files) {
    const parts = path.split('/');
    if (parts.length > 5) {
      findings.push({ rule: 'folder', at: path, problem: 'lies more than three folders below src' });
    }
    for (const part of parts.slice(1)) {
      if (!/^[a-z][A-Za-z0-9]*(\.d)?(\.ts)?$|^[a-z-]+-ambient\.d\.ts$/.test(part)) {
        findings.push({ rule: 'folder', at: path, problem: `"${part}" must be in camelCase` });
      }
    }
  }
  return findings;
}

/** Imports, types and lazy ones included, that lead to a room above, and rooms that have no place among the others. */
function layers(files: readonly Parsed[], rules: TidyRules): Finding[] {
  const findings: Finding[] = [];
  const roomOf = (path: string): string | undefined => /^src\/([^/]+)\//.exec(path)?.[1];
  for (const { path, text, imports } of files) {
    const room = roomOf(path);
    if (room === undefined) continue;
    const height = rules.layers.indexOf(room);
    if (height < 0)
      findings.push({ rule: 'layer', at: path, problem: `${room} is not among the rooms of src` });
    const lazy = [...text.matchAll(/\bimport\('(\.[^']+)'\)/g)].map(([, to]) =>
      posix.join(dirname(path), to),
    );
    for (const to of [...imports, ...lazy]) {
      const other = roomOf(to);
      if (other !== undefined && rules.layers.indexOf(other) > height) {
        findings.push({
          rule: 'layer',
          at: path,
          problem: `imports ${to}, and ${other} stands above ${room}`,
        });
      }
    }
  }
  return findings;
}

function rooms(files: readonly Parsed[], { mostRooms }: TidyRules): Finding[] {
  const found = new Set(files.flatMap(({ path }) => /^src\/([^/]+)\//.exec(path)?.[1] ?? []));
  if (found.size <= mostRooms) return [];
  return [{ rule: 'room', at: 'src', problem: `has ${found.size} rooms, and ${mostRooms} are the most` }];
}

function classes(files: readonly Parsed[], rules: TidyRules): Finding[] {
  const subclasses = new Map<string, number>();
  const abstracts: { readonly name: string; readonly at: string }[] = [];
  const findings: Finding[] = [];
  for (const { path, file } of files) {
    const visit = (node: Node): undefined => {
      if (isClassDeclaration(node)) {
        const base = baseOf(node);
        if (base !== undefined) subclasses.set(base, (subclasses.get(base) ?? 0) + 1);
        const isAbstract = node.modifiers?.some(({ kind }) => kind === SyntaxKind.AbstractKeyword);
        if (isAbstract && node.name)
          abstracts.push({ name: node.name.text, at: `${path} ${node.name.text}` });
        // a method that an interface or a base class asks for may forward: that is composition
        if (!rules.doors.includes(path) && (node.heritageClauses ?? []).length === 0) {
          for (const member of node.members) {
            if (isMethodDeclaration(member) && onlyForwards(member)) {
              const name = isIdentifier(member.name) ? member.name.text : '';
              findings.push({
                rule: 'forwarding',
                at: `${path} ${node.name?.text}.${name}`,
                problem: 'only forwards to a method of the same name',
              });
            }
          }
        }
      }
      node.forEachChild(visit);
    };
    file.forEachChild(visit);
  }
  for (const { name, at } of abstracts) {
    const count = subclasses.get(name) ?? 0;
    if (count < 2) {
      findings.push({
        rule: 'one-subclass',
        at,
        problem: `is abstract and has ${count} subclasses; fold them`,
      });
    }
  }
  return findings;
}

function baseOf(node: ClassDeclaration): string | undefined {
  for (const clause of node.heritageClauses ?? []) {
    if (clause.token !== SyntaxKind.ExtendsKeyword) continue;
    const { expression } = clause.types[0];
    if (isIdentifier(expression)) return expression.text;
  }
  return undefined;
}

/** Whether the body is one call of the same name on something of this object, with the parameters as they are. */
function onlyForwards(method: MethodDeclaration): boolean {
  const { body } = method;
  if (body === undefined || !isBlock(body) || body.statements.length !== 1 || !isIdentifier(method.name))
    return false;
  const [statement] = body.statements;
  let call: Node | undefined;
  if (isReturnStatement(statement)) call = statement.expression;
  else if (isExpressionStatement(statement)) call = statement.expression;
  if (call === undefined || !isCallExpression(call) || !isPropertyAccessExpression(call.expression))
    return false;
  const { name, expression } = call.expression;
  if (name.text !== method.name.text) return false;
  if (!isPropertyAccessExpression(expression) || expression.expression.kind !== SyntaxKind.ThisKeyword)
    return false;
  const parameters = method.parameters.map((each) => (isIdentifier(each.name) ? each.name.text : ''));
  const given = call.arguments.map((each) => (isIdentifier(each) ? each.text : '?'));
  return parameters.length === given.length && parameters.every((each, i) => each === given[i]);
}

function typeNames(files: readonly Parsed[]): Finding[] {
  const places = new Map<string, string[]>();
  for (const { path, file } of files) {
    for (const statement of file.statements) {
      const isType =
        isInterfaceDeclaration(statement) ||
        isTypeAliasDeclaration(statement) ||
        isClassDeclaration(statement);
      if (!isType || statement.name === undefined) continue;
      const name = statement.name.text;
      const before = places.get(name) ?? [];
      if (!before.includes(path)) places.set(name, [...before, path]);
    }
  }
  return [...places]
    .filter(([, paths]) => paths.length > 1)
    .map(([name, paths]) => ({ rule: 'type-name', at: name, problem: `stands in ${paths.join(' and ')}` }));
}

/** Names of variants in texts, and identifiers that are one or begin with one, such as `ddr` and `ddrBytes`. */
function variantNames(files: readonly Parsed[], rules: TidyRules): Finding[] {
  const findings = new Map<string, Finding>();
  const names = Object.entries(rules.variants).map(
    ([name, places]) => [name, new RegExp(`^${name}(?![a-z0-9])`), places] as const,
  );
  for (const { path, file } of files) {
    const others = names.filter(
      ([, , places]) => !places.some((each) => path === each || path.startsWith(`${each}/`)),
    );
    if (others.length === 0) continue;
    const visit = (node: Node): undefined => {
      const isText = isStringLiteral(node);
      if (isText || isIdentifier(node)) {
        for (const [name, begins] of others) {
          if (isText ? node.text !== name : !begins.test(node.text)) continue;
          if (!isText && rules.everydayWords.includes(name)) continue;
          findings.set(`${path} ${node.text}`, {
            rule: 'variant-name',
            at: `${path} ${node.text}`,
            problem: `names the variant ${name}`,
          });
        }
      }
      node.forEachChild(visit);
    };
    file.forEachChild(visit);
  }
  return [...findings.values()];
}

function commandLine(files: readonly Parsed[]): Finding[] {
  const may = (path: string): boolean => path.startsWith('src/cli/') || path.startsWith('test/cli/');
  return files
    .filter(({ path, imports }) => !may(path) && imports.some((to) => to.startsWith('src/cli/')))
    .map(({ path }) => ({ rule: 'command-line', at: path, problem: 'imports from src/cli' }));
}

function openings(files: readonly Parsed[]): Finding[] {
  const findings: Finding[] = [];
  for (const { path, text } of files) {
    const lines = text.split('\n').map((line) => line.trim());
    for (const [i, line] of lines.entries()) {
      const goesOn = line.startsWith('//') && i > 0 && lines[i - 1].startsWith('//');
      if (goesOn || !/^\/(\*\*|\/)/.test(line)) continue;
      const [found] =
        bannedOpening.exec((line === '/**' ? lines[i + 1] : line).replace(/^[/*]+\s*/, '')) ?? [];
      if (found === undefined) continue;
      findings.push({ rule: 'phrase', at: `${path}:${i + 1}`, problem: `a comment opens with "${found}"` });
    }
  }
  return findings;
}

function phrases(files: readonly Parsed[]): Finding[] {
  return files.flatMap(({ path, text }) => findPhrases(path, text));
}

function mechanisms(files: readonly Parsed[], rules: TidyRules): Finding[] {
  const findings: Finding[] = [];
  for (const { path, text } of files) {
    for (const { text: pattern, file } of rules.mechanisms) {
      if (path !== file && pattern.test(text)) {
        findings.push({ rule: 'one-mechanism', at: path, problem: `${pattern.source} belongs to ${file}` });
      }
    }
  }
  return findings;
}

/**
 * Exports of the sources that no file imports, and exports that only tests, benches and tools import and their own file does not
 * use: what only tests need belongs to the tests. A module that is imported whole is used by the names that its importer
 * writes.
 */
function exportsInVain(files: readonly Parsed[], rules: TidyRules): Finding[] {
  const importers = new Map<string, Set<string>>();
  const wholly = new Map<string, Parsed[]>();
  for (const each of files) {
    for (const { from, name } of importedNames(each)) {
      if (name === '*') wholly.set(from, [...(wholly.get(from) ?? []), each]);
      else {
        const key = `${from} ${name}`;
        importers.set(key, (importers.get(key) ?? new Set()).add(each.path));
      }
    }
  }
  const findings: Finding[] = [];
  for (const { path, text, file } of files) {
    if (!path.startsWith('src/') || path.endsWith('.d.ts') || rules.doors.includes(path)) continue;
    for (const name of exportedNames(file)) {
      const users = [...(importers.get(`${path} ${name}`) ?? [])];
      for (const whole of wholly.get(path) ?? []) {
        if (timesWritten(name, whole.text) > 0) users.push(whole.path);
      }
      if (users.some((user) => user.startsWith('src/'))) continue;
      if (users.length > 0 && timesWritten(name, text) > 1) continue;
      const problem = users.length > 0 ? 'is used by tests alone' : 'is exported and imported by no file';
      findings.push({ rule: 'export', at: `${path} ${name}`, problem });
    }
  }
  return findings;
}

function timesWritten(name: string, text: string): number {
  return text.match(new RegExp(`(?<![\\w$])${name.replaceAll('$', '\\$')}(?![\\w$])`, 'g'))?.length ?? 0;
}

function exportedNames(file: SourceFile): string[] {
  const names: string[] = [];
  for (const statement of file.statements) {
    if (isExportDeclaration(statement)) {
      const clause = statement.exportClause;
      if (clause !== undefined && isNamedExports(clause)) {
        names.push(...clause.elements.map((element) => element.name.text));
      }
      continue;
    }
    const { modifiers } = statement as { readonly modifiers?: readonly Node[] };
    if (!modifiers?.some(({ kind }) => kind === SyntaxKind.ExportKeyword)) continue;
    if (isVariableStatement(statement)) {
      for (const { name } of statement.declarationList.declarations)
        if (isIdentifier(name)) names.push(name.text);
    } else {
      const { name } = statement as { readonly name?: Node };
      if (name !== undefined && isIdentifier(name)) names.push(name.text);
    }
  }
  return names;
}

/** What a file takes from others of the project; `*` where it takes a module whole, by `import()` as well. */
function importedNames({ path, text, file }: Parsed): { readonly from: string; readonly name: string }[] {
  const found: { from: string; name: string }[] = [];
  const placeOf = (to: string): string => posix.normalize(posix.join(dirname(path), to));
  for (const statement of file.statements) {
    if (!isImportDeclaration(statement) && !isExportDeclaration(statement)) continue;
    const specifier = statement.moduleSpecifier;
    if (specifier === undefined || !isStringLiteral(specifier) || !specifier.text.startsWith('.')) continue;
    const from = placeOf(specifier.text);
    const clause = isImportDeclaration(statement)
      ? statement.importClause?.namedBindings
      : statement.exportClause;
    if (clause !== undefined && (isNamedImports(clause) || isNamedExports(clause))) {
      for (const { name, propertyName } of clause.elements)
        found.push({ from, name: (propertyName ?? name).text });
    } else if (clause !== undefined || isExportDeclaration(statement)) {
      found.push({ from, name: '*' });
    }
  }
  // a program of a test names its modules from the project's root
  for (const [, to] of text.matchAll(/\bimport\(\s*'(\.[^']+)'/g)) {
    found.push({ from: to.startsWith('./src/') ? to.slice(2) : placeOf(to), name: '*' });
  }
  return found;
}

/**
 * Messages of errors that are searched and put together anew. An error that others know better names for leaves its sentence
 * open (`namedError`), and `renamed` gives the names.
 */
function rewrittenMessages(files: readonly Parsed[]): Finding[] {
  const findings: Finding[] = [];
  for (const { path, file } of files) {
    const visit = (node: Node): undefined => {
      if (isCallExpression(node) && isPropertyAccessExpression(node.expression)) {
        const { name, expression } = node.expression;
        const isMessage = isPropertyAccessExpression(expression) && expression.name.text === 'message';
        if (isMessage && ['replace', 'replaceAll'].includes(name.text)) {
          findings.push({ rule: 'message', at: path, problem: `rewrites a message by ${name.text}` });
        }
      }
      node.forEachChild(visit);
    };
    file.forEachChild(visit);
  }
  return findings;
}

/** An option as a word of its own: neither an arrow of a drawing nor a number that is lowered. */
const flag = /(?<![\w-])--[a-z][a-z0-9]*(?:-[a-z0-9]+)*(?![\w-])/g;

/** Texts and comments of a source. */
function wordsIn({ text, file }: Parsed): string[] {
  const words = [...text.matchAll(/\/\*[\s\S]*?\*\/|(?<=^|\s)\/\/.*/g)].map(([comment]) => comment);
  const visit = (node: Node): undefined => {
    const isPart = [SyntaxKind.TemplateHead, SyntaxKind.TemplateMiddle, SyntaxKind.TemplateTail].includes(
      node.kind,
    );
    if (isPart || isStringLiteral(node) || node.kind === SyntaxKind.NoSubstitutionTemplateLiteral) {
      words.push((node as unknown as { readonly text: string }).text);
    }
    node.forEachChild(visit);
  };
  file.forEachChild(visit);
  return words;
}

/**
 * Options of the command line that are spelled outside of it and of the table of settings. An error or a report names the
 * field; the place where its value was written says what that is called.
 */
function spelledFlags(files: readonly Parsed[], { spellFlags }: TidyRules): Finding[] {
  const spells = ({ path }: Parsed): boolean =>
    spellFlags.some((each) => path === each || path.startsWith(`${each}/`));
  const flagsOf = (each: Parsed): string[] => wordsIn(each).flatMap((text) => text.match(flag) ?? []);
  const known = new Set(files.filter(spells).flatMap(flagsOf));
  return files
    .filter((each) => !spells(each))
    .flatMap((each) =>
      [...new Set(flagsOf(each))]
        .filter((found) => known.has(found))
        .map(
          (found): Finding => ({ rule: 'flag', at: `${each.path} ${found}`, problem: 'spells an option' }),
        ),
    );
}

/** Identifiers and texts that are a third name of a setting, beside its path and its option. */
function otherNames(files: readonly Parsed[], { otherNames: names }: TidyRules): Finding[] {
  const findings = new Map<string, Finding>();
  for (const { path, file } of files) {
    if (path.startsWith('src/cli/')) continue;
    const visit = (node: Node): undefined => {
      const text = isStringLiteral(node) || isIdentifier(node) ? node.text : '';
      const other = Object.hasOwn(names, text) ? names[text] : undefined;
      if (other !== undefined && !other.files.some((each) => path.startsWith(each))) {
        const at = `${path} ${text}`;
        findings.set(at, { rule: 'knob-name', at, problem: `is another name of ${other.path}` });
      }
      node.forEachChild(visit);
    };
    file.forEachChild(visit);
  }
  return [...findings.values()];
}

const plainTypes: readonly SyntaxKind[] = [
  SyntaxKind.StringKeyword,
  SyntaxKind.NumberKeyword,
  SyntaxKind.BooleanKeyword,
  SyntaxKind.BigIntKeyword,
  SyntaxKind.UnknownKeyword,
  SyntaxKind.VoidKeyword,
];

/**
 * Ways to check a value beside those of the rules: a schema library, or a function that takes any value with the name of its
 * field and gives it back as a plain value, or refuses it. A function that makes an error, or reads a thing of its own room, does not count.
 */
function checks(files: readonly Parsed[], rules: TidyRules): Finding[] {
  const known = new Set(Object.values(rules.checks).flat());
  const findings: Finding[] = [];
  for (const { path, text, file } of files) {
    if (known.has(path)) continue;
    const [library] =
      /from '(valibot|zod|ajv|joi|yup|superstruct|arktype|typebox|io-ts|runtypes)'/.exec(text) ?? [];
    if (library !== undefined)
      findings.push({ rule: 'check', at: path, problem: `imports a schema library ${library}` });
    const visit = (node: Node): undefined => {
      if (isFunctionDeclaration(node) || isMethodDeclaration(node) || isArrowFunction(node)) {
        const named = node.parameters.some(({ name }) => isIdentifier(name) && name.text === 'field');
        const any = node.parameters.some(
          ({ name, type }) =>
            type?.kind === SyntaxKind.UnknownKeyword && isIdentifier(name) && name.text !== 'error',
        );
        const isPlain = node.type === undefined || plainTypes.includes(node.type.kind);
        if (named && any && isPlain) {
          const called =
            'name' in node && node.name !== undefined && isIdentifier(node.name) ? node.name.text : '';
          findings.push({
            rule: 'check',
            at: `${path} ${called}`.trim(),
            problem: `checks values beside ${Object.keys(rules.checks).join(' and ')}`,
          });
        }
      }
      node.forEachChild(visit);
    };
    file.forEachChild(visit);
  }
  return findings;
}

/** Circles of imports, types included: each strongly connected set of files, by Tarjan's algorithm (1972). */
function circles(files: readonly Parsed[]): Finding[] {
  const edges = new Map(files.map(({ path, imports }) => [path, imports]));
  const index = new Map<string, number>();
  const low = new Map<string, number>();
  const stack: string[] = [];
  const findings: Finding[] = [];
  const visit = (path: string): void => {
    index.set(path, index.size);
    low.set(path, index.size - 1);
    stack.push(path);
    for (const to of edges.get(path) ?? []) {
      if (!edges.has(to)) continue;
      if (!index.has(to)) {
        visit(to);
        low.set(path, Math.min(low.get(path)!, low.get(to)!));
      } else if (stack.includes(to)) {
        low.set(path, Math.min(low.get(path)!, index.get(to)!));
      }
    }
    if (low.get(path) !== index.get(path)) return;
    const circle = stack.splice(stack.indexOf(path)).sort();
    if (circle.length > 1 || edges.get(path)?.includes(path)) {
      findings.push({ rule: 'circle', at: circle[0], problem: `imports itself by ${circle.join(', ')}` });
    }
  };
  for (const { path } of files) if (!index.has(path)) visit(path);
  return findings;
}
