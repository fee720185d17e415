/** The fields of a request's body, checked one by one; a field that nobody asked for is an error of its own. */

import { ApiError } from './apiError.ts';

export class Fields {
  readonly #body: Readonly<Record<string, unknown>>;
  readonly #asked: Set<string> = new Set();

  constructor(body: unknown) {
    if (typeof body !== 'object' || body === null || Array.isArray(body)) {
      throw new ApiError(400, 'The body is no JSON object. Send one with content-type application/json.');
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
    throw this.error(name, `${name} is ${show(value)}. Give a number from ${min} to ${max}.`);
  }

  integer(name: string, otherwise: number, min: number, max: number): number {
    const value = this.get(name) ?? otherwise;
    if (typeof value === 'number' && Number.isSafeInteger(value) && value >= min && value <= max)
      return value;
    throw this.error(name, `${name} is ${show(value)}. Give an integer from ${min} to ${max}.`);
  }

  boolean(name: string): boolean {
    const value = this.get(name) ?? false;
    if (typeof value === 'boolean') return value;
    throw this.error(name, `${name} is ${show(value)}. Give true or false.`);
  }

  string(name: string): string {
    const value = this.get(name);
    if (typeof value === 'string' && value !== '') return value;
    throw this.error(name, `${name} is ${value === undefined ? 'missing' : show(value)}. Give a text.`);
  }

  object(name: string): Fields | undefined {
    const value = this.get(name);
    if (value === undefined) return undefined;
    if (typeof value === 'object' && !Array.isArray(value)) return new Fields(value);
    throw this.error(name, `${name} is ${show(value)}. Give an object.`);
  }

  /** Up to four texts at which an answer ends. */
  stops(): string[] {
    const value = this.get('stop') ?? [];
    const list: unknown[] = Array.isArray(value) ? value : [value];
    if (list.length <= 4 && list.every((text): text is string => typeof text === 'string' && text !== '')) {
      return list;
    }
    throw this.error('stop', `stop is ${show(value)}. Give one to four texts.`);
  }

  /** What this server accepts and does nothing with. */
  ignore(...names: string[]): void {
    for (const name of names) this.#asked.add(name);
  }

  /** What this server has not, unless the value says that it is not wanted. */
  refuse(name: string, ...allowed: unknown[]): void {
    const value = this.get(name);
    const none = value === undefined || value === false || allowed.includes(value);
    if (none || (typeof value === 'object' && Object.keys(value as object).length === 0)) return;
    throw this.error(name, `${name} is not supported by this server. Leave it out.`, 'unsupported_parameter');
  }

  /** @throws for a field that is in the body and that nobody asked for */
  requireKnown(where = ''): void {
    for (const name of Object.keys(this.#body)) {
      if (this.#asked.has(name)) continue;
      const path = `${where}${name}`;
      throw this.error(path, `${path} is no field of this request. Leave it out.`, 'unknown_parameter');
    }
  }

  error(name: string, message: string, code: string | null = null): ApiError {
    return new ApiError(400, message, name, code);
  }
}

function show(value: unknown): string {
  const text = JSON.stringify(value) ?? String(value);
  return text.length > 60 ? `${text.slice(0, 60)}…` : text;
}
