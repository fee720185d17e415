/** The depth of a use equals a plain list by last use, over any order of uses; and no number of blocks makes the memory grow. */

import { describe, expect, it } from 'vitest';
import { BlockHistory } from '../../src/embed/blockHistory.ts';
import { UseOrder } from '../../src/embed/useOrder.ts';
import { KVManager } from '../../src/runtime/index.ts';
import { SeededRandom } from '../../src/testing/patternItems.ts';

describe('the depth of a use', () => {
  for (const seed of [1, 2, 3]) {
    it(`is its place in a list by last use, also after the numbers ran out (seed ${seed})`, () => {
      const random = new SeededRandom(seed);
      const blocks = Array.from({ length: 40 }, () => ({ lastUse: 0 }));
      const known = new Set(blocks);
      const order = new UseOrder(100, () => known);
      let list: { lastUse: number }[] = [];
      for (let i = 0; i < 3000; i++) {
        const block = blocks[random.below(blocks.length)];
        list = [block, ...list.filter((each) => each !== block)];
        order.used(block);
        const asked = blocks[random.below(blocks.length)];
        expect(order.usedAfter(asked), `use ${i}`).toBe(list.indexOf(asked));
      }
    });
  }

  it('says where blocks that are forgotten may be missing', () => {
    const blocks = Array.from({ length: 4 }, () => ({ lastUse: 0 }));
    const order = new UseOrder(100, () => blocks);
    for (const block of blocks) order.used(block);
    order.forget(blocks[1]);
    expect(blocks.map((block) => order.isShortOf(block))).toEqual([true, true, false, false]);
    expect(order.usedAfter(blocks[2])).toBe(1);
    expect(order.usedAfter(blocks[0])).toBe(2); // of three, one is forgotten
  });
});

describe('the memory of a runtime that never stops', () => {
  it('keeps to its bounds over ten thousand requests for other blocks, and says what it forgot', () => {
    const manager = new KVManager({ unitBytes: [1], hbm: { capacityBytes: 32, landingBytes: 8 } });
    const history = new BlockHistory(manager, { blocks: 500, requestBlocks: 400 });
    const keys = new Uint32Array(16);
    for (let i = 0; i < 10_000; i++) {
      for (let block = 0; block < 4; block++) keys.set([i, block, 7, 7], block * 4);
      const sequence = manager.open(keys, 4, i);
      manager.allocate(sequence, 0, 4, i);
      manager.seal(sequence, 0, 4, keys, 0, 16, i);
      for (let job = manager.nextJob(); job !== 0; job = manager.nextJob()) manager.complete(job, 0, i, 1, 1);
      manager.release(sequence, i);
      expect(history.blockCount).toBeLessThanOrEqual(504);
      expect(history.requestCount).toBeLessThanOrEqual(101);
    }
    expect(history.forgotBlocks).toBeGreaterThan(30_000);
    expect(history.forgotRequests).toBeGreaterThan(9_000);
    manager.checkIntegrity();
    history.close();
  });
});
