/** Extras of a request in its keys, and tokens in every form that tokenizers give them in. */

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  BlockKeys,
  KeyChain,
  type KeyElements,
  kvLayout,
  type RequestExtras,
} from '../../../src/runtime/index.ts';

const layout = kvLayout({ layers: 1, kvHeads: 1, headDim: 8, dtype: 'f16', blockTokens: 4 });
const chain = new KeyChain({
  secretKey: new Uint8Array(32).fill(3),
  tenant: 'a',
  epoch: 0,
  model: 'm',
  layout,
});
const BLOCKS = 5;
const tokens = Array.from({ length: 4 * BLOCKS }, (_, i) => i * 7);

function keysOf(extras: RequestExtras, of: KeyElements = tokens): string[] {
  const keys = new BlockKeys();
  const mine = chain.withExtras(extras);
  mine.hashBlocks(of, 0, keys);
  const all = Array.from({ length: keys.length }, (_, i) => keys.toHex(i));
  for (let block = 0; block < BLOCKS; block++) {
    const tail = new Uint32Array(4);
    mine.hashPartial(of, block, 3, keys, tail);
    all.push(tail.join(' '));
  }
  return all;
}

const value = fc.oneof(fc.string({ maxLength: 4 }), fc.uint8Array({ maxLength: 4 }));
const extra = fc.oneof(value, fc.record({ value, fromToken: fc.integer({ min: 0, max: 24 }) }));
const extrasOf = fc.dictionary(fc.string({ maxLength: 3 }), extra, { maxKeys: 3 });

/** What the extras say of each block: the same text means the same keys. */
function meaning(extras: RequestExtras): string[] {
  const entered: string[][] = Array.from({ length: 7 }, () => []);
  for (const name of Object.keys(extras).sort()) {
    const given = extras[name];
    const plain = typeof given === 'string' || given instanceof Uint8Array;
    const { value: what, fromToken = 0 } = plain ? { value: given } : given;
    const text = typeof what === 'string' ? `t${what}` : `b${what.join()}`;
    entered[Math.floor(fromToken / 4)].push(JSON.stringify([name, text]));
  }
  let before = '';
  return entered.slice(0, BLOCKS).map((each) => (before = `${before}|${each.join()}`));
}

describe('extras', () => {
  it('give equal keys where they say the same of a block and those before it, and no others', () => {
    fc.assert(
      fc.property(extrasOf, extrasOf, (a, b) => {
        const [keysA, keysB] = [keysOf(a), keysOf(b)];
        const [saysA, saysB] = [meaning(a), meaning(b)];
        for (let i = 0; i < 2 * BLOCKS; i++) {
          const block = i % BLOCKS;
          expect(keysA[i] === keysB[i]).toBe(saysA[block] === saysB[block]);
        }
      }),
    );
  });

  it('that are empty change no key', () => {
    const keys = new BlockKeys();
    chain.hashBlocks(tokens, 0, keys);
    expect(keysOf({}).slice(0, BLOCKS)).toEqual(Array.from({ length: BLOCKS }, (_, i) => keys.toHex(i)));
  });
});

describe('tokens', () => {
  it.each([
    ['BigInt64Array', BigInt64Array.from(tokens, BigInt)],
    ['BigUint64Array', BigUint64Array.from(tokens, BigInt)],
    ['an array of bigint', tokens.map(BigInt)],
    ['numbers and bigint', tokens.map((token, i) => (i % 2 === 0 ? token : BigInt(token)))],
    ['Uint32Array', Uint32Array.from(tokens)],
  ])('as %s have the keys of the same numbers', (_, same) => {
    expect(keysOf({}, same)).toEqual(keysOf({}));
  });

  it.each([[-1n], [2n ** 32n], [2n ** 64n + 5n], [1.5], ['7'], [null], [undefined], [{}], [Symbol('7')]])(
    'an invalid token is named (case %#)',
    (wrong) => {
      const keys = new BlockKeys();
      const list = [1, 2, wrong, 4] as never;
      expect(() => chain.hashBlocks(list, 0, keys)).toThrow(
        expect.objectContaining({ code: 'TKV_INPUT', field: 'tokens[2]' }),
      );
    },
  );
});
