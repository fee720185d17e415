/**
 * Strict reading of a YAML mapping. Every key is asked for by name and kind; what was not asked for is an error that names
 * its path, its line and the nearest key that exists there. Numbers come back only when they lie in their range, 64-bit
 * integers keep all their bits.
 */

import {
  isAlias,
  isMap,
  isScalar,
  isSeq,
  LineCounter,
  type Node,
  parseDocument,
  visit,
  type YAMLMap,
} from 'yaml';
import { TierKVError } from '../../../runtime/errors.ts';
import { nearestName } from '../../../runtime/nearestName.ts';

/** Bounds of a number; `above` excludes its value. */
export interface Range {
  readonly min?: number;
  readonly above?: number;
  readonly max?: number;
}

function describeRange(range: Range, kind: string): string {
  const low =
    range.above !== undefined
      ? `above ${range.above}`
      : range.min !== undefined
        ? `of at least ${range.min}`
        : '';
  const high = range.max !== undefined ? `${low === '' ? '' : ' and '}at most ${range.max}` : '';
  return `${kind} ${low}${high}`.trim();
}

function within(value: number, range: Range): boolean {
  return (
    Number.isFinite(value) &&
    value >= (range.min ?? -Infinity) &&
    value <= (range.max ?? Infinity) &&
    (range.above === undefined || value > range.above)
  );
}

interface Source {
  readonly file: string;
  readonly lines: LineCounter;
}

export class SpecNode {
  /** Where this mapping lies in the document, as `clients[2].arrival`. */
  readonly path: string;
  readonly #source: Source;
  readonly #node: YAMLMap;
  readonly #asked = new Set<string>();

  constructor(source: Source, node: YAMLMap, path: string) {
    this.#source = source;
    this.#node = node;
    this.path = path;
  }

  /** An error about `key` of this mapping (or about the mapping itself, for ''), with file, line, path and remedy. */
  error(key: string, problem: string, remedy: string): TierKVError {
    const field = key === '' ? this.path : this.#join(key);
    const at = key === '' ? this.#node : (this.#pair(key)?.key ?? this.#node);
    const offset = (at as Node).range?.[0];
    const line = offset === undefined ? 1 : this.#source.lines.linePos(offset).line;
    const { file } = this.#source;
    return new TierKVError('TKV_INPUT', `${file}:${line}: ${field || 'the spec'} ${problem}. ${remedy}`, {
      field,
      path: file,
      line,
    });
  }

  has(key: string): boolean {
    this.#asked.add(key);
    return this.#value(key) !== undefined;
  }

