/** The shapes over which attention is compared: every boundary once, and the whole table for `run.ts`. */

import { type AttentionKernel, NO_TOKEN } from '../../../src/compute/index.ts';
import { SeededRandom } from '../../../src/testing/index.ts';
import { runCase } from './attentionRun.ts';
import { attendedInF64, boundOf, type CaseShape, type PagedCase, pagedCase } from './pagedCase.ts';

const base: CaseShape = { headDim: 64, kvHeads: 2, qHeads: 4, blockTokens: 16, lengths: [100] };

export const shapesOfCi: readonly CaseShape[] = [
  { ...base, lengths: [1] },
  { ...base, lengths: [15, 16, 17, 127, 128, 129, 300], slabs: 3, layers: 2, qHeads: 2 },
  { ...base, lengths: [1025], headDim: 128, kvHeads: 1, qHeads: 7 },
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

const headDims = [64, 80, 96, 128];
const groups = [1, 2, 3, 4, 5, 6, 7, 8];
const dtypes = ['f32', 'f16', 'i8'] as const;
const windows = [0, 1, 16, 17, 128, 129];
const places = [1, 5, 16, 32].flatMap((blockTokens) =>
  [1, 2, 3].flatMap((slabs) => [1, 2].map((kvHeads) => ({ blockTokens, slabs, kvHeads }))),
);

/**
 * Every head size with every number of query heads for a KV head and every format; then thousands of tokens
 * for every head size and format; then the first list again. Windows, block sizes, KV heads and slabs are
 * drawn without replacement, so that each combination of those occurs too.
 */
export function allShapes(): CaseShape[] {
  const random = new SeededRandom(29);
  const settings = windows.flatMap((window) => places.map((place) => ({ window, ...place })));
  let left: typeof settings = [];
  const drawn = (): (typeof settings)[number] => {
    if (left.length === 0)
      left = random.distinctBelow(settings.length, settings.length).map((i) => settings[i]);
    return left.pop() as (typeof settings)[number];
  };
  const heads = headDims.flatMap((headDim) => dtypes.map((dtype) => ({ headDim, dtype })));
  const grouped = (): CaseShape[] =>
    heads.flatMap((head) =>
      groups.map((group) => {
        const setting = drawn();
        const lengths = [1, 15, 16, 17, 129, 390];
        const positions = lengths.map((length) => [length - 1]);
        positions[5] = edges(setting.window, setting.blockTokens, 390);
        return { ...head, ...setting, qHeads: setting.kvHeads * group, lengths, positions, layers: 2 };
      }),
    );
  const long = heads.flatMap((head) =>
    [0, 4097].map((window): CaseShape => {
      const lengths = window === 0 ? [2048, 8191] : [8192];
      return { ...head, kvHeads: 1, qHeads: 4, blockTokens: 16, lengths, window };
    }),
  );
  return [...grouped(), ...long, ...grouped()].map((shape, i) => ({ ...shape, seed: i + 1 }));
}

/** Positions whose row, or whose window, begins or ends beside an edge of a block or of a split. */
function edges(window: number, blockTokens: number, length: number): number[] {
  const at = [blockTokens, 2 * blockTokens, 128, 256].flatMap((edge) => [edge - 1, edge, edge + 1]);
  const all = [...at, ...at.map((first) => first + Math.max(window, 1) - 1), length - 1];
  return [...new Set(all)].filter((position) => position < length).sort((a, b) => a - b);
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
  return firstBeyond(one, await runCase(device, one, { kernel }), attendedInF64(one));
}

/** The first number whose error exceeds the given number of bounds; empty if none does. */
export function firstBeyond(
  one: PagedCase,
  attended: Float32Array,
  wanted: Float64Array,
  bounds = 1,
): string {
  const bound = boundOf(one);
  const wrong = wanted.findIndex((value, i) => !(Math.abs(attended[i] - value) <= bounds * bound(value)));
  return wrong < 0 ? '' : `attended[${wrong}] is ${attended[wrong]}, not ${wanted[wrong]}`;
}
