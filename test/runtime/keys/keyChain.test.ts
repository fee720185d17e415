import { blake2s as nobleBlake2s } from '@noble/hashes/blake2.js';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { Granularity, unitSpec } from '../../../src/runtime/geometry/box.ts';
import { kvLayout } from '../../../src/runtime/geometry/layout.ts';
import {
  BlockKeys,
  encodeNamespace,
  KeyChain,
  type KeyNamespace,
  keyToHex,
} from '../../../src/runtime/keys/keyChain.ts';

const secretKey = Uint8Array.from({ length: 32 }, (_, i) => 255 - i);

function namespaceOf(blockTokens: number): KeyNamespace {
  const layout = kvLayout({ layers: 2, kvHeads: 2, headDim: 4, dtype: 'f16', blockTokens });
  return { secretKey, tenant: 'acme', epoch: 3, model: 'llama@1', layout };
}

function keysOf(chain: KeyChain, tokens: readonly number[] | Int32Array | Uint32Array): string[] {
  const keys = new BlockKeys(1);
  chain.hashBlocks(tokens, 0, keys);
  return Array.from({ length: keys.length }, (_, i) => keys.toHex(i));
}

/** The same chain from its definition, over bytes, with another library's BLAKE2s. */
function referenceKey(namespace: KeyNamespace, parent: string, block: number, tokens: number[]): string {
  const words = [tokens.length, block, ...new Uint32Array(4), ...tokens];
  const message = Buffer.alloc(4 * words.length);
  for (const [i, word] of words.entries()) message.writeUInt32LE(word, 4 * i);
  message.set(Buffer.from(parent, 'hex'), 8);
  const namespaceKey = nobleBlake2s(encodeNamespace(namespace), { key: namespace.secretKey });
  const digest = nobleBlake2s(new Uint8Array(message), { key: namespaceKey });
  return Buffer.from(digest).toString('hex').slice(0, 32);
}

const tokenId = fc.oneof(fc.nat(130_000), fc.integer({ min: 2 ** 31, max: 2 ** 32 - 1 }));
const shape = fc.record({
  blockTokens: fc.constantFrom(1, 2, 9, 10, 11, 16, 26, 27, 64),
  tokens: fc.array(tokenId, { maxLength: 150 }),
});

describe('KeyChain', () => {
  test('gives the keys of its definition, checked against another BLAKE2s, block by block', () => {
    fc.assert(
      fc.property(shape, ({ blockTokens, tokens }) => {
        const namespace = namespaceOf(blockTokens);
        const keys = keysOf(new KeyChain(namespace), tokens);
        expect(keys).toHaveLength(Math.floor(tokens.length / blockTokens));
        let parent = '00'.repeat(16);
        for (const [block, key] of keys.entries()) {
          const own = tokens.slice(block * blockTokens, (block + 1) * blockTokens);
          parent = referenceKey(namespace, parent, block, own);
          expect(key).toBe(parent);
        }
      }),
    );
  });

  test('keys two sequences alike exactly as far as their prefixes are equal', () => {
    const few = fc.array(fc.nat(1), { minLength: 0, maxLength: 24 });
    const chain = new KeyChain(namespaceOf(3));
    fc.assert(
      fc.property(few, few, few, (prefix, restA, restB) => {
        const [a, b] = [
          [...prefix, ...restA],
          [...prefix, ...restB],
        ];
        const [keysA, keysB] = [keysOf(chain, a), keysOf(chain, b)];
        for (let i = 0; i < Math.min(keysA.length, keysB.length); i++) {
          const end = (i + 1) * 3;
          const same = a.slice(0, end).join() === b.slice(0, end).join();
          expect(keysA[i] === keysB[i]).toBe(same);
        }
      }),
      { numRuns: 500 },
    );
  });

  test('gives one key to one block only: equal tokens at another place in the sequence differ', () => {
    const keys = keysOf(new KeyChain(namespaceOf(4)), new Int32Array(4000));
    expect(new Set(keys).size).toBe(1000);
  });

  test('extends a growing sequence to the keys that hashing it at once gives', () => {
    fc.assert(
      fc.property(shape, fc.array(fc.nat(20), { maxLength: 30 }), ({ blockTokens, tokens }, steps) => {
        const chain = new KeyChain(namespaceOf(blockTokens));
        const grown = Uint32Array.from(tokens);
        const keys = new BlockKeys(1);
        let count = 0;
        for (const step of [...steps, tokens.length]) {
          count = Math.min(tokens.length, count + step);
          expect(chain.hashBlocks(grown, keys.length, keys, count)).toBe(Math.floor(count / blockTokens));
        }
        const extended = Array.from({ length: keys.length }, (_, i) => keys.toHex(i));
        expect(extended).toEqual(keysOf(chain, tokens));
      }),
    );
  });

  test('goes back to an earlier block when a sequence is rewritten from there', () => {
    const chain = new KeyChain(namespaceOf(2));
    const keys = new BlockKeys();
    chain.hashBlocks([1, 2, 3, 4, 5, 6], 0, keys);
    chain.hashBlocks([1, 2, 9, 9, 5, 6, 7, 8], 1, keys);
    const expected = keysOf(chain, [1, 2, 9, 9, 5, 6, 7, 8]);
    expect(Array.from({ length: keys.length }, (_, i) => keys.toHex(i))).toEqual(expected);
    expect(chain.hashBlocks([1, 2, 9], 1, keys)).toBe(1);
  });

  test('reads Int32Array, Uint32Array, Float64Array and plain arrays alike', () => {
    const tokens = Array.from({ length: 64 }, (_, i) => i * 1999);
    const chain = new KeyChain(namespaceOf(16));
    const expected = keysOf(chain, tokens);
    for (const typed of [Int32Array.from(tokens), Uint32Array.from(tokens), Float64Array.from(tokens)]) {
      const keys = new BlockKeys();
      chain.hashBlocks(typed, 0, keys);
      expect(Array.from({ length: keys.length }, (_, i) => keys.toHex(i))).toEqual(expected);
    }
  });

  test('serves many sequences in turns without one leaking into another', () => {
    const chain = new KeyChain(namespaceOf(4));
    const [a, b] = [new BlockKeys(1), new BlockKeys(1)];
    const [tokensA, tokensB] = [new Int32Array(40).fill(1), new Int32Array(40).fill(2)];
    for (let count = 4; count <= 40; count += 4) {
      chain.hashBlocks(tokensA, a.length, a, count);
      chain.hashBlocks(tokensB, b.length, b, count);
    }
    expect(a.toHex(9)).toBe(keysOf(new KeyChain(namespaceOf(4)), tokensA)[9]);
    expect(b.toHex(9)).toBe(keysOf(new KeyChain(namespaceOf(4)), tokensB)[9]);
  });

  test.each([[-1], [1.5], [Number.NaN], [2 ** 32], [Number.POSITIVE_INFINITY]])(
    'refuses token %s, which would share a key with another, and keeps the keys before it',
    (bad) => {
      const chain = new KeyChain(namespaceOf(2));
      const keys = new BlockKeys();
      expect(() => chain.hashBlocks([1, 2, 3, bad, 5, 6], 0, keys)).toThrow(
        expect.objectContaining({ code: 'TKV_INPUT', field: 'tokens[3]' }),
      );
      expect(keys.length).toBe(1);
      expect(keys.toHex(0)).toBe(keysOf(chain, [1, 2])[0]);
      expect(chain.hashBlocks([1, 2, 3, 4, 5, 6], keys.length, keys)).toBe(3);
      expect(keys.toHex(2)).toBe(keysOf(chain, [1, 2, 3, 4, 5, 6])[2]);
    },
  );

  test('covers as many tokens a key as a unit of its granularity does', () => {
    const namespace = namespaceOf(4);
    const token = unitSpec(namespace.layout, { granularity: Granularity.TOKEN });
    const layer = unitSpec(namespace.layout, { granularity: Granularity.LAYER, tokensPerUnit: 10 });
    expect(keysOf(new KeyChain(namespace), new Int32Array(20))).toHaveLength(5);
    expect(keysOf(new KeyChain({ ...namespace, unit: token }), new Int32Array(20))).toHaveLength(20);
    expect(keysOf(new KeyChain({ ...namespace, unit: layer }), new Int32Array(20))).toHaveLength(2);
  });
});