  text(key: string, fallback: string = ''): string {
    const value = this.#scalar(key);
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
      `is "${value}"`,
      near === undefined ? `Use one of: ${names}` : `Did you mean "${near}"? Valid: ${names}`,
    );
  }

  flag(key: string): boolean | undefined {
    const value = this.#scalar(key);
    if (value === undefined || value === null) return undefined;
    if (typeof value !== 'boolean') throw this.error(key, `is ${String(value)}`, 'Write true or false');
    return value;
  }

  number(key: string, range: Range, fallback: number): number {
    return this.optionalNumber(key, range) ?? fallback;
  }

  optionalNumber(key: string, range: Range): number | undefined {
    const value = this.#scalar(key);
    if (value === undefined || value === null) return undefined;
    const number = typeof value === 'number' || typeof value === 'bigint' ? Number(value) : Number.NaN;
    if (within(number, range)) return number;
    throw this.error(key, `is ${String(value)}`, `Set it to ${describeRange(range, 'a finite number')}`);
  }

  integer(key: string, range: Range, fallback: number): number {
    return this.optionalInteger(key, range) ?? fallback;
  }

  optionalInteger(key: string, range: Range): number | undefined {
    const value = this.optionalNumber(key, range);
    if (value === undefined || Number.isSafeInteger(value)) return value;
    throw this.error(key, `is ${value}`, `Set it to ${describeRange(range, 'an integer')}`);
  }

  /** All 64 bits of an integer. */
  int64(key: string, fallback: bigint): bigint {
    const value = this.#scalar(key);
    if (value === undefined || value === null) return fallback;
    const whole =
      typeof value === 'bigint' ? value : Number.isInteger(value) ? BigInt(value as number) : undefined;
    if (whole === undefined || whole !== BigInt.asIntN(64, whole)) {
      throw this.error(key, `is ${String(value)}`, 'Set it to an integer of 64 bits');
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

  /** The mappings of the list under `key`. */
  list(key: string): SpecNode[] {
    this.#asked.add(key);
    const value = this.#value(key);
    if (value === undefined || (isScalar(value) && value.value === null)) return [];
    if (!isSeq(value)) throw this.error(key, 'is not a list', 'Start each entry with a dash');
    return value.items.map((item, i) => {
      if (!isMap(item))
        throw this.error(key, `has an entry ${i} that is not a mapping`, 'Write keys and values there');
      return new SpecNode(this.#source, item, `${this.#join(key)}[${i}]`);
    });
  }

  /** The keys of this mapping, for maps whose keys are data. */
  keys(): string[] {
    return this.#node.items.map((pair) => String(isScalar(pair.key) ? pair.key.value : pair.key));
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

  #join(key: string): string {
    return this.path === '' ? key : `${this.path}.${key}`;
  }

  #pair(key: string): { key: unknown; value: unknown } | undefined {
    return this.#node.items.find((pair) => String(isScalar(pair.key) ? pair.key.value : pair.key) === key);
  }

  #value(key: string): unknown {
    return this.#pair(key)?.value ?? undefined;
  }

  #scalar(key: string): unknown {
    this.#asked.add(key);
    const value = this.#value(key);
    if (value === undefined) return undefined;
    if (isScalar(value)) return value.value;
    throw this.error(key, 'is a list or a mapping', 'Write a single value there');
  }
}

/** Replaces aliases by what they stand for; a node inside itself is an error. */
function resolveAliases(document: ReturnType<typeof parseDocument>, file: string, lines: LineCounter): void {
  const open = new Set<unknown>();
  const walk = (node: unknown): void => {
    if (open.has(node)) {
      const line = lines.linePos((node as Node).range?.[0] ?? 0).line;
      throw new TierKVError(
        'TKV_INPUT',
        `${file}:${line}: an alias contains itself. Write the value out once more`,
        {
          path: file,
          line,
        },
      );
    }
    if (!isMap(node) && !isSeq(node)) return;
    open.add(node);
    for (const item of node.items) {
      const child = isMap(node) ? (item as { value: unknown }).value : item;
      walk(isAlias(child) ? child.resolve(document) : child);
    }
    open.delete(node);
  };
  walk(document.contents);
  visit(document, { Alias: (_key, alias) => alias.resolve(document) ?? undefined });
}

/**
 * Parses YAML text into its top-level mapping.
 * @throws {TierKVError} TKV_INPUT with file and line for text that is not YAML, or not a mapping.
 */
export function readYaml(text: string, file: string): SpecNode {
  const lines = new LineCounter();
  const document = parseDocument(text, {
    lineCounter: lines,
    intAsBigInt: true,
    prettyErrors: false,
    merge: true,
  });
  const first = document.errors[0];
  if (first !== undefined) {
    const line = lines.linePos(first.pos[0]).line;
    const what = first.message.split('\n')[0].replace(/\.$/, '');
    throw new TierKVError('TKV_INPUT', `${file}:${line}: not valid YAML: ${what}. Mend the text there`, {
      path: file,
      line,
    });
  }
  resolveAliases(document, file, lines);
  if (!isMap(document.contents)) {
    throw new TierKVError('TKV_INPUT', `${file}:1: holds no mapping of keys. Start from an example spec`, {
      path: file,
      line: 1,
    });
  }
  return new SpecNode({ file, lines }, document.contents, '');
}
