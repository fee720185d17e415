/**
 * The wall around deterministic code, as a scan of syntax trees with resolved symbols. TypeScript's own
 * parser and binder say what each name refers to, so a comment, a text or a local variable called `process`
 * does not count as a breach, and a global behind a shorthand, a type or a destructuring is one.
 *
 * The program is bound with the ECMAScript library alone: whatever Node, WebGPU or a browser adds is an
 * unknown name here. Of the ECMAScript globals only those on the list below are let through, so a new way to
 * tell the time is refused until it is added. The scan stops mistakes, not an author who builds names at
 * run time.
 */

import { readdirSync } from 'node:fs';
import { dirname, join, posix, relative, sep } from 'node:path';
import type { Node, SourceFile } from 'typescript/unstable/ast';
import { NodeFlags, SyntaxKind } from 'typescript/unstable/ast';
import {
  isBindingElement,
  isBreakStatement,
  isCallExpression,
  isContinueStatement,
  isExportDeclaration,
  isExternalModuleReference,
  isIdentifier,
  isImportDeclaration,
  isImportTypeNode,
  isLabeledStatement,
  isLiteralTypeNode,
  isMetaProperty,
  isNamedTupleMember,
  isPropertyAccessExpression,
  isQualifiedName,
  isShorthandPropertyAssignment,
  isStringLiteral,
  isVariableDeclarationList,
} from 'typescript/unstable/ast/is';
import { API, type Checker, type Symbol as TypeScriptSymbol } from 'typescript/unstable/sync';

export interface Breach {
  readonly path: string;
  readonly line: number;
  readonly problem: string;
}

export interface WallRules {
  /** The scanned folder, relative to the project. */
  readonly folder: string;
  /** Folders that its files may import from, itself included. */
  readonly mayImport: readonly string[];
  /** By path: globals that the file may name in types, though their values are forbidden. */
  readonly typesOnly?: Readonly<Record<string, readonly string[]>>;
}

const values = `Array ArrayBuffer BigInt BigInt64Array BigUint64Array Boolean DataView Error EvalError Float32Array
  Float64Array Infinity Int16Array Int32Array Int8Array Iterator JSON Map Math NaN Number Object RangeError
  ReferenceError RegExp Set String Symbol SyntaxError TypeError URIError Uint16Array Uint32Array Uint8Array
  Uint8ClampedArray WeakMap WeakSet arguments isFinite isNaN parseFloat parseInt undefined`;
const types = `ArrayBufferLike ArrayBufferView ArrayLike Awaited Disposable Exclude Extract Generator InstanceType Iterable
  Capitalize IterableIterator IteratorObject Lowercase NoInfer NonNullable Omit Parameters Partial Pick PropertyDescriptor PropertyKey
  Readonly ReadonlyArray ReadonlyMap ReadonlySet Record Required ReturnType TemplateStringsArray ThisType`;
const allowedGlobals = new Set(`${values} ${types}`.split(/\s+/));

/**
 * Members that read the machine's language and region, wait for promises, or lead from any object to
 * `Function`.
 */
const refusedMembers = new Set([
  'constructor',
  'fromAsync',
  'localeCompare',
  'then',
  'toLocaleDateString',
  'toLocaleLowerCase',
  'toLocaleString',
  'toLocaleTimeString',
  'toLocaleUpperCase',
]);

/**
 * All breaches of `rules` in the project at `root`, in order of path and line. `extraFiles` (path to source)
 * are scanned as if they lay in the project.
 */
