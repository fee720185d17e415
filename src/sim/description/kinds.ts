/**
 * Kinds of values that a setting may hold, and how they are read. One reader serves a word of a command line, a scalar
 * of a file and a field of an object; it refuses what the kind cannot take, in the writer's own words.
 */

import {
  configError,
  described,
  nearestName,
  type Said,
  type SourcePlace,
  type TierKVError,
} from '../../runtime/errors.ts';

import { parseBlocks } from '../../runtime/sizes.ts';
import type { ParameterValue } from '../control/policy.ts';
import { shownPlain } from '../workload/traceLines.ts';

/**
 * `time`: a number that `counts` says the unit of, or a text with a unit. `size`: blocks, or bytes with a unit. `file`: the path of one. `name`: one of
 * `names`. `seed`: an integer of 64 bits. `numbers`: a list. `targets`: milliseconds by class. `microseconds`:
 * numbers by class. `weights`: numbers above 0 by scorer. `parameters`: of a policy, by name. `texts`: a list.
 */
export interface SettingKind {
  readonly kind:
    | 'integer'
    | 'number'
    | 'time'
    | 'size'
    | 'flag'
    | 'text'
    | 'file'
    | 'name'
    | 'seed'
    | 'numbers'
    | 'targets'
    | 'microseconds'
    | 'weights'
    | 'parameters'
    | 'texts';
  readonly min?: number;
  readonly max?: number;
  /** Unit of a plain number that is a time. */
  readonly counts?: keyof typeof countsUs;
  /** Whether a time must be an integer of its unit. */
  readonly whole?: boolean;
  readonly names?: readonly string[];
}

/** The value of a setting as readers leave it. */
export type ValueOf<K extends SettingKind> = K['kind'] extends 'integer' | 'number' | 'time'
  ? number
  : K['kind'] extends 'flag'
    ? boolean
    : K['kind'] extends 'seed'
      ? bigint
      : K['kind'] extends 'numbers'
        ? readonly number[]
        : K['kind'] extends 'texts'
          ? readonly string[]
          : K['kind'] extends 'targets' | 'microseconds' | 'weights'
            ? Readonly<Record<string, number>>
            : K['kind'] extends 'parameters'
              ? Readonly<Record<string, ParameterValue>>
              : K extends { readonly names: readonly (infer Name)[] }
                ? Name
                : string;

/** The type of the field in an object: a size may be a number of blocks, a seed a plain number. */
export type WrittenOf<K extends SettingKind> = K['kind'] extends 'size'
  ? number | string
  : K['kind'] extends 'seed'
    ? number | bigint
    : ValueOf<K>;

const countsUs = { us: 1, ms: 1e3, s: 1e6 } as const;
const unitsUs: Readonly<Record<string, number>> = {
  us: 1,
  µs: 1,
  ms: 1e3,
  s: 1e6,
  m: 60e6,
  min: 60e6,
  h: 3600e6,
};

/** A value as it was written. */
export interface Written {
  readonly at: SourcePlace;
  readonly value: unknown;
  /** A word of a command line, where a list is `a,b` and a mapping `a=1,b=2`; a value in a file; or a field of an object. */
  readonly from: 'word' | 'file' | 'field';
}

/** The error about a value, or about an entry of it. */
type Refuse = (problem: Said, remedy: Said, entry?: string) => TierKVError;

/** The range of the kind in words, as in "Set it to ...". */
function rangeWords({ kind, min, max, whole }: SettingKind): string {
  const what = kind === 'integer' || whole === true ? 'an integer' : 'a number';
  if (max === undefined) return min === undefined ? what : `${what} of at least ${min}`;
  return `${what} from ${min} to ${max}`;
}

/** A plain number, or a time in the unit of its plain number. NaN for anything else. */
function numberIn(kind: SettingKind, value: unknown): number {
  if (typeof value === 'number') return value;
  if (typeof value === 'bigint') return Number(value);
  if (typeof value !== 'string' || value.trim() === '') return Number.NaN;
  if (kind.kind === 'time') {
    const [, digits, unit] = /^(-?\d+(?:\.\d+)?)\s*(us|µs|ms|s|min|m|h)$/.exec(value.trim()) ?? [];
    if (unit !== undefined) return (Number(digits) * unitsUs[unit]) / countsUs[kind.counts ?? 'us'];
  }
  return Number(value);
}

/** A value in a message: texts in quotation marks. */
function shown(value: unknown): string {
  if (typeof value === 'string') return `"${shownPlain(value)}"`;
  return typeof value === 'bigint' ? String(value) : described(value);
}

