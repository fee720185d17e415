/**
 * Strict reading of a YAML mapping. Every key is asked for by name and kind; what was not asked for is an
 * error that names its path, its line and the nearest key that exists there. Numbers come back only when they
 * lie in their range, 64-bit integers keep all their bits.
 */

import { isMap, isScalar, isSeq, type Node, type YAMLMap } from 'yaml';
import { TierKVError } from '../../../runtime/errors.ts';
import { nearestName } from '../../../runtime/nearestName.ts';
import { shownPlain } from '../shown.ts';
import { parseYamlMap, type YamlSource } from './yamlText.ts';

/** Bounds of a number; `above` excludes its value. */
export interface Range {
  readonly min?: number;
  readonly above?: number;
  readonly max?: number;
}

export function describeRange(range: Range, kind: string): string {
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

interface Entry {
  readonly key: unknown;
  readonly value: unknown;
}

export class SpecNode {
  /** Where this mapping lies in the document, as `clients[2].arrival`. */
  readonly path: string;
  readonly #source: YamlSource;
  readonly #node: YAMLMap;
  readonly #entries = new Map<string, Entry>();
  readonly #asked = new Set<string>();

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
    if (isScalar(node)) return String(node.value);
    const line = this.#source.line((key as Node | null)?.range?.[0]);
    throw this.#source.error(line, 'a key is a list or a mapping', 'Write a text as key');
  }

  /**
   * An error about `key` of this mapping (or about the mapping itself, for ''), with file, line, path and
   * remedy.
   */
  error(key: string, problem: string, remedy: string): TierKVError {
    const field = key === '' ? this.path : this.#join(key);
    const at = key === '' ? this.#node : (this.#entries.get(key)?.key ?? this.#node);
    const line = this.#source.line((at as Node).range?.[0]);
    const { file } = this.#source;
    const what = field === '' ? 'the file' : shownPath(field);
    return new TierKVError('TKV_INPUT', `${file}:${line}: ${what} ${problem}. ${remedy}`, {
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
      `is "${shownPlain(value)}"`,
      near === undefined ? `Use one of: ${names}` : `Did you mean "${near}"? Valid: ${names}`,
    );
  }

  flag(key: string): boolean | undefined {
    const value = this.#scalar(key);
    if (value === undefined || value === null) return undefined;
    if (typeof value !== 'boolean') throw this.error(key, `is ${shownPlain(value)}`, 'Write true or false');
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
    throw this.error(key, `is ${shownPlain(value)}`, `Set it to ${describeRange(range, 'a finite number')}`);
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
      throw this.error(key, `is ${shownPlain(value)}`, 'Set it to an integer of 64 bits');
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
    const scalar = this.#scalar(key);
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

  #join(key: string): string {
    return this.path === '' ? key : `${this.path}.${key}`;
  }

  #value(key: string): unknown {
    return this.#source.resolve(this.#entries.get(key)?.value) ?? undefined;
  }

  #scalar(key: string): unknown {
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
