/**
 * A sequence's own copy of its tokens: what the caller does with its array afterwards changes nothing here.
 */

import { TierKVError } from '../../runtime/errors.ts';
import { elementAt, type KeyElements } from '../../runtime/index.ts';
import { described } from '../../runtime/options.ts';

export class TokenList {
  #tokens: Uint32Array;
  #length = 0;

  /** @throws TKV_INPUT naming the token that is no id */
  constructor(tokens: KeyElements) {
    this.#tokens = new Uint32Array(Math.max(tokens.length, 16));
    this.append(tokens);
  }

  get length(): number {
    return this.#length;
  }

  /** The tokens; words from `length` on mean nothing. Replaced when the list grows. */
  get words(): Uint32Array {
    return this.#tokens;
  }

  /**
   * Adds the tokens from `from` on. @throws TKV_INPUT naming the token that is no id; nothing is added then
   */
  append(tokens: KeyElements, from = 0): void {
    requireTokenIds(tokens, from);
    const length = this.#length + tokens.length - from;
    if (length > this.#tokens.length) this.#grow(length);
    for (let i = from; i < tokens.length; i++) this.#tokens[this.#length + i - from] = elementAt(tokens, i);
    this.#length = length;
  }

  /** Adds one token, which is an id. */
  push(token: number): void {
    if (this.#length === this.#tokens.length) this.#grow(this.#length + 1);
    this.#tokens[this.#length++] = token;
  }

  #grow(length: number): void {
    const grown = new Uint32Array(Math.max(length, this.#tokens.length * 2));
    grown.set(this.#tokens.subarray(0, this.#length));
    this.#tokens = grown;
  }

  truncate(length: number): void {
    this.#length = Math.min(this.#length, length);
  }

  /**
   * The first of the known tokens that is another one in `tokens`, or that `tokens` has not; -1 where all are
   * the same.
   */
  firstDifference(tokens: KeyElements): number {
    for (let i = 0; i < this.#length; i++) if (elementAt(tokens, i) !== this.#tokens[i]) return i;
    return -1;
  }
}

/** @throws TKV_INPUT naming the first token from `from` on that is no id */
export function requireTokenIds(tokens: KeyElements, from = 0, field = 'tokens'): void {
  for (let i = from; i < tokens.length; i++) {
    const token = elementAt(tokens, i);
    if (token >>> 0 !== token) throw badToken(`${field}[${i}]`, tokens[i]);
  }
}

/** @throws TKV_INPUT naming the field where the token is no id */
export function requireTokenId(token: number, field: string): void {
  if (typeof token !== 'number' || token >>> 0 !== token) throw badToken(field, token);
}

function badToken(field: string, token: unknown): TierKVError {
  return new TierKVError(
    'TKV_INPUT',
    `${field} is ${described(token)}, not an integer from 0 to 4294967295. Pass token ids as ` +
      `the tokenizer gave them.`,
    { field },
  );
}
