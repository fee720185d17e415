/**
 * Keys that are not chained, though the configuration says that they are: a search may jump over a gap. Then
 * less is found, and every call still ends, with its books right.
 */

import { expect, it } from 'vitest';
import { Entry, KVManager, Outcome, type Sequence } from '../../../src/runtime/index.ts';
import { SeededRandom } from '../../../src/testing/index.ts';

const seed = Number(process.env.TIERKV_SEED ?? 1);

interface Live {
  readonly sequence: Sequence;
  readonly keys: Uint32Array;
  readonly blocks: number;
}

it.each(['lru', 'hazard'])(`with eviction by %s (seeds from ${seed})`, (policy) => {
  let found = 0;
  for (let run = seed; run < seed + 4; run++) {
    const random = new SeededRandom(run);
    const ddr = { capacityBytes: 8 };
    const manager = new KVManager({ unitBytes: [1], hbm: { capacityBytes: 8 }, ddr, eviction: { policy } });
    const live: Live[] = [];
    const open = (now: number): void => {
      const blocks = 1 + random.below(5);
      const ids = Array.from({ length: blocks }, () => random.below(12));
      const keys = Uint32Array.from(ids.flatMap((id) => [id, 1, 2, 3]));
      const sequence = manager.openIfFits(keys, blocks, now, blocks, blocks);
      if (sequence === null) return;
      found += sequence.matched;
      live.push({ sequence, keys, blocks });
      manager.load(sequence, now);
      manager.allocate(sequence, sequence.matched, blocks, now);
    };
    const seal = ({ sequence, keys, blocks }: Live, now: number): void => {
      for (let b = 0; b < blocks; b++) {
        if (sequence.state[b] === Entry.OPEN) manager.seal(sequence, b, b + 1, keys, b * 4, 1, now);
      }
    };
    for (let now = 0; now < 500; now++) {
      const roll = random.below(8);
      const at = random.below(Math.max(live.length, 1));
      if (roll < 3 || live.length === 0) open(now);
      else if (roll < 5) seal(live[at], now);
      else if (roll < 7) manager.release(live.splice(at, 1)[0].sequence, now);
      else {
        for (let job = manager.nextJob(); job !== 0; job = manager.nextJob()) {
          manager.complete(job, Outcome.LOADED, now);
        }
      }
      manager.checkIntegrity();
    }
  }
  expect(found).toBeGreaterThan(50);
});