test('hashing leaves no garbage: 100,000 keys grow the heap by less than the smallest object a key', () => {
  const chain = new KeyChain(namespaceOf(16));
  const tokens = Int32Array.from({ length: 1_600_000 }, (_, i) => i);
  const keys = new BlockKeys(100_000);
  for (let round = 0; round < 3; round++) chain.hashBlocks(tokens, 0, keys);
  const before = process.memoryUsage().heapUsed;
  expect(chain.hashBlocks(tokens, 0, keys)).toBe(100_000);
  expect(process.memoryUsage().heapUsed - before).toBeLessThan(8 * 100_000);
});

describe('a partial tail', () => {
  test('has the key of its definition, one for each exact length, and none of a whole block', () => {
    const namespace = namespaceOf(16);
    const chain = new KeyChain(namespace);
    const tokens = Array.from({ length: 48 }, () => 7);
    const keys = new BlockKeys();
    chain.hashBlocks(tokens, 0, keys);
    const seen = new Set([keys.toHex(0), keys.toHex(1), keys.toHex(2)]);
    const out = new Uint32Array(8);
    for (let block = 0; block < 3; block++) {
      for (let count = 1; count < 16; count++) {
        chain.hashPartial(tokens, block, count, keys, out, 3);
        const parent = block === 0 ? '00'.repeat(16) : keys.toHex(block - 1);
        expect(keyToHex(out, 3)).toBe(referenceKey(namespace, parent, block, tokens.slice(0, count)));
        seen.add(keyToHex(out, 3));
      }
    }
    expect(seen.size).toBe(3 + 3 * 15);
    expect([out[0], out[1], out[2], out[7]]).toEqual([0, 0, 0, 0]);
  });

  test('is refused when it is empty, whole, beyond its tokens or without its parent', () => {
    const chain = new KeyChain(namespaceOf(4));
    const keys = new BlockKeys();
    const out = new Uint32Array(4);
    const tokens = [1, 2, 3, 4, 5, 6];
    expect(() => chain.hashPartial(tokens, 0, 0, keys, out)).toThrow('not empty');
    expect(() => chain.hashPartial(tokens, 0, 4, keys, out)).toThrow('shorter than a block');
    expect(() => chain.hashPartial(tokens, 1, 3, keys, out)).toThrow('within its tokens');
    expect(() => chain.hashPartial(tokens, 1, 2, keys, out)).toThrow('key of the block before');
    chain.hashBlocks(tokens, 0, keys);
    expect(() => chain.hashPartial(tokens, 1, 2, keys, out)).not.toThrow();
    expect(() => chain.hashPartial([1, -2, 3], 0, 3, keys, out)).toThrow(
      expect.objectContaining({ code: 'TKV_INPUT', field: 'tokens[1]' }),
    );
  });
});
