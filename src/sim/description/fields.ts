/**
 * Strict reading of a YAML mapping. Every key is asked for by name and kind; what was not asked for is an
 * error that names its path, its line and the nearest key that exists there. Numbers come back only when they
 * lie in their range, 64-bit integers keep all their bits.
 */

import {
  type Alias,
  Composer,
  type Document,
  isAlias,
  isMap,
  isScalar,
  isSeq,
  Lexer,
  LineCounter,
  type Node,
  Parser,
  type YAMLMap,
} from 'yaml';
import {
  lineError,
  nearestName,
  type Said,
  type SourcePlace,
  type TierKVError,
} from '../../runtime/errors.ts';
import { shownPlain } from '../workload/traceLines.ts';

/** Bounds of a number; `above` excludes its value. */
export interface NumberRange {
  readonly min?: number;
  readonly above?: number;
  readonly max?: number;
}

export function describeRange(range: NumberRange, kind: string): string {
  const low =
    range.above !== undefined
      ? `above ${range.above}`
      : range.min !== undefined
        ? `of at least ${range.min}`
        : '';
  const high = range.max !== undefined ? `${low === '' ? '' : ' and '}at most ${range.max}` : '';
  return `${kind} ${low}${high}`.trim();
}

function within(value: number, range: NumberRange): boolean {
  return (
    Number.isFinite(value) &&
    value >= (range.min ?? -Infinity) &&
    value <= (range.max ?? Infinity) &&
    (range.above === undefined || value > range.above)
  );
}

interface SpecEntry {
  readonly key: unknown;
  readonly value: unknown;
}

export class SpecNode {
  /** Where this mapping lies in the document, as `clients[2].arrival`. */
  readonly path: string;
  readonly #source: YamlSource;
  readonly #node: YAMLMap;
  readonly #entries = new Map<string, SpecEntry>();
  readonly #asked = new Set<string>();

  /** @internal Only readers of YAML make one, and its types are those of the package that parses. */
  constructor(source: YamlSource, node: YAMLMap, path: string) {
    this.#source = source;
    this.#node = node;
    this.path = path;
    source.countMapping(node);
    for (const entry of node.items) {
      const name = this.#nameOf(entry.key);
      if (this.#entries.has(name)) {
        const line = source.line((entry.key as Node).range?.[0]);
        const key = shownPlain(this.#join(name));
        const problem = `not valid YAML: keys must be unique, and ${key} is there twice`;
        throw source.error(line, problem, 'Keep one of them');
      }
      this.#entries.set(name, entry);
    }
  }

  #nameOf(key: unknown): string {
    const node = this.#source.resolve(key);
    if (isScalar(node) && typeof node.value !== 'symbol') return String(node.value);
    const line = this.#source.line((key as Node | null)?.range?.[0]);
    if (isScalar(node)) throw this.#source.error(line, 'mappings are not merged (<<)', 'Write the keys out');
    throw this.#source.error(line, 'a key is a list or a mapping', 'Write a text as key');
  }

  /**
   * An error about `key` of this mapping (or about the mapping itself, for ''), with file, line, path and
   * remedy.
   */
  error(key: string, problem: string, remedy: Said): TierKVError {
    const field = key === '' ? this.path : this.#join(key);
    const { name: what, file, line = 1 } = this.place(key);
    const said: Said = (called) =>
      `${what} ${problem}. ${typeof remedy === 'string' ? remedy : remedy(called)}`;
    return lineError(file, line, said, { field });
  }

