import { expect, it } from 'vitest';
import { StagingPool } from '../../../../src/backends/file/ioQueue.ts';
import { SeededRandom, testSeed } from '../../../../src/testing/index.ts';

const seed = testSeed(31);
it(`a staging pool never lends a byte twice, and merges ranges that are given back (seed ${seed})`, async () => {
  const random = new SeededRandom(seed);
  const capacityBytes = 64 * 4096;
  using pool = await StagingPool.open(capacityBytes, false);
  const owners = new Int32Array(64).fill(-1);
  let lent: { range: Uint8Array; id: number }[] = [];
  let refusals = 0;
  for (let id = 0; id < 5000; id++) {
    const range = random.chance(0.55) ? pool.take(1 + random.below(12 * 4096)) : undefined;
    if (range !== undefined) {
      expect([range.byteOffset % 4096, range.byteLength % 4096]).toEqual([0, 0]);
      const blocks = owners.subarray(range.byteOffset / 4096, (range.byteOffset + range.byteLength) / 4096);
      expect(blocks.every((owner) => owner === -1)).toBe(true);
      blocks.fill(id);
      lent.push({ range, id });
    } else if (lent.length > 0) {
      refusals += 1;
      const [{ range: back }] = lent.splice(random.below(lent.length), 1) as [
        { range: Uint8Array; id: number },
      ];
      owners.fill(-1, back.byteOffset / 4096, (back.byteOffset + back.byteLength) / 4096);
      pool.give(back);
    }
  }
  expect(refusals).toBeGreaterThan(100);
  for (const { range } of lent) pool.give(range);
  lent = [];
  pool.checkIntegrity();
  const all = pool.take(capacityBytes)!;
  expect(all.byteLength).toBe(capacityBytes);
  pool.give(all);
  expect(() => pool.give(all)).toThrow('given back twice');
});
