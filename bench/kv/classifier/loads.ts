/** Loads for the classifier: traces as uses of blocks, and a made one in which the classes are equally many. */

import { expand, type PrefixTrace } from '../../../src/studies/replay/study.ts';
import { SeededRandom } from '../../../src/testing/index.ts';
import type { Use } from './hindsight.ts';

export function usesOf(trace: PrefixTrace): Use[] {
  const longest = trace.lengths.reduce((most, length) => Math.max(most, length), 0);
  const blocks = new Int32Array(longest);
  return trace.runs.map((run, r) => {
    const count = expand(run, blocks);
    return { timeUs: trace.arrivalUs[r], blocks: blocks.slice(0, count) };
  });
}

/** Uses per second of each class, and for how long a block stays in one. */
const KINDS = [
  [2, 5],
  [0.2, 0.6],
  [0, 0.02],
] as const;
const PHASE_S = 600;

/**
 * Blocks that are used at random (Poisson) at the rate of their class. Every ten minutes each block is given a
 * class anew, a third of them each one.
 */
export function syntheticUses(seed: number, blocks = 300, seconds = 2400): Use[] {
  const random = new SeededRandom(seed);
  const uniform = (): number => (random.word() + 1) / 2 ** 32;
  const uses: Use[] = [];
  for (let block = 0; block < blocks; block++) {
    for (let phase = 0; phase * PHASE_S < seconds; phase++) {
      const [low, high] = KINDS[random.below(KINDS.length)];
      const perSecond = low + (high - low) * uniform();
      let atS = phase * PHASE_S;
      for (;;) {
        atS += -Math.log(uniform()) / perSecond;
        if (!(atS < Math.min(seconds, (phase + 1) * PHASE_S))) break;
        uses.push({ timeUs: Math.round(atS * 1e6), blocks: [block] });
      }
    }
  }
  return uses.sort((a, b) => a.timeUs - b.timeUs || Number(a.blocks[0]) - Number(b.blocks[0]));
}
