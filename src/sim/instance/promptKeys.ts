/**
 * Keys of a request's blocks, from what its tokens are and without drawing one of them. A stream of tokens is
 * cut into pieces of (source, position, count), neighbours of one source joined; the key of a block is a hash
 * of its pieces and of the key before it. Equal prefixes have equal pieces, so they have equal keys. Two
 * different ones collide with a chance of about 2^-128: the mixing is that of MurmurHash3 (Appleby, public
 * domain), which is no protection against an adversary, and in a simulation there is none.
 *
 * Where no request has tokens of another one, nobody ever looks a block up but a request that gave way and
 * comes back. Until that happens keys decide nothing, and `skips` leaves them out: blocks then stay private
 * and cost half. The first request that gives way ends such a run with `KeysNeeded`; it is made again with
 * keys.
 */

import { BlockKeys } from '../../runtime/keys/index.ts';
import { fnv1a64 } from '../random/index.ts';
import type { PromptIdentity, WorkloadRequest } from '../workload/index.ts';

const LOW = 0xffff_ffff;

/** A request gave way in a run without keys: what it computed would be looked up now. */
export class KeysNeeded extends Error {
  override readonly name: string = 'KeysNeeded';
}

const noKeys = new BlockKeys(1);

/** Makes keys for one size of blocks. The same object serves any number of requests. */
export class PromptKeys {
  readonly blockTokens: number;
  readonly skips: boolean;
  readonly #lanes: Int32Array = new Int32Array(4);
  readonly #key: Uint32Array = new Uint32Array(4);
  readonly #namespaces = new Map<string, bigint>();
  #out: BlockKeys = new BlockKeys(1);
  /** Tokens that the block under way holds. */
  #filled = 0;
  /** The piece that may still grow: tokens `count` of `source` from `position` on. */
  #sourceLow = 0;
  #sourceHigh = 0;
  #position = 0;
  #count = 0;

  /** @param skips for workloads without shared tokens, on instances with one tier */
  constructor(blockTokens: number, skips: boolean = false) {
    this.blockTokens = blockTokens;
    this.skips = skips;
  }

  /** Keys of the full blocks of prompt and output together. `own` tells the request from all others. */
  keysOf(request: WorkloadRequest, own: number): BlockKeys {
    if (this.skips) return noKeys;
    const tokens = request.inputTokens + request.outputTokens;
    this.#begin(tokens);
    this.#absorb(request.prompt, request.inputTokens, own);
    this.#absorb(request.output, request.outputTokens, own);
    this.#flush();
    return this.#out;
  }

  #begin(tokens: number): void {
    this.#out = new BlockKeys(Math.floor(tokens / this.blockTokens) + 1);
    this.#filled = 0;
    this.#count = 0;
    this.#lanes[0] = this.blockTokens;
    this.#lanes[1] = 0;
    this.#lanes[2] = 0;
    this.#lanes[3] = 0;
  }

  #absorb(identity: PromptIdentity, tokens: number, own: number): void {
    switch (identity.kind) {
      case 'drawn':
        for (const { seed, position, tokens: count } of identity.spans) this.#piece(seed, position, count);
        return;
      case 'blocks': {
        const space = this.#namespace(identity.namespace);
        let left = tokens;
        for (let i = 0; i < identity.runs.length && left > 0; i += 2) {
          const count = Math.min(left, identity.runs[i + 1] * identity.blockTokens);
          this.#piece(space, identity.runs[i] * identity.blockTokens, count);
          left -= count;
        }
        // what lies behind the last full block of a trace is the request's own
        if (left > 0) this.#piece(this.#namespace('own'), own * 2 ** 20, left);
        return;
      }
      case 'tokens':
        this.#ids(identity.tokens, tokens);
        return;
      case 'text':
        this.#ids(new TextEncoder().encode(identity.text), tokens);
    }
  }

  /** Tokens known one by one: each is a piece whose source is the token. */
  #ids(ids: ArrayLike<number>, tokens: number): void {
    for (let i = 0; i < tokens; i++) {
      this.#flush();
      this.#sourceLow = ids[i];
      this.#sourceHigh = 0;
      this.#position = 0;
      this.#count = 1;
    }
  }

  #piece(source: bigint, position: number, count: number): void {
    if (count === 0) return;
    const low = Number(BigInt.asIntN(32, source));
    const high = Number(BigInt.asIntN(32, source >> 32n));
    const joins =
      this.#count > 0 &&
      low === this.#sourceLow &&
      high === this.#sourceHigh &&
      position === this.#position + this.#count;
    if (joins) {
      this.#count += count;
      return;
    }
    this.#flush();
    this.#sourceLow = low;
    this.#sourceHigh = high;
    this.#position = position;
    this.#count = count;
  }

  /** Cuts the piece under way into blocks. */
  #flush(): void {
    const size = this.blockTokens;
    while (this.#count > 0) {
      const part = Math.min(this.#count, size - this.#filled);
      this.#mix(part);
      this.#position += part;
      this.#count -= part;
      this.#filled += part;
      if (this.#filled < size) continue;
      this.#filled = 0;
      this.#finish();
    }
  }

  #mix(part: number): void {
    const lanes = this.#lanes;
    const high = Math.floor(this.#position / 2 ** 32);
    let a = lanes[0] ^ rotated(Math.imul(this.#sourceLow, 0x239b961b), 15, 0xab0e9789);
    let b = lanes[1] ^ rotated(Math.imul(this.#sourceHigh, 0xab0e9789), 16, 0x38b34ae5);
    let c = lanes[2] ^ rotated(Math.imul(this.#position | 0, 0x38b34ae5), 17, 0xa1e38b93);
    let d = lanes[3] ^ rotated(Math.imul(part ^ Math.imul(high, 0x9e3779b1), 0xa1e38b93), 18, 0x239b961b);
    a = Math.imul(((a << 19) | (a >>> 13)) + b, 5) + 0x561ccd1b;
    b = Math.imul(((b << 17) | (b >>> 15)) + c, 5) + 0x0bcaa747;
    c = Math.imul(((c << 15) | (c >>> 17)) + d, 5) + 0x96cd1c35;
    d = Math.imul(((d << 13) | (d >>> 19)) + a, 5) + 0x32ac3b17;
    lanes[0] = a;
    lanes[1] = b;
    lanes[2] = c;
    lanes[3] = d;
  }

  /** The key of the block that is now full; the state goes on, so that the next key depends on it. */
  #finish(): void {
    const lanes = this.#lanes;
    const key = this.#key;
    const sum = (lanes[0] + lanes[1] + lanes[2] + lanes[3]) | 0;
    let total = 0;
    for (let i = 0; i < 4; i++) {
      key[i] = avalanche((lanes[i] + sum) | 0) & LOW;
      total = (total + key[i]) | 0;
    }
    for (let i = 0; i < 4; i++) key[i] = (key[i] + total) >>> 0;
    this.#out.append(key, 0);
  }

  #namespace(name: string): bigint {
    const known = this.#namespaces.get(name);
    if (known !== undefined) return known;
    const made = fnv1a64(name);
    this.#namespaces.set(name, made);
    return made;
  }
}

function rotated(value: number, by: number, factor: number): number {
  return Math.imul((value << by) | (value >>> (32 - by)), factor);
}

function avalanche(value: number): number {
  let x = Math.imul(value ^ (value >>> 16), 0x85ebca6b);
  x = Math.imul(x ^ (x >>> 13), 0xc2b2ae35);
  return x ^ (x >>> 16);
}
