/**
 * Keys for simulators, from ids that a trace has already chained: equal id = equal whole prefix (Mooncake's
 * hash_ids).
 *
 *      word 0   word 1            word 2   word 3
 *     +--------+--------+        +--------+--------+
 *     | id, shuffled by |        | tenant and epoch |
 *     | the namespace   |        | hashed to 64 bit |
 *     +--------+--------+        +--------+--------+
 *
 * The shuffle is a three-round Feistel network: one-to-one on 64 bits, so ids never collide within a
 * namespace and `idOf` gives them back, and well mixed, so an index may take any word as its hash. It is
 * cheap and no protection against an adversary: the runtime's keys are those of `KeyChain`.
 */

import { invariant, TierKVError } from '../errors.ts';
import { described, optionNames, requireOptions } from '../options.ts';
import { blake2s } from './blake2s.ts';
import { type BlockKeys, wordsPerKey } from './blockKeys.ts';
import { CanonicalWriter } from './encoding.ts';
import { elementAt, type KeyElements, type KeySource, requireElements } from './keySource.ts';
import { encodeTenant, Tag } from './namespace.ts';

export interface ExternalNamespace {
  readonly tenant: string | Uint8Array;
  readonly epoch: number;
}

export const externalNamespaceNames: readonly string[] = optionNames<ExternalNamespace>({
  tenant: true,
  epoch: true,
});

export class ExternalKeys implements KeySource {
  readonly elementsPerKey: number = 1;
  readonly #key: Uint32Array = new Uint32Array(wordsPerKey);

  /** @throws TKV_CONFIG naming `tenant` or `epoch`. */
  constructor(namespace: ExternalNamespace) {
    const { tenant, epoch } = requireOptions(namespace, externalNamespaceNames, 'namespace', 'TKV_CONFIG');
    const writer = new CanonicalWriter().text(Tag.DOMAIN, 'tierkv external keys 1');
    const digest = blake2s(encodeTenant(writer, tenant, epoch).finish(), 8);
    for (let i = 0; i < digest.length; i++) this.#key[2 + (i >> 2)] |= digest[i] << ((i & 3) * 8);
  }

  hashBlocks(ids: KeyElements, from: number, out: BlockKeys, idCount: number = ids?.length): number {
    requireElements(ids, 'ids');
    invariant(from <= idCount && idCount <= ids.length, 'a sequence has no more ids than its array');
    out.truncate(from);
    out.reserve(idCount);
    for (let i = from; i < idCount; i++) {
      this.#shuffle(elementAt(ids, i), ids[i], i);
      out.append(this.#key, 0);
    }
    return out.length;
  }

  hashPartial(): void {
    invariant(false, 'an id names a whole block, so there is no part of one to key');
  }

  /** The id behind the key at `words[at]`, or undefined when the key is of another namespace. */
  idOf(words: Uint32Array, at: number = 0): number | undefined {
    const key = this.#key;
    if (words[at + 2] !== key[2] || words[at + 3] !== key[3]) return undefined;
    let low = words[at];
    let high = words[at + 1];
    high ^= mix(low + key[2]);
    low ^= mix(high + key[3]);
    high ^= mix(low + key[2]);
    return (high >>> 0) * 2 ** 32 + (low >>> 0);
  }

  #shuffle(id: number, given: unknown, index: number): void {
    if (!Number.isSafeInteger(id) || id < 0) {
      throw new TierKVError(
        'TKV_INPUT',
        `ids[${index}] is ${described(given)}, not an integer from 0 to 2^53 - 1. Number the blocks of the trace from 0.`,
        { field: `ids[${index}]` },
      );
    }
    const key = this.#key;
    let low = id | 0;
    let high = Math.floor(id / 2 ** 32);
    high ^= mix(low + key[2]);
    low ^= mix(high + key[3]);
    high ^= mix(low + key[2]);
    key[0] = low;
    key[1] = high;
  }
}

/** The 32-bit finalizer of MurmurHash3 (Appleby, public domain). */
function mix(value: number): number {
  let x = value | 0;
  x = Math.imul(x ^ (x >>> 16), 0x85ebca6b);
  x = Math.imul(x ^ (x >>> 13), 0xc2b2ae35);
  return x ^ (x >>> 16);
}