function readNumber(kind: SettingKind, { value, at }: Written, refuse: Refuse): number {
  const number = numberIn(kind, value);
  if (!Number.isFinite(number)) {
    const isTime = kind.kind === 'time';
    throw refuse(
      `is ${shown(value)}, not a ${isTime ? 'time' : 'number'}`,
      `Set ${at.name} to a ${isTime ? 'time, as 500ms' : 'number'}.`,
    );
  }
  const { min = -Infinity, max = Infinity } = kind;
  const isWhole = kind.kind === 'integer' || kind.whole === true;
  // beyond what a number counts exactly only a bound says that it is meant
  const isExact =
    !isWhole || (kind.max === undefined ? Number.isSafeInteger(number) : Number.isInteger(number));
  if (number >= min && number <= max && isExact) return number;
  throw refuse(`is ${number}`, `Set it to ${rangeWords(kind)}.`);
}

function readSize(value: unknown, refuse: Refuse): string {
  const text = typeof value === 'number' || typeof value === 'bigint' ? String(value) : value;
  if (typeof text === 'string' && !Number.isNaN(parseBlocks(text, 1))) return text;
  throw refuse(`is ${shown(text)}, not a size`, 'Write a number of blocks, or bytes as 64GiB.');
}

function readSeed(value: unknown, refuse: Refuse): bigint {
  const text = typeof value === 'string' ? value.trim() : '';
  const whole =
    typeof value === 'bigint'
      ? value
      : Number.isInteger(value)
        ? BigInt(value as number)
        : /^-?\d+$/.test(text)
          ? BigInt(text)
          : undefined;
  if (whole !== undefined && whole === BigInt.asIntN(64, whole)) return whole;
  throw refuse(`is ${shown(value)}`, 'Set it to an integer of 64 bits.');
}

/** One of the names. @throws with the nearest of them */
export function oneOf<T extends string>(name: string, names: readonly T[], refuse: Refuse): T {
  const found = names.find((known) => known === name);
  if (found !== undefined) return found;
  const near = nearestName(name, names);
  const remedy = near === undefined ? `Use one of ${names.join(', ')}.` : `Did you mean '${near}'?`;
  throw refuse(`is "${shownPlain(name)}", which does not exist`, remedy);
}

function readText(value: unknown, isField: boolean, refuse: Refuse): string {
  if (typeof value === 'string' && value.trim() !== '') return value;
  // a scalar of a file is a text under any name: a model may be called 7
  if (!isField && ['number', 'bigint', 'boolean'].includes(typeof value)) return String(value);
  const found = value === '' ? 'empty' : `${shown(value)}, not a text`;
  throw refuse(`is ${found}`, 'Give it a text, or leave it out.');
}

function readNumbers(value: unknown, refuse: Refuse): readonly number[] {
  const parts: readonly unknown[] | undefined =
    typeof value === 'string' ? value.split(',') : Array.isArray(value) ? value : undefined;
  if (parts === undefined)
    throw refuse(`is ${shown(value)}, not a list of numbers`, 'Give a list of numbers.');
  return parts.map((part) => {
    const number = numberIn({ kind: 'number' }, part);
    if (Number.isFinite(number)) return number;
    throw refuse(`holds ${shown(part)}, not a number`, 'Separate numbers by commas.');
  });
}

function readTexts(value: unknown, refuse: Refuse): readonly string[] {
  const all: unknown = typeof value === 'string' ? [value] : value;
  if (Array.isArray(all) && all.every((each) => typeof each === 'string')) return all as string[];
  throw refuse('must be a list of texts', 'Change it.');
}

// Values by name. Names are the user's: on a command line a name ends at the last sign before its value, and a comma
// within a name belongs to it where the part before has no value.

interface Pairs {
  readonly between: '=' | ':';
  /** How an entry is written on a command line. */
  readonly form: string;
  /** Value of an entry of a word that has none. */
  readonly absent?: string;
  readonly read: (value: unknown, refuse: Refuse, entry: string, from: Written['from']) => ParameterValue;
}

/** A duration such as `1.5s` or `1m30s`, in microseconds; 0 for anything else. */
function durationUs(text: string): number {
  const parts = [...text.matchAll(/(\d+(?:\.\d+)?)(us|µs|ms|s|m|h)/g)];
  const sum = parts.reduce((total, [, digits, unit]) => total + Number(digits) * unitsUs[unit], 0);
  return parts.map(([part]) => part).join('') === text ? sum : 0;
}

