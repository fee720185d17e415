/** The shapes over which attention is compared: every boundary once, and the whole table for `run.ts`. */

import { NO_TOKEN } from '../../src/compute/index.ts';
import type { CaseShape } from './pagedCase.ts';

const base: CaseShape = { headDim: 64, kvHeads: 2, qHeads: 8, blockTokens: 16, lengths: [100] };

/** About half a minute on the software device. */
export const shapesOfCi: readonly CaseShape[] = [
  { ...base, lengths: [1] },
  { ...base, lengths: [15, 16, 17, 127, 128, 129, 300], slabs: 3, layers: 2 },
  { ...base, lengths: [2049], headDim: 128, kvHeads: 1, qHeads: 8 },
  { ...base, headDim: 80, kvHeads: 1, qHeads: 7, blockTokens: 5, lengths: [133] },
  { ...base, headDim: 96, kvHeads: 3, qHeads: 3, blockTokens: 1, lengths: [40, 131] },
  { ...base, lengths: [300], window: 128, positions: [[0, 127, 128, 143, 144, 255, 256, 299]] },
  { ...base, lengths: [200], window: 17, positions: [[15, 16, 17, 31, 32, 127, 144, 145, 199]] },
  {
    ...base,
    lengths: [200],
    positions: [[NO_TOKEN, ...Array.from({ length: 64 }, (_, i) => 100 + i), NO_TOKEN]],
  },
  { ...base, dtype: 'f16', lengths: [150, 17], slabs: 2 },
  { ...base, dtype: 'i8', lengths: [150, 17], slabs: 2 },
];
