/**
 * Random streams by name. One key gives every subsystem its own stream, seeded with `key XOR fnv1a64(name)`,
 * so that a draw in one subsystem never moves another. The stream named `workload` takes the key itself.
 */

import { GoRandom } from './rand.ts';

/** 64-bit FNV-1a of the UTF-8 bytes of `text`, as an unsigned BigInt. */
export function fnv1a64(text: string): bigint {
  let hash = 0xcbf29ce484222325n;
  for (const byte of new TextEncoder().encode(text)) {
    hash = BigInt.asUintN(64, (hash ^ BigInt(byte)) * 0x100000001b3n);
  }
  return hash;
}

/** The seed of the stream `name` under `key`, as a signed 64-bit integer. */
export function partitionSeed(key: bigint, name: string): bigint {
  if (name === 'workload') return BigInt.asIntN(64, key);
  return BigInt.asIntN(64, key ^ fnv1a64(name));
}

export class PartitionedRandom {
  readonly key: bigint;
  readonly #streams = new Map<string, GoRandom>();

  constructor(key: bigint) {
    this.key = BigInt.asIntN(64, key);
  }

  /** The stream of that name; the same object at every call. */
  stream(name: string): GoRandom {
    const known = this.#streams.get(name);
    if (known !== undefined) return known;
    const made = new GoRandom(partitionSeed(this.key, name));
    this.#streams.set(name, made);
    return made;
  }
}
