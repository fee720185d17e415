/** Token ids on demand, and upstream's identity of the blocks that they fill. */

import { TierKVError } from '../../runtime/errors.ts';
import * as is from '../../runtime/kinds.ts';
import { checkInputs } from '../../runtime/options.ts';
import { fnv1a64, GoRandom } from '../random/goRand.ts';
import type { PromptIdentity, TokenSpan, WorkloadRequest } from './request.ts';

// The identity of a KV block: SHA-256 over the hexadecimal hash of the block before it and every token in
// decimal followed by a bar. Only full blocks have one, so a chain of hashes names a prefix of whole
// blocks.

const encoder = new TextEncoder();

/** @param previous the hash of the block before, '' for the first. */
export function blockHash(previous: string, tokens: ArrayLike<number>): string {
  let text = previous;
  for (let i = 0; i < tokens.length; i++) text += `${tokens[i]}|`;
  return sha256Hex(encoder.encode(text));
}

/** Hashes of the full blocks of a prompt, in order. */
export function blockHashes(tokens: Int32Array, blockTokens: number): string[] {
  checkInputs({ tokens, blockTokens }, { tokens: is.bytes(), blockTokens: is.number() });
  const hashes: string[] = [];
  let previous = '';
  for (let end = blockTokens; end <= tokens.length; end += blockTokens) {
    previous = blockHash(previous, tokens.subarray(end - blockTokens, end));
    hashes.push(previous);
  }
  return hashes;
}

// SHA-256 (FIPS 180-4) of bytes, synchronous and without a platform module, for the identities that upstream
// defines by it.

/**
 * The first 32 bits of the fractional parts of the roots of the first primes: cube roots for K, square roots
 * for the start.
 */
function rootBits(count: number, root: (prime: bigint) => bigint): Int32Array {
  const bits: number[] = [];
  for (let candidate = 2n; bits.length < count; candidate++) {
    let prime = true;
    for (let d = 2n; d * d <= candidate; d++) prime &&= candidate % d !== 0n;
    if (prime) bits.push(Number(BigInt.asIntN(32, root(candidate))));
  }
  return Int32Array.from(bits);
}

/** floor(n^(1/k)) by bisection. */
function integerRoot(n: bigint, k: bigint): bigint {
  let low = 0n;
  let high = 1n << 48n;
  while (low < high) {
    const middle = (low + high + 1n) / 2n;
    if (middle ** k <= n) low = middle;
    else high = middle - 1n;
  }
  return low;
}

const K = rootBits(64, (prime) => integerRoot(prime << 96n, 3n));
const START = rootBits(8, (prime) => integerRoot(prime << 64n, 2n));

const rotate = (x: number, n: number): number => (x >>> n) | (x << (32 - n));

const schedule = new Int32Array(64);

function compress(state: Int32Array, block: DataView, offset: number): void {
  for (let i = 0; i < 16; i++) schedule[i] = block.getInt32(offset + 4 * i);
  for (let i = 16; i < 64; i++) {
    const x = schedule[i - 15];
    const y = schedule[i - 2];
    const s0 = rotate(x, 7) ^ rotate(x, 18) ^ (x >>> 3);
    const s1 = rotate(y, 17) ^ rotate(y, 19) ^ (y >>> 10);
    schedule[i] = (schedule[i - 16] + s0 + schedule[i - 7] + s1) | 0;
  }
  let [a, b, c, d, e, f, g, h] = state;
  for (let i = 0; i < 64; i++) {
    const choice = (e & f) ^ (~e & g);
    const t1 = (h + (rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)) + choice + K[i] + schedule[i]) | 0;
    const majority = (a & b) ^ (a & c) ^ (b & c);
    const t2 = ((rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)) + majority) | 0;
    [h, g, f, e, d, c, b, a] = [g, f, e, (d + t1) | 0, c, b, a, (t1 + t2) | 0];
  }
  for (const [i, value] of [a, b, c, d, e, f, g, h].entries()) state[i] = (state[i] + value) | 0;
}

