/**
 * The body of a request: bounded JSON, and its fields, checked one by one. An unknown field is an error of its own.
 */

import { memberText } from '../../../src/runtime/boundedJson.ts';
import { type JsonFault, parseBoundedJson } from '../boundedJson.ts';
import { ApiError } from './apiError.ts';

/** Far above what a request of the API needs. */
const bodyLimits = { depth: 32, values: 2 ** 18 };

/** An integer behind the name `seed` that a number cannot hold is a bigint. @throws {ApiError} with status 400 */
export function parseBody(body: Uint8Array): unknown {
  return parseBoundedJson(body, bodyLimits, bodyError, withExactSeed);
}

function bodyError(fault: JsonFault, why: string): ApiError {
  const { depth, values } = bodyLimits;
  switch (fault) {
    case 'depth': {
      const message = `The body nests lists and objects more than ${depth} deep. Send a flatter one.`;
      return new ApiError(400, message, null, 'too_deep');
    }
    case 'values': {
      const message = `The body holds more than ${values} values. Send fewer.`;
      return new ApiError(400, message, null, 'too_many_values');
    }
    case 'syntax':
      return new ApiError(400, `The body is not JSON: ${why}. Send JSON in UTF-8.`);
  }
}

/** A reviver would give each number as it is written, at 25 times the time: the text is asked for the one that was rounded. */
function withExactSeed(value: unknown, text: string): unknown {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return value;
  const { seed } = value as { readonly seed?: unknown };
  if (typeof seed !== 'number' || Number.isSafeInteger(seed)) return value;
  const written = memberText(text, 'seed') ?? '';
  return /^-?\d{1,20}$/.test(written) ? { ...value, seed: BigInt(written) } : value;
}

export class Fields {
  readonly #body: Readonly<Record<string, unknown>>;
  /** In front of the names of fields in messages. */
  readonly #path: string;
  readonly #asked: Set<string> = new Set();

  constructor(body: unknown, path = '') {
    this.#path = path;
    if (typeof body !== 'object' || body === null || Array.isArray(body)) {
      throw new ApiError(400, 'The body must be a JSON object. Send one with content-type application/json.');
    }
    this.#body = body as Record<string, unknown>;
  }

  /** undefined also for null. */
  get(name: string): unknown {
    this.#asked.add(name);
    return this.#body[name] ?? undefined;
  }

  number(name: string, otherwise: number, min: number, max: number): number {
    const value = this.get(name) ?? otherwise;
    if (typeof value === 'number' && value >= min && value <= max) return value;
    throw this.error(name, `${this.#path}${name} is ${show(value)}. Give a number from ${min} to ${max}.`);
  }

  integer(name: string, otherwise: number, min: number, max: number): number {
    const value = this.get(name) ?? otherwise;
    if (typeof value === 'number' && Number.isSafeInteger(value) && value >= min && value <= max)
      return value;
    throw this.error(name, `${this.#path}${name} is ${show(value)}. Give an integer from ${min} to ${max}.`);
  }

  boolean(name: string): boolean {
    const value = this.get(name) ?? false;
    if (typeof value === 'boolean') return value;
    throw this.error(name, `${this.#path}${name} is ${show(value)}. Give true or false.`);
  }

  string(name: string): string {
    const value = this.get(name);
    if (typeof value === 'string' && value !== '') return value;
    throw this.error(
      name,
      `${this.#path}${name} is ${value === undefined ? 'missing' : show(value)}. Give a text.`,
    );
  }

  object(name: string): Fields | undefined {
    const value = this.get(name);
    if (value === undefined) return undefined;
    if (typeof value === 'object' && !Array.isArray(value)) return new Fields(value, `${this.#path}${name}.`);
    throw this.error(name, `${this.#path}${name} is ${show(value)}. Give an object.`);
  }

  /** Up to four texts at which an answer ends. */
  stops(name = 'stop'): string[] {
    const value = this.get(name) ?? [];
    const list: unknown[] = Array.isArray(value) ? value : [value];
    const isStop = (text: unknown): text is string =>
      typeof text === 'string' && text !== '' && text.length <= stopCharactersMax;
    if (list.length <= 4 && list.every(isStop)) return list;
    const problem = `${name} is ${show(value)}. Give one to four texts of up to ${stopCharactersMax} characters.`;
    throw this.error(name, problem);
  }

  /** An integer of up to 64 bits, signed or not; see `parseBody` for integers that a number cannot hold. */
  seed(otherwise: number): number | bigint {
    const value = this.get('seed') ?? otherwise;
    if (typeof value === 'number' && Number.isSafeInteger(value)) return value;
    if (typeof value === 'bigint' && value >= -(2n ** 63n) && value < 2n ** 64n) return value;
    throw this.error('seed', `seed is ${show(value)}. Give an integer of up to 64 bits.`);
  }

  /** What this server takes and does nothing with: it changes no answer, whatever its value. */
  ignore(...names: string[]): void {
    for (const name of names) this.#asked.add(name);
  }

  /**
   * What this server has not, unless the value says that it is not wanted: null, false, an empty list or
   * object, or one of `neutral`.
   */
  refuse(name: string, ...neutral: readonly unknown[]): void {
    const value = this.get(name);
    if (isAbsent(value) || neutral.includes(value)) return;
    const path = this.#path + name;
    const remedy =
      neutral.length === 0 ? 'Leave it out' : `Leave it out, or give ${neutral.map(show).join(' or ')}`;
    const problem = `${path} is ${show(value)}, and is not supported by this server`;
    throw this.error(name, `${problem}. ${remedy}.`, 'unsupported_parameter');
  }

  /** @throws for a field that is in the body and was not asked for */
  requireKnown(): void {
    for (const name of Object.keys(this.#body)) {
      if (this.#asked.has(name)) continue;
      const path = this.#path + name;
      throw this.error(name, `${path} is not a field of this request. Leave it out.`, 'unknown_parameter');
    }
  }

  error(name: string, message: string, code: string | null = null): ApiError {
    return new ApiError(400, message, this.#path + name, code);
  }
}

/** A stop string is looked for in each piece of an answer. */
const stopCharactersMax = 4096;

function isAbsent(value: unknown): boolean {
  if (value === undefined || value === false) return true;
  return typeof value === 'object' && Object.keys(value as object).length === 0;
}

/** A value as JSON, cut where it is long. */
export function show(value: unknown): string {
  const text =
    JSON.stringify(value, (_, each) => (typeof each === 'bigint' ? Number(each) : each)) ?? String(value);
  return text.length > 60 ? `${text.slice(0, 60)}…` : text;
}
