/**
 * From YAML text (of which JSON is a part) to a tree of nodes. Text, depth and directives have limits, and
 * aliases are never expanded: a text of some hundred bytes can stand for a billion nodes, so each alias only
 * knows the node that it names. A node inside itself is an error.
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
import { TierKVError } from '../../../runtime/errors.ts';

/** Most characters of a text: some 2,000 clients of a spec, a hundred times the largest coefficient file. */
export const maxYamlCharacters: number = 2 ** 20;
const maxDepth = 100;
const maxDirectives = 10;
/** Most mappings that are read from one text, those behind aliases once for each alias. */
export const maxMappings: number = 500_000;

/** A parsed text: where its lines begin, and what its aliases name. */
export class YamlSource {
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
    return new TierKVError('TKV_INPUT', `${this.file}:${line}: ${problem}. ${remedy}`, {
      path: this.file,
      line,
    });
  }

  /** What stands there: for an alias the node that it names. */
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
export function parseYamlMap(text: string, file: string): { source: YamlSource; root: YAMLMap } {
  const source = new YamlSource(file);
  if (text.length > maxYamlCharacters) {
    const problem = `has more than ${maxYamlCharacters} characters, the most of a spec or a data file`;
    throw source.error(1, problem, 'Write like clients as a cohort, or name the right file');
  }
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
