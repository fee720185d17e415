/**
 * Every error that a user of tierkv can meet is a `TierKVError`: a stable `code` for programs, the `field` or
 * path it is about, and a message that ends with what to do. `invariant` is for our own mistakes and never
 * for bad input.
 */

/** The stable code of a `TierKVError`. */
export type ErrorCode =
  | 'TKV_CONFIG' // a setting is missing, malformed or out of range
  | 'TKV_INPUT' // a trace, spec or data file holds something that it may not hold
  | 'TKV_CAPACITY' // a request can never fit
  | 'TKV_FULL' // room is missing now, and comes when others release theirs
  | 'TKV_UNKNOWN_ID' // a sequence, job or slot that the manager does not know
  | 'TKV_STALE' // a (slot, generation) pair whose slot has moved on
  | 'TKV_STATE' // a call that this state does not allow
  | 'TKV_DEVICE' // no usable adapter, or the device is lost
  | 'TKV_IO' // the file system refused
  | 'TKV_LOCKED' // another process owns the directory
  | 'TKV_MISMATCH'; // data of another layout, model, version or key

export interface ErrorFacts {
  /** The setting, option or field at fault, as the user wrote it. */
  field?: string;
  /** File, and line where there is one. */
  path?: string;
  line?: number;
  cause?: unknown;
}

/** A message stays one line, whatever the texts of files, programs and users in it hold. */
function oneLine(message: string): string {
  return message.replace(/[\t\n\v\f\r\u0085\u2028\u2029]+/g, ' ');
}

/** The error of every call: a stable code, the field at fault, and the remedy in the message. */
export class TierKVError extends Error {
  override readonly name: string = 'TierKVError';
  readonly code: ErrorCode;
  readonly field: string | undefined;
  readonly path: string | undefined;
  readonly line: number | undefined;
  /** Survives two copies of this package in one program, where the class identity does not. */
  readonly isTierKVError: boolean = true;

  constructor(code: ErrorCode, message: string, facts: ErrorFacts = {}) {
    super(oneLine(message), facts.cause === undefined ? undefined : { cause: facts.cause });
    this.code = code;
    this.field = facts.field;
    this.path = facts.path;
    this.line = facts.line;
  }

  /** True also for an error of another copy of this package. */
  static override [Symbol.hasInstance](value: unknown): boolean {
    return typeof value === 'object' && value !== null && 'isTierKVError' in value;
  }
}

/** A value in the words of a message. It never throws, whatever the value is. */
export function described(value: unknown): string {
  if (typeof value === 'string')
    return value.length > 64 ? `a text of ${value.length} letters` : JSON.stringify(value);
  if (typeof value === 'bigint') return `${value}n`;
  if (typeof value === 'function') return 'a function';
  if (typeof value === 'symbol') return 'a symbol';
  if (Array.isArray(value)) return 'an array';
  if (ArrayBuffer.isView(value)) {
    const kind = Object.prototype.toString.call(value).slice(8, -1);
    return `${kind.startsWith('I') ? 'an' : 'a'} ${kind}`;
  }
  if (typeof value === 'object' && value !== null) return 'an object';
  return String(value);
}

/** Gives the name of a field or a file. */
type NameOfField = (field: string) => string;
/** A part of a sentence. It is a function where it names fields, so that each has the name that its writer knows. */
export type Said = string | ((name: NameOfField) => string);

/** How an error is said, given what its fields and its file are called. */
const sentences = new WeakMap<TierKVError, (name: NameOfField) => string>();

/** An error whose sentence may name its field, its file and other fields, under names that `renamed` gives them. */
export function namedError(
  code: ErrorCode,
  facts: ErrorFacts,
  sentence: (name: NameOfField) => string,
): TierKVError {
  const said = sentence((name) => name);
  const error = new TierKVError(code, said, facts);
  sentences.set(error, sentence);
  return error;
}

/** A mistake in a line of a file. */
export function lineError(
  path: string,
  line: number,
  said: Said,
  facts: Pick<ErrorFacts, 'field' | 'cause'> = {},
): TierKVError {
  return namedError(
    'TKV_INPUT',
    { ...facts, path, line },
    (name) => `${name(path)}:${line}: ${typeof said === 'string' ? said : said(name)}`,
  );
}

/** A bad setting: names the field, what it is, and the remedy. */
export function configError(field: string, problem: Said, remedy: Said): TierKVError {
  const said = (part: Said, name: NameOfField): string => (typeof part === 'string' ? part : part(name));
  return namedError(
    'TKV_CONFIG',
    { field },
    (name) => `${name(field)} ${said(problem, name)}. ${said(remedy, name)}`,
  );
}

/** Where a setting was written: its name there, and the line of its file. */
export interface SourcePlace {
  readonly name: string;
  readonly file?: string;
  readonly line?: number;
}

/**
 * The same fault in the words of the one who wrote the setting. An error that does not know how it is said keeps its text; it
 * has the place as its field all the same.
 */
export function faultAt(
  error: TierKVError,
  { name: field, file: path, line = 1 }: SourcePlace,
  name: NameOfField,
): TierKVError {
  const sentence = sentences.get(error);
  const own = { field, cause: error };
  if (path === undefined) {
    if (sentence === undefined) return new TierKVError(error.code, error.message, own);
    return namedError(error.code, own, (outer) => sentence((each) => outer(name(each))));
  }
  const said = (outer: NameOfField): string =>
    sentence === undefined ? `${field}: ${error.message}` : sentence((each) => outer(name(each)));
  return namedError('TKV_INPUT', { ...own, path, line }, (outer) => `${outer(path)}:${line}: ${said(outer)}`);
}

