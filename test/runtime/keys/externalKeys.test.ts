import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { BlockKeys, ExternalKeys, wordsPerKey } from '../../../src/runtime/keys/keyChain.ts';

const id = fc.oneof(fc.maxSafeNat(), fc.nat(1000), fc.constantFrom(0, 2 ** 32, 2 ** 32 - 1, 2 ** 53 - 1));

describe('ExternalKeys', () => {
  test('gives every id below 2^53 a key of its own, from which the id can be read back', () => {
    const source = new ExternalKeys({ tenant: 'acme', epoch: 0 });
    fc.assert(
      fc.property(fc.array(id, { maxLength: 50 }), (ids) => {
        const keys = new BlockKeys(1);
        expect(source.hashBlocks(Float64Array.from(ids), 0, keys)).toBe(ids.length);
        const back = ids.map((_, i) => source.idOf(keys.words, i * wordsPerKey));
        expect(back).toEqual(ids);
      }),
    );
  });

  test('keeps tenants, epochs and kinds of tenant apart, and is the same for the same namespace', () => {
    const namespaces = [
      { tenant: 'a', epoch: 0 },
      { tenant: 'b', epoch: 0 },
      { tenant: 'a', epoch: 1 },
      { tenant: 'a', epoch: 2 ** 32 },
      { tenant: '', epoch: 0 },
      { tenant: new Uint8Array([0x61, 0]), epoch: 0 },
    ];
    const seen = new Set<string>();
    for (const namespace of namespaces) {
      const [keys, again] = [new BlockKeys(), new BlockKeys()];
      new ExternalKeys(namespace).hashBlocks([5], 0, keys);
      new ExternalKeys(namespace).hashBlocks([5], 0, again);
      expect(again.toHex(0)).toBe(keys.toHex(0));
      seen.add(keys.toHex(0));
      const foreign = namespaces.filter((other) => other !== namespace);
      for (const other of foreign) expect(new ExternalKeys(other).idOf(keys.words)).toBeUndefined();
    }
    expect(seen.size).toBe(namespaces.length);
  });

  test('spreads consecutive ids, and ids that differ in their high word only, over both words', () => {
    const source = new ExternalKeys({ tenant: '', epoch: 0 });
    for (const step of [1, 2 ** 32, 2 ** 21]) {
      const keys = new BlockKeys();
      source.hashBlocks(
        Array.from({ length: 4096 }, (_, i) => i * step),
        0,
        keys,
      );
      for (const word of [0, 1]) {
        const buckets = new Uint32Array(256);
        for (let i = 0; i < keys.length; i++) buckets[keys.words[i * wordsPerKey + word] & 255]++;
        expect(Math.max(...buckets)).toBeLessThan(48); // 16 expected, 8 standard deviations above
      }
    }
  });

  test('extends a sequence as KeyChain does', () => {
    const source = new ExternalKeys({ tenant: '', epoch: 0 });
    const [grown, whole] = [new BlockKeys(1), new BlockKeys(1)];
    const ids = [3, 1, 4, 1, 5, 9, 2, 6];
    for (const count of [0, 3, 3, 8]) source.hashBlocks(ids, grown.length, grown, count);
    source.hashBlocks(ids, 0, whole);
    expect(grown.words.slice(0, 32)).toEqual(whole.words.slice(0, 32));
    expect(grown.length).toBe(8);
    expect(grown.toHex(1)).toBe(grown.toHex(3));
    expect(() => source.hashPartial()).toThrow('whole block');
  });

  test.each([[-1], [0.5], [2 ** 53], [Number.NaN]])('refuses id %s and names its place', (bad) => {
    const source = new ExternalKeys({ tenant: '', epoch: 0 });
    const keys = new BlockKeys();
    expect(() => source.hashBlocks([1, bad], 0, keys)).toThrow(
      expect.objectContaining({ code: 'TKV_INPUT', field: 'ids[1]' }),
    );
    expect(keys.length).toBe(1);
  });

  test('names a bad epoch or tenant', () => {
    expect(() => new ExternalKeys({ tenant: '', epoch: -1 })).toThrow(
      expect.objectContaining({ code: 'TKV_CONFIG', field: 'epoch' }),
    );
    expect(() => new ExternalKeys({ tenant: 1 as unknown as string, epoch: 0 })).toThrow(
      expect.objectContaining({ code: 'TKV_CONFIG', field: 'tenant' }),
    );
  });
});

describe('BlockKeys', () => {
  test('keep their keys across growth, truncation and reserve', () => {
    const keys = new BlockKeys(1);
    const source = new Uint32Array(400).map((_, i) => i * 2654435761);
    for (let i = 0; i < 100; i++) keys.append(source, 4 * i);
    keys.reserve(1000);
    const room = keys.words;
    keys.truncate(60);
    for (let i = 60; i < 1000; i++) keys.append(source, 4 * (i % 100));
    expect(keys.words).toBe(room);
    for (let i = 0; i < 1000; i++) {
      expect(keys.equalsAt(i, source, 4 * (i % 100))).toBe(true);
      expect(keys.equalsAt(i, source, 4 * ((i + 1) % 100))).toBe(false);
    }
    expect(() => keys.truncate(1001)).toThrow('cannot be cut');
    expect(() => keys.toHex(1000)).toThrow('key 1000 is not among');
  });

  test('compare all four words', () => {
    const keys = new BlockKeys(1);
    keys.append(Uint32Array.of(1, 2, 3, 4), 0);
    for (let word = 0; word < 4; word++) {
      const other = Uint32Array.of(1, 2, 3, 4);
      other[word] ^= 0x80000000;
      expect(keys.equalsAt(0, other, 0)).toBe(false);
    }
    expect(keys.equalsAt(0, Uint32Array.of(0, 1, 2, 3, 4), 1)).toBe(true);
  });
});