const pairs: Readonly<Partial<Record<SettingKind['kind'], Pairs>>> = {
  targets: {
    between: '=',
    form: 'class=duration, separated by commas',
    read(value, refuse, entry, from) {
      const ms =
        typeof value === 'number' && from === 'field'
          ? value
          : typeof value === 'string'
            ? durationUs(value) / 1e3
            : 0;
      if (ms > 0 && ms < Infinity) return ms;
      if (from === 'word') {
        throw refuse(`holds ${shown(value)}, not a duration`, 'Write class=100ms, with us, ms, s, m or h.');
      }
      const remedy = from === 'field' ? 'Give milliseconds above 0.' : 'Write a time, as 100ms.';
      throw refuse(`is ${shown(value)}, not a duration`, remedy, entry);
    },
  },
  microseconds: {
    between: '=',
    form: 'class=microseconds',
    read(value, refuse, entry, from) {
      const us = numberIn({ kind: 'number' }, value);
      if (us > 0 && us < Infinity) return us;
      if (from === 'word')
        throw refuse(`holds "${shownPlain(`${entry}=${value}`)}"`, 'Write class=microseconds.');
      throw refuse(`is ${shown(value)}`, 'Give microseconds above 0.', entry);
    },
  },
  weights: {
    between: ':',
    form: 'each scorer once, as name:weight',
    absent: '1',
    read(value, refuse, entry, from) {
      const weight = numberIn({ kind: 'number' }, value);
      if (weight > 0 && weight < Infinity) return weight;
      if (from === 'word') {
        const problem = `holds "${shownPlain(`${entry}:${value}`)}"`;
        throw refuse(problem, 'Write each scorer once, as name:weight.');
      }
      throw refuse(`is ${shown(value)}`, 'Give a weight above 0.', entry);
    },
  },
  parameters: {
    between: '=',
    form: 'each parameter once, as name=value',
    read(value, refuse, entry, from) {
      if (from !== 'word') {
        if (['string', 'number', 'boolean'].includes(typeof value)) return value as ParameterValue;
        throw refuse(`is ${shown(value)}`, 'Give a number, true, false or a text.', entry);
      }
      const text = String(value);
      if (text === 'true' || text === 'false') return text === 'true';
      return Number.isNaN(Number(text)) ? text : Number(text);
    },
  },
};

/** `a=1,b=2` as entries: a name may have the sign between, and commas. */
function entriesOfWord(text: string, { between, form, absent }: Pairs, refuse: Refuse): [string, string][] {
  const found = new Map<string, string>();
  let begun = '';
  const wrong = (entry: string): TierKVError => refuse(`holds "${shownPlain(entry)}"`, `Write ${form}.`);
  for (const part of text.split(',')) {
    const entry = begun === '' ? part : `${begun},${part}`;
    const cut = entry.lastIndexOf(between);
    if (cut === -1 && absent === undefined) {
      begun = entry;
      continue;
    }
    const name = (cut === -1 ? entry : entry.slice(0, cut)).trim();
    const value = cut === -1 ? String(absent) : entry.slice(cut + 1).trim();
    if (name === '' || value === '' || found.has(name)) throw wrong(entry);
    found.set(name, value);
    begun = '';
  }
  if (begun !== '') throw wrong(begun);
  return [...found];
}

function readPairs(
  how: Pairs,
  { value, from }: Written,
  refuse: Refuse,
): Readonly<Record<string, ParameterValue>> {
  const isWord = from === 'word';
  const entries = isWord ? entriesOfWord(String(value), how, refuse) : undefined;
  if (entries === undefined && (typeof value !== 'object' || value === null || Array.isArray(value))) {
    throw refuse('must be an object of names and values', 'Change it.');
  }
  return Object.fromEntries(
    (entries ?? Object.entries(value as object)).map(([name, each]) => [
      name,
      how.read(each, refuse, name, from),
    ]),
  );
}

/**
 * The value of a setting.
 * @throws what `refuse` makes of the problem and the remedy
 */
export function readValue(kind: SettingKind, written: Written, refuse: Refuse): unknown {
  const { value, from } = written;
  const how = pairs[kind.kind];
  if (how !== undefined) return readPairs(how, written, refuse);
  switch (kind.kind) {
    case 'size':
      return readSize(value, refuse);
    case 'flag':
      if (typeof value === 'boolean') return value;
      throw refuse(`is ${shown(value)}`, 'Write true or false.');
    case 'seed':
      return readSeed(value, refuse);
    case 'numbers':
      return readNumbers(value, refuse);
    case 'texts':
      return readTexts(value, refuse);
    case 'text':
    case 'file':
      return readText(value, from === 'field', refuse);
    case 'name':
      return oneOf(typeof value === 'object' ? described(value) : String(value), kind.names ?? [], refuse);
    default:
      return readNumber(kind, written, refuse);
  }
}

/** The value of an option of a command line. @throws TKV_CONFIG naming the flag */
export function readOption<K extends SettingKind>(kind: K, flag: string, text: string): ValueOf<K> {
  const refuse: Refuse = (problem, remedy) => configError(flag, problem, remedy);
  return readValue(kind, { at: { name: flag }, value: text, from: 'word' }, refuse) as ValueOf<K>;
}