export function findBreaches(
  root: string,
  rules: WallRules,
  extraFiles: Readonly<Record<string, string>> = {},
): Breach[] {
  const paths = [...listFiles(root, rules.folder), ...Object.keys(extraFiles)].sort();
  const breaches: Breach[] = [];
  for (const path of paths) {
    if (!path.endsWith('.ts') || path.endsWith('.d.ts')) {
      breaches.push({ path, line: 1, problem: 'must be a TypeScript source' });
    }
  }
  const configPath = join(root, 'tsconfig.wall.json');
  const virtual = new Map(Object.entries(extraFiles).map(([path, text]) => [join(root, path), text]));
  virtual.set(
    configPath,
    JSON.stringify({
      extends: './tsconfig.json',
      compilerOptions: { types: [], lib: ['es2024', 'esnext.disposable', 'esnext.float16'], allowJs: true },
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
    if (project === undefined) throw new Error('TypeScript opened no project for the wall');
    for (const path of paths) {
      const file = project.program.getSourceFile(join(root, path));
      if (file === undefined) throw new Error(`TypeScript did not read ${path}`);
      const scan = new FileScan(path, file, rules, root);
      breaches.push(...scan.run(project.checker));
    }
  } finally {
    api.close();
  }
  return breaches.sort((a, b) => (a.path === b.path ? a.line - b.line : a.path < b.path ? -1 : 1));
}

function listFiles(root: string, folder: string): string[] {
  return readdirSync(join(root, folder), { recursive: true, withFileTypes: true })
    .filter((entry) => !entry.isDirectory())
    .map((entry) => relative(root, join(entry.parentPath, entry.name)).split(sep).join('/'));
}

class FileScan {
  readonly #path: string;
  readonly #file: SourceFile;
  readonly #rules: WallRules;
  readonly #root: string;
  readonly #breaches: Breach[] = [];
  readonly #names: Node[] = [];

  constructor(path: string, file: SourceFile, rules: WallRules, root: string) {
    this.#path = path;
    this.#file = file;
    this.#rules = rules;
    this.#root = root;
  }

  run(checker: Checker): Breach[] {
    for (const reference of [...this.#file.referencedFiles, ...this.#file.typeReferenceDirectives]) {
      this.#refuse(reference.pos, `reference directive to ${reference.fileName}`);
    }
    this.#file.forEachChild(this.#visit);
    const symbols = checker.getSymbolAtLocation(this.#names);
    for (const [i, name] of this.#names.entries()) this.#checkName(name, symbols[i], checker);
    return this.#breaches;
  }

  #refuse(position: number, problem: string): void {
    const line = this.#file.text.slice(0, position).split('\n').length;
    this.#breaches.push({ path: this.#path, line, problem });
  }

  #visit = (node: Node): undefined => {
    if (isIdentifier(node)) this.#names.push(node);
    this.#checkSyntax(node);
    node.forEachChild(this.#visit);
  };

  #checkSyntax(node: Node): void {
    const start = node.getStart(this.#file);
    if (node.kind === SyntaxKind.AsyncKeyword) this.#refuse(start, 'async function');
    if (node.kind === SyntaxKind.AwaitExpression || node.kind === SyntaxKind.AwaitKeyword) {
      this.#refuse(start, 'await');
    }
    if (isVariableDeclarationList(node) && (node.flags & NodeFlags.AwaitUsing) === NodeFlags.AwaitUsing) {
      this.#refuse(start, 'await using');
    }
    if (node.kind === SyntaxKind.DeclareKeyword) {
      this.#refuse(start, 'declare: a name that something outside provides');
    }
    if (isMetaProperty(node) && node.keywordToken === SyntaxKind.ImportKeyword) {
      this.#refuse(start, 'import.meta');
    }
    if (isCallExpression(node) && node.expression.kind === SyntaxKind.ImportKeyword) {
      this.#refuse(start, 'dynamic import');
    }
    const isMember = isPropertyAccessExpression(node.parent) && node.parent.name === node;
    if (isIdentifier(node) ? isMember || isBindingElement(node.parent) : isStringLiteral(node)) {
      const { text } = node as Node & { readonly text: string };
      if (refusedMembers.has(text)) this.#refuse(start, `member ${text}`);
    }
    const imported = importedModule(node);
    if (imported !== undefined && !this.#mayImport(imported)) {
      this.#refuse(start, `import of ${imported}`);
    }
  }

  #mayImport(specifier: string): boolean {
    if (!specifier.startsWith('./') && !specifier.startsWith('../')) return false;
    const target = posix.normalize(posix.join(dirname(this.#path), specifier));
    return this.#rules.mayImport.some((folder) => target.startsWith(`${folder}/`));
  }

  #checkName(name: Node, found: TypeScriptSymbol | undefined, checker: Checker): void {
    const { text } = name as Node & { readonly text: string };
    const symbol = isShorthandPropertyAssignment(name.parent)
      ? checker.getShorthandAssignmentValueSymbol(name.parent)
      : found;
    if (!isLookedUp(name) || (symbol !== undefined && !this.#isGlobal(symbol))) return;
    const start = name.getStart(this.#file);
    if (allowedGlobals.has(text)) {
      if (text === 'Math' && !isPureMath(name)) this.#refuse(start, 'Math.random, or Math by another name');
      return;
    }
    const asType = this.#rules.typesOnly?.[this.#path]?.includes(text) === true && isTypeName(name);
    if (!asType) this.#refuse(start, `global ${text}`);
  }

  /**
   * Provided by a library or by the language itself (globalThis, undefined, arguments), and not by the
   * project.
   */
  #isGlobal(symbol: TypeScriptSymbol): boolean {
    const project = `${this.#root.split(sep).join('/')}/src/`.toLowerCase();
    return !symbol.declarations.some((declaration) => declaration.path.toLowerCase().startsWith(project));
  }
}

/** The module that this node imports or re-exports, in code or in a type. */
function importedModule(node: Node): string | undefined {
  let specifier: Node | undefined;
  if (isImportDeclaration(node) || isExportDeclaration(node)) specifier = node.moduleSpecifier;
  else if (isExternalModuleReference(node)) specifier = node.expression;
  else if (isImportTypeNode(node) && isLiteralTypeNode(node.argument)) specifier = node.argument.literal;
  if (specifier === undefined) return undefined;
  return isStringLiteral(specifier) ? specifier.text : 'a computed name';
}

/** Whether the name is looked up in scope: not a member of something else, a label or a keyword. */
function isLookedUp(name: Node): boolean {
  const { parent } = name;
  if (isPropertyAccessExpression(parent) || isNamedTupleMember(parent)) return parent.name !== name;
  if (isQualifiedName(parent)) return parent.right !== name;
  if (isBindingElement(parent)) return parent.propertyName !== name;
  if (isBreakStatement(parent) || isContinueStatement(parent) || isLabeledStatement(parent)) return false;
  if (isMetaProperty(parent)) return false;
  return (name as Node & { readonly text: string }).text !== 'const';
}

/** Whether this `Math` is only ever the `Math` of `Math.member` with a member that computes. */
function isPureMath(name: Node): boolean {
  const { parent } = name;
  return isPropertyAccessExpression(parent) && parent.expression === name && parent.name.text !== 'random';
}

function isTypeName(name: Node): boolean {
  if (name.parent.kind === SyntaxKind.TypeReference) return true;
  const heritage = name.parent.parent;
  return (
    name.parent.kind === SyntaxKind.ExpressionWithTypeArguments &&
    heritage.kind === SyntaxKind.HeritageClause &&
    heritage.parent.kind === SyntaxKind.InterfaceDeclaration
  );
}
