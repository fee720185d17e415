/** The searches, for one chain and for many at once, against walking, where hashes collide on purpose. */

import fc from 'fast-check';
import { expect, it } from 'vitest';
import { ContentTable, NO_PARENT } from '../../../src/runtime/tables/contentTable.ts';
import { hashOf } from '../../../src/runtime/tables/prefixIndex.ts';

const BLOCKS_MAX = 9;

/**
 * A key of its own for each (chain, block), whose hash is one of few: what word 1 adds to the hash, word 0
 * takes away.
 */
function writeKey(keys: Uint32Array, at: number, chain: number, block: number, hashes: number): void {
  const name = chain * BLOCKS_MAX + block + 1;
  keys[at] = (name % hashes) ^ Math.imul(name, 0x9e3779b1);
  keys[at + 1] = name;
  keys[at + 2] = 0;
  keys[at + 3] = 0;
}

function keysOf(chains: number, hashes: number): Uint32Array {
  const keys = new Uint32Array(chains * BLOCKS_MAX * 4);
  for (let c = 0; c < chains; c++)
    for (let b = 0; b < BLOCKS_MAX; b++) writeKey(keys, (c * BLOCKS_MAX + b) * 4, c, b, hashes);
  return keys;
}

function cache(table: ContentTable, keys: Uint32Array, chain: number, blocks: number): number[] {
  const rows: number[] = [];
  for (let b = 0; b < blocks; b++) {
    const parent = b === 0 ? NO_PARENT : rows[b - 1];
    const row = table.intern(keys, (chain * BLOCKS_MAX + b) * 4, 0, 16, parent);
    table.hold(row);
    table.addCopy(row);
    rows.push(row);
  }
  return rows;
}

function drop(table: ContentTable, rows: number[], blocks: number): void {
  for (const row of rows.splice(rows.length - blocks).reverse()) {
    table.removeCopy(row);
    table.unhold(row);
  }
}

it('the keys of these tests collide', () => {
  const keys = keysOf(6, 3);
  const hashes = new Set(Array.from({ length: 6 * BLOCKS_MAX }, (_, i) => hashOf(keys, i * 4)));
  expect(hashes.size).toBe(3);
});

it('finds of each chain what walking finds, also when other keys share its hash', () => {
  const chain = fc.record({
    cached: fc.integer({ min: 0, max: BLOCKS_MAX }),
    dropped: fc.integer({ min: 0, max: BLOCKS_MAX }),
    asked: fc.integer({ min: 0, max: BLOCKS_MAX }),
  });
  fc.assert(
    fc.property(
      fc.array(chain, { minLength: 1, maxLength: 12 }),
      fc.constantFrom(1, 2, 5, 1000),
      (chains, hashes) => {
        const keys = keysOf(chains.length, hashes);
        const table = new ContentTable(chains.length * BLOCKS_MAX, 1);
        const rows = chains.map(({ cached }, c) => cache(table, keys, c, cached));
        const left = chains.map(({ cached, dropped }, c) => {
          const gone = Math.min(cached, dropped);
          if (gone > 0) drop(table, rows[c], gone);
          return cached - gone;
        });
        table.index.checkIntegrity();
        expect(table.holes).toBe(0);

        const firsts = Uint32Array.from(chains, (_, c) => c * BLOCKS_MAX);
        const counts = Uint32Array.from(chains, ({ asked }) => asked);
        const out = new Uint32Array(chains.length).fill(99);
        table.search.lengths(keys, firsts, counts, out, chains.length);
        expect([...out]).toEqual(chains.map(({ asked }, c) => Math.min(asked, left[c])));
        for (let c = 0; c < chains.length; c++)
          expect(table.search.length(keys.subarray(c * BLOCKS_MAX * 4), counts[c])).toBe(out[c]);
      },
    ),
    { numRuns: 300 },
  );
});

it('finds of a single long chain what walking finds, also when other keys share its hash', () => {
  const longest = 20 * BLOCKS_MAX;
  const upTo = fc.integer({ min: 0, max: longest });
  fc.assert(
    fc.property(upTo, upTo, fc.constantFrom(1, 2, 3, 7, 40, 1000), (cached, asked, hashes) => {
      const keys = keysOf(20, hashes);
      const table = new ContentTable(longest, 1);
      cache(table, keys, 0, cached);
      let walked = 0;
      while (walked < asked && table.index.find(keys, walked * 4) !== -1) walked++;
      expect(walked).toBe(Math.min(cached, asked));
      expect(table.search.length(keys, asked)).toBe(walked);
      expect(table.search.length(keys.subarray(0, asked * 4), asked)).toBe(walked);
    }),
    { numRuns: 500 },
  );
});

it('finds every length of every chain', () => {
  const keys = keysOf(8, 5);
  const longest = 8 * BLOCKS_MAX;
  const table = new ContentTable(longest, 1);
  const rows = cache(table, keys, 0, longest);
  for (let cached = longest; cached >= 0; cached--) {
    for (let asked = 0; asked <= longest; asked++)
      expect(table.search.length(keys, asked)).toBe(Math.min(cached, asked));
    if (cached > 0) drop(table, rows, 1);
  }
});

it('takes more chains than it has scratch space for', () => {
  const chains = 700;
  const keys = keysOf(chains, 50);
  const table = new ContentTable(chains * BLOCKS_MAX, 1);
  for (let c = 0; c < chains; c++) cache(table, keys, c, c % (BLOCKS_MAX + 1));
  const firsts = Uint32Array.from({ length: chains }, (_, c) => c * BLOCKS_MAX);
  const out = new Uint32Array(chains + 1).fill(99);
  table.search.lengths(keys, firsts, new Uint32Array(chains).fill(BLOCKS_MAX), out, chains);
  expect([...out.subarray(0, chains)]).toEqual(
    Array.from({ length: chains }, (_, c) => c % (BLOCKS_MAX + 1)),
  );
  expect(out[chains]).toBe(99);
});
