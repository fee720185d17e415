import { createHash } from 'node:crypto';
import { blake2s as nobleBlake2s } from '@noble/hashes/blake2.js';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { blake2s } from '../../../src/runtime/keys/blake2s.ts';

const hex = (bytes: Uint8Array): string => Buffer.from(bytes).toString('hex');
const utf8 = (text: string): Uint8Array => new Uint8Array(Buffer.from(text));

describe('BLAKE2s', () => {
  test('gives the digest of "abc" in RFC 7693, appendix B', () => {
    expect(hex(blake2s(utf8('abc')))).toBe(
      '508c5e8c327c14e2e1a72ba34eeb452f37458b209ed63a294d999b4c86675982',
    );
  });

  test('agrees with node:crypto on random data of every length around the block boundaries', () => {
    for (let length = 0; length <= 260; length++) {
      const data = Uint8Array.from({ length }, (_, i) => (i * 197 + length * 31) & 0xff);
      expect(hex(blake2s(data))).toBe(createHash('blake2s256').update(data).digest('hex'));
    }
  });

  test('agrees with @noble/hashes for any data, digest length and key', () => {
    fc.assert(
      fc.property(
        fc.uint8Array({ maxLength: 400 }),
        fc.integer({ min: 1, max: 32 }),
        fc.option(fc.uint8Array({ minLength: 1, maxLength: 32 }), { nil: undefined }),
        (data, dkLen, key) => {
          const expected = nobleBlake2s(data, key === undefined ? { dkLen } : { dkLen, key });
          expect(hex(blake2s(data, dkLen, key))).toBe(hex(expected));
        },
      ),
      { numRuns: 500 },
    );
  });

  test('hashes a view at any offset of its buffer, aligned or not', () => {
    const buffer = Uint8Array.from({ length: 300 }, (_, i) => (i * 7) & 0xff);
    for (const [start, end] of [
      [1, 66],
      [3, 3],
      [2, 299],
    ] as const) {
      const view = new Uint8Array(buffer.buffer, start, end - start);
      expect(hex(blake2s(view))).toBe(hex(blake2s(buffer.slice(start, end))));
    }
  });

  test('refuses a key that BLAKE2s cannot take', () => {
    expect(() => blake2s(utf8('x'), 32, new Uint8Array(33))).toThrow('33 bytes, not 1 to 32');
    expect(() => blake2s(utf8('x'), 32, new Uint8Array(0))).toThrow('0 bytes');
    expect(() => blake2s(utf8(''), 32, new Uint8Array(33))).toThrow('33 bytes');
  });
});