  /** Where `key` stands, or would stand. */
  place(key: string): SourcePlace & { readonly file: string } {
    const field = key === '' ? this.path : this.#join(key);
    const at = key === '' ? this.#node : (this.#entries.get(key)?.key ?? this.#node);
    const line = this.#source.line((at as Node).range?.[0]);
    return { name: field === '' ? 'the file' : shownPath(field), file: this.#source.file, line };
  }

  has(key: string): boolean {
    this.#asked.add(key);
    return this.#value(key) !== undefined;
  }

  /** Whether something stands under `key`: null, as `hardware: null` or `hardware:`, is nothing. */
  says(key: string): boolean {
    const value = this.#value(key);
    return this.has(key) && !(isScalar(value) && value.value === null);
  }

  /** The value under `key` where it is a single one; undefined for a list or a mapping with something in it, null for an empty one. */
  bare(key: string): unknown {
    const value = this.#value(key);
    if (isScalar(value)) return value.value;
    return (isMap(value) || isSeq(value)) && value.items.length > 0 ? undefined : null;
  }

  text(key: string, fallback: string = ''): string {
    const value = this.scalar(key);
    if (value === undefined || value === null) return fallback;
    if (typeof value === 'object') throw this.error(key, 'is not a text', 'Write a single value there');
    return String(value);
  }

  choice<T extends string>(key: string, allowed: readonly T[], fallback: T | undefined = undefined): T {
    const value = this.text(key, fallback ?? '');
    if ((allowed as readonly string[]).includes(value)) return value as T;
    const near = nearestName(value, allowed);
    const names = allowed.map((name) => (name === '' ? 'empty' : name)).join(', ');
    if (value === '') throw this.error(key, 'is missing', `Set it to one of: ${names}`);
    throw this.error(
      key,
      `is "${shownPlain(value)}"`,
      near === undefined ? `Use one of: ${names}` : `Did you mean "${near}"? Valid: ${names}`,
    );
  }

  flag(key: string): boolean | undefined {
    const value = this.scalar(key);
    if (value === undefined || value === null) return undefined;
    if (typeof value !== 'boolean') throw this.#wrong(key, value, 'Write true or false');
    return value;
  }

  number(key: string, range: NumberRange, fallback: number): number {
    return this.optionalNumber(key, range) ?? fallback;
  }

  optionalNumber(key: string, range: NumberRange): number | undefined {
    const value = this.scalar(key);
    if (value === undefined || value === null) return undefined;
    const number = typeof value === 'number' || typeof value === 'bigint' ? Number(value) : Number.NaN;
    if (within(number, range)) return number;
    throw this.#wrong(key, value, `Set it to ${describeRange(range, 'a finite number')}`);
  }

  integer(key: string, range: NumberRange, fallback: number): number {
    return this.optionalInteger(key, range) ?? fallback;
  }

  optionalInteger(key: string, range: NumberRange): number | undefined {
    const value = this.optionalNumber(key, range);
    if (value === undefined || Number.isSafeInteger(value)) return value;
    throw this.error(key, `is ${value}`, `Set it to ${describeRange(range, 'an integer')}`);
  }

  /** All 64 bits of an integer. */
  int64(key: string, fallback: bigint): bigint {
    const value = this.scalar(key);
    if (value === undefined || value === null) return fallback;
    const whole =
      typeof value === 'bigint' ? value : Number.isInteger(value) ? BigInt(value as number) : undefined;
    if (whole === undefined || whole !== BigInt.asIntN(64, whole)) {
      throw this.#wrong(key, value, 'Set it to an integer of 64 bits');
    }
    return whole;
  }

  /** The mapping under `key`. */
  section(key: string): SpecNode | undefined {
    this.#asked.add(key);
    const value = this.#value(key);
    if (value === undefined || (isScalar(value) && value.value === null)) return undefined;
    if (!isMap(value)) throw this.error(key, 'is not a mapping', 'Write keys and values under it');
    return new SpecNode(this.#source, value, this.#join(key));
  }

  /** The texts in the list under `key`; none where something else stands there. */
  texts(key: string): string[] {
    this.#asked.add(key);
    const value = this.#value(key);
    const items = isSeq(value) ? value.items : [];
    return items.flatMap((item) => (isScalar(item) && typeof item.value === 'string' ? [item.value] : []));
  }

  /** The whole numbers in the list under `key`; none where something else stands there. */
  integers(key: string): number[] {
    this.#asked.add(key);
    const value = this.#value(key);
    const items = isSeq(value) ? value.items : [];
    return items.flatMap((item) => {
      const number = isScalar(item) ? Number(item.value) : Number.NaN;
      return Number.isSafeInteger(number) ? [number] : [];
    });
  }

  /** The mappings of the list under `key`. */
  list(key: string): SpecNode[] {
    this.#asked.add(key);
    const value = this.#value(key);
    if (value === undefined || (isScalar(value) && value.value === null)) return [];
    if (!isSeq(value)) throw this.error(key, 'is not a list', 'Start each entry with a dash');
    return value.items.map((given, i) => {
      const item = this.#source.resolve(given);
      if (!isMap(item))
        throw this.error(key, `has an entry ${i} that is not a mapping`, 'Write keys and values there');
      return new SpecNode(this.#source, item, `${this.#join(key)}[${i}]`);
    });
  }

  /** A text, a number, a flag, or a mapping of numbers, where another reader knows what it may be. */
  plain(key: string): string | number | boolean | Record<string, number> {
    const value = this.#value(key);
    if (isMap(value)) {
      const section = this.section(key) as SpecNode; // it is a mapping
      return Object.fromEntries(section.keys().map((name) => [name, section.number(name, {}, 0)]));
    }
    const scalar = this.scalar(key);
    if (typeof scalar === 'bigint') return Number(scalar);
    if (typeof scalar === 'number' || typeof scalar === 'boolean') return scalar;
    return this.text(key);
  }

  /** The keys of this mapping, for maps whose keys are data. */
  keys(): string[] {
    return [...this.#entries.keys()];
  }

  /** Refuses every key that was not asked for. */
  close(): void {
    for (const key of this.keys()) {
      if (this.#asked.has(key)) continue;
      const near = nearestName(key, [...this.#asked]);
      const known = [...this.#asked].sort().join(', ');
      throw this.error(
        key,
        'is not a key here',
        near === undefined ? `Known keys: ${known}` : `Did you mean "${near}"? Known keys: ${known}`,
      );
    }
  }

  /** A value of another kind: a text in quotation marks may look as what it must be, in a message without them. */
  #wrong(key: string, value: unknown, remedy: string): TierKVError {
    const looksRight = typeof value === 'string' && /^(true|false|[-+]?[\d.]+(e[-+]?\d+)?)$/i.test(value);
    const what = looksRight ? `the text "${shownPlain(value)}"` : shownPlain(value);
    return this.error(key, `is ${what}`, remedy);
  }

  #join(key: string): string {
    return this.path === '' ? key : `${this.path}.${key}`;
  }

  #value(key: string): unknown {
    return this.#source.resolve(this.#entries.get(key)?.value) ?? undefined;
  }

  /** A single value as it stands there: a text, a boolean, a number, a bigint where it is an integer, null. */
  scalar(key: string): unknown {
    this.#asked.add(key);
    const value = this.#value(key);
    if (value === undefined) return undefined;
    if (isScalar(value)) return value.value;
    throw this.error(key, 'is a list or a mapping', 'Write a single value there');
  }
}

/** A path in a message: the end of a long one, where the key at fault stands. */
function shownPath(path: string): string {
  return path.length <= 200 ? path : `...${path.slice(-200)}`;
}

/**
 * Parses YAML text into its top-level mapping.
 * @throws {TierKVError} TKV_INPUT with file and line for text that is not YAML, not a mapping, or beyond a
 * limit.
 */
export function readYaml(text: string, file: string): SpecNode {
  const { source, root } = parseYamlMap(text, file);
  return new SpecNode(source, root, '');
}

// From YAML text (of which JSON is a part) to a tree of nodes. Text, depth and directives have limits, and
// aliases are never expanded: a text of some hundred bytes can stand for a billion nodes, so each alias only
// knows the node that it names. A node inside itself is an error.

/** Most characters of a text: some 2,000 clients of a spec, a hundred times the largest coefficient file. */
export const maxYamlCharacters: number = 2 ** 20;
const maxDepth = 100;
/** Most empty lines in a row: the parser's work grows with the square of their number. */
export const maxYamlEmptyLines: number = 10_000;
const maxDirectives = 10;
/** Most mappings that are read from one text, those behind aliases once for each alias. */
export const maxMappings: number = 500_000;

/** A parsed text: where its lines begin, and what its aliases name. */
class YamlSource {
  readonly file: string;
  readonly lines: LineCounter = new LineCounter();
  readonly #targets = new Map<Alias, Node>();
  #mappings = 0;

  constructor(file: string) {
    this.file = file;
  }

  line(offset: number | undefined): number {
    return offset === undefined ? 1 : this.lines.linePos(offset).line;
  }

  error(line: number, problem: string, remedy: string): TierKVError {
    return lineError(this.file, line, `${problem}. ${remedy}`);
  }

  /** The node itself; for an alias the node that it names. */
  resolve(node: unknown): unknown {
    return isAlias(node) ? this.#targets.get(node) : node;
  }

  nameTarget(alias: Alias, target: Node): void {
    this.#targets.set(alias, target);
  }

  /** Counts a mapping that is about to be read. */
  countMapping(node: Node): void {
    if (++this.#mappings <= maxMappings) return;
    const why = `there are more than ${maxMappings} mappings to read, those behind aliases counted each time`;
    throw this.error(this.line(node.range?.[0]), why, 'Write a smaller file');
  }
}

/** The parts of the text, as long as they are well formed and not nested beyond measure. */
function* tokensOf(text: string, source: YamlSource): ReturnType<Parser['parse']> {
  const parser = new Parser(source.lines.addNewLine);
  let directives = 0;
  let offset = 0;
  const lineHere = (): number => source.line(offset);
  const checked = function* (tokens: ReturnType<Parser['parse']>): ReturnType<Parser['parse']> {
    for (const token of tokens) {
      if (token.type === 'error') throw notYaml(source, lineHere(), token.message);
      if (token.type === 'directive' && ++directives > maxDirectives) {
        throw source.error(
          lineHere(),
          `there are more than ${maxDirectives} directives`,
          'Leave the lines with % out',
        );
      }
      yield token;
    }
  };
  source.lines.addNewLine(0);
  for (const lexeme of new Lexer().lex(text)) {
    yield* checked(parser.next(lexeme));
    if (parser.stack.length > maxDepth) {
      throw source.error(
        lineHere(),
        `lists and mappings are nested more than ${maxDepth} deep`,
        'Write them flat',
      );
    }
    offset += lexeme.length;
  }
  yield* checked(parser.end());
}

function notYaml(source: YamlSource, line: number, message: string): TierKVError {
  const what = message.split('\n')[0].replace(/\.$/, '');
  return source.error(line, `not valid YAML: ${what}`, 'Mend the text there');
}

function parse(text: string, source: YamlSource): Document.Parsed {
  // keys that occur twice are found where a mapping is read; the parser compares every pair of keys
  const composer = new Composer({ intAsBigInt: true, prettyErrors: false, merge: true, uniqueKeys: false });
  let parsed: Document.Parsed | undefined;
  for (const document of composer.compose(tokensOf(text, source), true, text.length)) {
    if (parsed !== undefined) {
      throw source.error(source.line(document.range[0]), 'a second document begins', 'Keep one in the file');
    }
    parsed = document as Document.Parsed;
    const first = parsed.errors[0];
    if (first !== undefined) throw notYaml(source, source.line(first.pos[0]), first.message);
  }
  if (parsed === undefined)
    throw source.error(1, 'holds no mapping of keys', 'Write lines such as key: value');
  return parsed;
}

function refuseEmptyLines(text: string, source: YamlSource): void {
  let empty = 0;
  let line = 1;
  for (let from = 0; from < text.length; line++) {
    const end = text.indexOf('\n', from);
    const to = end === -1 ? text.length : end;
    let at = from;
    while (at < to && (text[at] === ' ' || text[at] === '\t' || text[at] === '\r')) at++;
    empty = at === to ? empty + 1 : 0;
    if (empty > maxYamlEmptyLines) {
      throw source.error(line, `more than ${maxYamlEmptyLines} lines in a row are empty`, 'Take them out');
    }
    from = to + 1;
  }
}

/** The nodes directly under a node, in the order of the text. */
function* childrenOf(node: unknown): Generator<unknown> {
  if (isMap(node)) {
    for (const { key, value } of node.items) {
      yield key;
      yield value;
    }
  } else if (isSeq(node)) yield* node.items;
}

/**
 * Names the target of every alias: the last node before it with its anchor. An alias inside that node is an
 * error.
 */
function linkAliases(root: unknown, source: YamlSource): void {
  const anchors = new Map<string, Node>();
  const open = new Set<unknown>();
  const walk = (node: unknown): void => {
    if (isAlias(node)) {
      const target = anchors.get(node.source);
      const line = source.line(node.range?.[0]);
      if (target === undefined)
        throw notYaml(source, line, `the alias *${node.source} names no anchor before it`);
      if (open.has(target))
        throw source.error(line, 'an alias contains itself', 'Write the value out once more');
      source.nameTarget(node, target);
      return;
    }
    if (!isMap(node) && !isSeq(node) && !isScalar(node)) return;
    if (node.anchor !== undefined) anchors.set(node.anchor, node);
    open.add(node);
    for (const child of childrenOf(node)) walk(child);
    open.delete(node);
  };
  walk(root);
}

/**
 * Parses YAML text into its top-level mapping.
 * @throws {TierKVError} TKV_INPUT with file and line for text that is not YAML, not a mapping, or beyond a
 * limit.
 */
function parseYamlMap(text: string, file: string): { source: YamlSource; root: YAMLMap } {
  const source = new YamlSource(file);
  if (text.length > maxYamlCharacters) {
    const problem = `has more than ${maxYamlCharacters} characters, the most of a file that is read whole`;
    const remedy = file.endsWith('.json')
      ? 'Take long lists out that say nothing of the model, such as id2label, or name the right file'
      : 'Write like clients as a cohort, or name the right file';
    throw source.error(1, problem, remedy);
  }
  refuseEmptyLines(text, source);
  try {
    const { contents } = parse(text, source);
    linkAliases(contents, source);
    if (isMap(contents)) return { source, root: contents };
  } catch (cause) {
    if (!(cause instanceof RangeError)) throw cause;
    throw source.error(1, 'lists and mappings are nested too deep', 'Write them flat');
  }
  throw source.error(1, 'holds no mapping of keys', 'Write lines such as key: value');
}
