/** The shapes over which attention is compared: every boundary once, and the whole table for `run.ts`. */

import { type AttentionKernel, NO_TOKEN } from '../../src/compute/index.ts';
import { runCase } from './attentionRun.ts';
import { attendedInF64, boundOf, type CaseShape, pagedCase } from './pagedCase.ts';

const base: CaseShape = { headDim: 64, kvHeads: 2, qHeads: 8, blockTokens: 16, lengths: [100] };

export const shapesOfCi: readonly CaseShape[] = [
  { ...base, lengths: [1] },
  { ...base, lengths: [15, 16, 17, 127, 128, 129, 300], slabs: 3, layers: 2 },
  { ...base, lengths: [1025], headDim: 128, kvHeads: 1, qHeads: 8 },
  { ...base, headDim: 80, kvHeads: 1, qHeads: 7, blockTokens: 5, lengths: [133] },
  { ...base, headDim: 96, kvHeads: 3, qHeads: 3, blockTokens: 1, lengths: [40, 131] },
  { ...base, lengths: [300], window: 128, positions: [[0, 127, 128, 143, 144, 255, 256, 299]] },
  { ...base, lengths: [200], window: 17, positions: [[15, 16, 17, 31, 32, 127, 144, 145, 199]] },
  {
    ...base,
    lengths: [200],
    positions: [[NO_TOKEN, ...Array.from({ length: 24 }, (_, i) => 112 + i), NO_TOKEN]],
  },
  { ...base, dtype: 'f16', lengths: [150, 17], slabs: 2 },
  { ...base, dtype: 'i8', lengths: [150, 17], slabs: 2 },
];

/** Workgroups with barriers are slow on the software device: few rows, and each boundary. */
export const shapesOfWorkgroups: readonly CaseShape[] = [
  { ...base, headDim: 80, kvHeads: 1, qHeads: 7, blockTokens: 5, lengths: [133] },
  { ...base, dtype: 'i8', headDim: 8, kvHeads: 1, qHeads: 12, lengths: [150, 17], slabs: 2, layers: 2 },
  {
    ...base,
    headDim: 96,
    kvHeads: 1,
    qHeads: 1,
    window: 17,
    lengths: [200],
    positions: [[16, 127, 144, NO_TOKEN]],
  },
];

/** Every head size, group and boundary with every other, for `run.ts`. */
export function allShapes(): CaseShape[] {
  const lengths = [1, 15, 16, 17, 127, 128, 129, 255, 256, 257];
  const shapes: CaseShape[] = [];
  for (const headDim of [64, 80, 96, 128]) {
    for (const group of [1, 2, 3, 4, 5, 6, 7, 8]) {
      for (const window of [0, 16, 128, 129]) {
        const seed = shapes.length + 1;
        const dtype = (['f32', 'f16', 'i8'] as const)[seed % 3];
        const kvHeads = 1 + (seed % 2);
        const heads = { headDim, kvHeads, qHeads: kvHeads * group };
        const blockTokens = [16, 1, 5, 32][seed % 4];
        shapes.push({
          ...heads,
          blockTokens,
          window,
          dtype,
          lengths,
          slabs: 1 + (seed % 3),
          layers: 2,
          seed,
        });
      }
    }
    shapes.push({ headDim, kvHeads: 2, qHeads: 8, blockTokens: 16, lengths: [4096, 8191], seed: headDim });
  }
  return shapes;
}

export function title(shape: CaseShape): string {
  const { dtype = 'f32', headDim, qHeads, kvHeads, blockTokens, lengths, window = 0, slabs = 1 } = shape;
  const heads = `${qHeads} query and ${kvHeads} KV heads of ${headDim}`;
  return `${dtype}, ${heads}, blocks of ${blockTokens}, ${lengths} tokens, window ${window}, ${slabs} slabs`;
}

/** What is beyond the bound in the case of a shape; empty where nothing is. */
export async function firstWrong(
  device: GPUDevice,
  shape: CaseShape,
  kernel: AttentionKernel,
): Promise<string> {
  const one = pagedCase(shape);
  const wanted = attendedInF64(one);
  const attended = await runCase(device, one, { kernel });
  const wrong = wanted.findIndex((value, i) => !(Math.abs(attended[i] - value) <= boundOf(one, value)));
  return wrong < 0 ? '' : `attended[${wrong}] is ${attended[wrong]}, not ${wanted[wrong]}`;
}