/**
 * The error under other names of its field, its file and what else its sentence names. An error that names nothing of these is
 * the same object, and the field of a line keeps the name that the file has for it.
 * @param names by field and path: a table, or what gives the name
 */
export function renamed(
  names: Readonly<Record<string, string>> | ((field: string) => string | undefined),
  error: unknown,
): unknown {
  if (!(error instanceof TierKVError)) return error;
  const known = (name: string): string | undefined =>
    typeof names === 'function' ? names(name) : Object.hasOwn(names, name) ? names[name] : undefined;
  const name: NameOfField = (each) => known(each) ?? each;
  const { code, field, path, line } = error;
  const facts: ErrorFacts = {
    cause: error,
    ...(field === undefined ? {} : { field: line === undefined ? name(field) : field }),
    ...(path === undefined ? {} : { path: name(path) }),
    ...(line === undefined ? {} : { line }),
  };
  const sentence = sentences.get(error);
  const again =
    sentence === undefined
      ? new TierKVError(code, error.message, facts)
      : namedError(code, facts, (outer) => sentence((each) => outer(name(each))));
  const isSame = again.message === error.message && again.field === field && again.path === path;
  return isSame ? error : again;
}

/** A bad argument: names the field, what it is, and the remedy. */
export function inputError(field: string, problem: string): TierKVError {
  return new TierKVError('TKV_INPUT', `${field} ${problem}`, { field });
}

export function requireInteger(
  field: string,
  value: number,
  min: number,
  max: number = Number.MAX_SAFE_INTEGER,
): number {
  if (!Number.isSafeInteger(value) || value < min || value > max) {
    const range = max === Number.MAX_SAFE_INTEGER ? `of at least ${min}` : `from ${min} to ${max}`;
    throw configError(
      field,
      `is ${described(value)}, not an integer ${range}`,
      (name) => `Set ${name(field)} to an integer ${range}.`,
    );
  }
  return value;
}

export function requirePositive(field: string, value: number): number {
  if (!Number.isFinite(value) || value <= 0) {
    throw configError(
      field,
      `is ${described(value)}, not a positive finite number`,
      (name) => `Set ${name(field)} above 0.`,
    );
  }
  return value;
}

/** A finite number of at least 0. */
export function requireFinite(field: string, value: number): number {
  if (!Number.isFinite(value) || value < 0) {
    throw configError(
      field,
      `is ${described(value)}, not a finite number of at least 0`,
      (name) => `Set ${name(field)} to 0 or more.`,
    );
  }
  return value;
}

export function requireFraction(field: string, value: number): number {
  if (!(typeof value === 'number' && value >= 0 && value <= 1)) {
    throw configError(
      field,
      `is ${described(value)}, outside [0, 1]`,
      (name) => `Set ${name(field)} to a share from 0 to 1.`,
    );
  }
  return value;
}

export function invariant(condition: boolean, message: string | (() => string)): asserts condition {
  if (!condition) {
    throw new Error(`tierkv invariant broken: ${typeof message === 'string' ? message : message()}`);
  }
}

//  The nearest of a list of names to a mistyped one, by Damerau-Levenshtein distance.

function distance(a: string, b: string): number {
  const rows: number[][] = Array.from({ length: a.length + 1 }, (_, i) => [i]);
  for (let j = 0; j <= b.length; j++) rows[0][j] = j;
  for (let i = 1; i <= a.length; i++) {
    for (let j = 1; j <= b.length; j++) {
      const same = a[i - 1] === b[j - 1];
      rows[i][j] = Math.min(rows[i - 1][j] + 1, rows[i][j - 1] + 1, rows[i - 1][j - 1] + (same ? 0 : 1));
      if (i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1]) {
        rows[i][j] = Math.min(rows[i][j], rows[i - 2][j - 2] + 1);
      }
    }
  }
  return rows[a.length][b.length];
}

/** Letters: a longer word is not a mistyped name, and comparing it would take memory for each letter. */
const longestName = 64;

/**
 * The closest name, if it is close enough to be what was meant: at most a third of its length in edits, or a
 * prefix.
 */
export function nearestName(typed: string, names: readonly string[]): string | undefined {
  if (typeof typed !== 'string' || typed.length > longestName) return undefined;
  let best: string | undefined;
  let least = Infinity;
  const plainOf = (name: string): string => name.toLowerCase().replaceAll('-', '_');
  const plain = plainOf(typed);
  for (const name of names) {
    if (name === '') continue;
    const edits = distance(plain, plainOf(name));
    if (edits < least) {
      least = edits;
      best = name;
    }
  }
  if (best === undefined) return undefined;
  const related = plain.length >= 3 && (plainOf(best).includes(plain) || plain.includes(plainOf(best)));
  // a name of one letter is as far from any other as it is long
  const isNear = least <= Math.max(1, Math.ceil(best.length / 3)) && least < best.length;
  return isNear || related ? best : undefined;
}

/**
 * The error for a name that is not among the known ones: it tells the nearest, or all of them.
 * @param withoutAny the remedy where no name is known
 */
export function unknownName(
  field: string,
  name: string,
  known: readonly string[],
  withoutAny: string = 'It takes none: leave it out.',
): TierKVError {
  const nearest = nearestName(name, known);
  const remedy =
    known.length === 0
      ? withoutAny
      : nearest === undefined
        ? `Known: ${known.join(', ')}.`
        : `Did you mean ${nearest}?`;
  const asked = typeof name === 'string' ? JSON.stringify(name) : described(name);
  return configError(field, `is not known (${asked})`, remedy);
}