/** The digest of `bytes` in lower-case hexadecimal. */
export function sha256Hex(bytes: Uint8Array): string {
  const padded = new Uint8Array((Math.floor((bytes.length + 8) / 64) + 1) * 64);
  padded.set(bytes);
  padded[bytes.length] = 0x80;
  const view = new DataView(padded.buffer);
  view.setUint32(padded.length - 8, Math.floor(bytes.length / 2 ** 29));
  view.setUint32(padded.length - 4, (bytes.length * 8) >>> 0);
  const state = START.slice();
  for (let offset = 0; offset < padded.length; offset += 64) compress(state, view, offset);
  return Array.from(state, (word) => (word >>> 0).toString(16).padStart(8, '0')).join('');
}

// Token ids on demand. A drawn span names a random stream and a place in it, so its tokens can be drawn again
// at any time; `TokenReader` keeps the last streams it stood in and goes on from there when the next span
// lies ahead. For drawn prompts the ids are upstream's, bit for bit. Prompts known by block ids get ids
// derived from them: equal blocks, equal tokens.

/** Token ids lie in [0, VOCABULARY). */
export const VOCABULARY = 128_000;

const KEPT_STREAMS = 64;

/** Gives the token ids of a request's prompt. */
export class TokenReader {
  readonly #streams = new Map<bigint, GoRandom>();

  /** All token ids of the prompt of `request`. */
  prompt(request: WorkloadRequest): Int32Array {
    return this.#read(request.prompt, request.inputTokens, request.id);
  }

  /** The token ids that will be generated for `request`. */
  output(request: WorkloadRequest): Int32Array {
    return this.#read(request.output, request.outputTokens, request.id);
  }

  #read(identity: PromptIdentity, tokens: number, id: string): Int32Array {
    switch (identity.kind) {
      case 'tokens':
        return identity.tokens;
      case 'text':
        throw new TierKVError(
          'TKV_INPUT',
          'a prompt of text has no token ids. Tokenize it with the tokenizer of the model',
        );
      case 'drawn':
        return this.#drawn(identity.spans, tokens);
      case 'blocks': {
        const out = new Int32Array(tokens);
        const space = fnv1a64(identity.namespace);
        let at = 0;
        for (let i = 0; i < identity.runs.length && at < tokens; i += 2) {
          for (let id = identity.runs[i], end = id + identity.runs[i + 1]; id < end && at < tokens; id++) {
            const count = Math.min(identity.blockTokens, tokens - at);
            new GoRandom(BigInt.asIntN(64, space ^ BigInt(id))).fillIntn(out, at, count, VOCABULARY);
            at += count;
          }
        }
        // what lies behind the last block that a trace names is this request's own: a server would find equal ids
        if (at < tokens) {
          const own = fnv1a64(`${identity.namespace}/own/${id}`);
          new GoRandom(BigInt.asIntN(64, own)).fillIntn(out, at, tokens - at, VOCABULARY);
        }
        return out;
      }
    }
  }

  #drawn(spans: readonly TokenSpan[], tokens: number): Int32Array {
    const out = new Int32Array(tokens);
    let at = 0;
    for (const span of spans) {
      this.#at(span).fillIntn(out, at, span.tokens, VOCABULARY);
      at += span.tokens;
    }
    return out;
  }

  #at(span: TokenSpan): GoRandom {
    let random = this.#streams.get(span.seed);
    if (random === undefined) {
      if (this.#streams.size >= KEPT_STREAMS) this.#streams.delete(this.#streams.keys().next().value!);
      random = new GoRandom(span.seed);
    } else {
      this.#streams.delete(span.seed);
      if (random.position > span.position) random.seek(span.seed, 0);
    }
    this.#streams.set(span.seed, random);
    random.skipTo(span.position);
    return random;
  }
}
