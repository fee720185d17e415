/**
 * Measured times of kernels on one card, and what lies between them. A table is a series of times over one size (rows of a matrix
 * product, bytes of a reduction) or over two (requests and tokens of attention), for one shape and one kernel. Between measured sizes the
 * logarithm of a time is interpolated in the coordinates in which it is smooth: attention over its roofline, matrix products over the
 * logarithm of their rows, never from one kernel to another. Beyond them the distance to the roofline is kept, which is the physical floor.
 */

import { configError, inputError } from '../../runtime/errors.ts';
import { exp, log } from '../random/elementary.ts';
import type { WeightFormat } from './quantisation.ts';

export const kernelSchema = 'tierkv.kernels/1';

/** Times over one size. Ascending sizes, times in µs, and the kernel of each, by its number in `kernels`. */
interface KernelSeries {
  readonly sizes: readonly number[];
  readonly us: readonly number[];
  readonly kernels?: readonly number[];
}

/** A product of rows x k with k x n. */
interface GemmSeries extends KernelSeries {
  readonly format: WeightFormat;
  readonly n: number;
  readonly k: number;
}

/** A mixture of experts as one GPU computes it: over tokens. `width` is of a whole expert. */
export interface ExpertSeries extends KernelSeries {
  readonly format: WeightFormat;
  readonly hidden: number;
  readonly width: number;
  readonly topk: number;
  readonly experts: number;
  readonly tp: number;
  readonly ep: number;
}

/** A reduction over a number of GPUs: over bytes of a message. */
interface ReduceSeries extends KernelSeries {
  readonly gpus: number;
}

/** Attention of one shape on one GPU: a series over tokens for each number of requests, ascending. */
export interface AttentionGrid {
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  /** 0: the whole context. */
  readonly window: number;
  readonly kvBytes: number;
  readonly requests: readonly number[];
  readonly rows: readonly KernelSeries[];
}

/** MLA with its projections, of a number of heads on one GPU. */
export interface LatentGrid {
  readonly heads: number;
  readonly kvBytes: number;
  readonly format: WeightFormat;
  readonly requests: readonly number[];
  readonly rows: readonly KernelSeries[];
}

/** The measured kernels of one card. */
export interface CardTables {
  readonly gpu: string;
  /** Package, version and files that the figures are from. */
  readonly source: string;
  readonly files: readonly string[];
  readonly gemm: readonly GemmSeries[];
  readonly experts: readonly ExpertSeries[];
  readonly prefill: readonly AttentionGrid[];
  readonly decode: readonly AttentionGrid[];
  readonly latentPrefill: readonly LatentGrid[];
  readonly latentDecode: readonly LatentGrid[];
  readonly reduce: readonly ReduceSeries[];
}

/** A thousand times the natural logarithm of µs, rounded: 0.05 % of a time. */
const scale = 1000;

const log2 = (x: number): number => log(x) / log(2);
/** The power of the square root of 2. */
const rootPower = (power: number): number => (power % 2 === 0 ? 1 : Math.SQRT2) * 2 ** Math.floor(power / 2);

/** Differences from one entry to the next, which pack small. */
export function packed(us: readonly number[]): number[] {
  let last = 0;
  return us.map((time) => {
    const code = Math.round(scale * log(time));
    const step = code - last;
    last = code;
    return step;
  });
}

function unpacked(steps: readonly number[]): number[] {
  let code = 0;
  return steps.map((step) => {
    code += step;
    return exp(code / scale);
  });
}

/** A file as JSON has it: `us` is packed. */
type PackedTables = CardTables & { readonly schema: string };

/** @throws TKV_INPUT for a text of another schema, or series whose parts are not equally long */
export function parseCardTables(text: string, file: string): CardTables {
  let root: PackedTables;
  try {
    root = JSON.parse(text) as PackedTables;
  } catch (cause) {
    throw inputError(
      'tables',
      `of ${file} is not JSON (${String(cause)}). Make it with tools/kernelTables.ts.`,
    );
  }
  if (root.schema !== kernelSchema) {
    throw inputError(
      'schema',
      `of ${file} is ${String(root.schema)}, and must be ${kernelSchema}. Make it with tools/kernelTables.ts.`,
    );
  }
  const series = <T extends KernelSeries>(one: T): T => {
    if (one.sizes.length !== one.us.length || one.sizes.length === 0) {
      throw inputError(
        'us',
        `of ${file} has ${one.us.length} times for ${one.sizes.length} sizes. Make it anew.`,
      );
    }
    return { ...one, us: unpacked(one.us) };
  };
  const grid = <T extends AttentionGrid | LatentGrid>(one: T): T => ({ ...one, rows: one.rows.map(series) });
  return {
    ...root,
    gemm: root.gemm.map(series),
    experts: root.experts.map(series),
    reduce: root.reduce.map(series),
    prefill: root.prefill.map(grid),
    decode: root.decode.map(grid),
    latentPrefill: root.latentPrefill.map(grid),
    latentDecode: root.latentDecode.map(grid),
  };
}

/** A time in µs that no kernel can be below, over one size. */
type Floor = (size: number) => number;

/** The index of the last of `sizes` that is at most `size`, or -1. */
function below(sizes: readonly number[], size: number): number {
  let low = 0;
  let high = sizes.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sizes[middle] <= size) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

/** The time at a size: interpolated, and beyond the series and between two kernels at the distance to the floor of the nearest measured size. */
export function timeAt({ sizes, us, kernels }: KernelSeries, size: number, floor: Floor): number {
  const at = below(sizes, size);
  const held = (i: number): number => (us[i] * floor(size)) / floor(sizes[i]);
  if (at < 0) return held(0);
  if (sizes[at] === size) return us[at];
  if (at === sizes.length - 1) return held(at);
  if (kernels !== undefined && kernels[at] !== kernels[at + 1]) {
    return size * size < sizes[at] * sizes[at + 1] ? held(at) : held(at + 1);
  }
  const share = log(size / sizes[at]) / log(sizes[at + 1] / sizes[at]);
  return us[at] * exp(share * log(us[at + 1] / us[at]));
}

/** A time of two sizes that no kernel can be below. */
export type Floor2 = (requests: number, tokens: number) => number;

/** Distance to the floor at a point of a row, interpolated over the logarithm of tokens; beyond the ends it stays. */
function overFloor(row: KernelSeries, requests: number, tokens: number, floor: Floor2): number {
  const { sizes, us } = row;
  const ratio = (i: number): number => us[i] / floor(requests, sizes[i]);
  const at = below(sizes, tokens);
  if (at < 0) return ratio(0);
  if (at === sizes.length - 1) return ratio(at);
  const share = log(tokens / sizes[at]) / log(sizes[at + 1] / sizes[at]);
  return ratio(at) * exp(share * log(ratio(at + 1) / ratio(at)));
}

/**
 * Distances to the floor over requests and tokens, on a grid of powers of the square root of 2, so that a look-up costs the same at each
 * step of a simulation.
 */
export class FloorRatios {
  readonly #cells: Float64Array;
  readonly #columns: number;
  readonly #rows: number;

  /** @param most requests and tokens that the grid has to reach */
  constructor(
    grid: { readonly requests: readonly number[]; readonly rows: readonly KernelSeries[] },
    floor: Floor2,
    most: { readonly requests: number; readonly tokens: number },
  ) {
    this.#rows = 2 * Math.ceil(log2(most.requests)) + 1;
    this.#columns = 2 * Math.ceil(log2(most.tokens)) + 1;
    this.#cells = new Float64Array(this.#rows * this.#columns);
    for (let r = 0; r < this.#rows; r++) {
      const requests = rootPower(r);
      const at = below(grid.requests, requests);
      const low = Math.max(0, at);
      const high = Math.min(grid.requests.length - 1, at + 1);
      const span = log(grid.requests[high] / grid.requests[low]);
      const share = span > 0 ? log(requests / grid.requests[low]) / span : 0;
      for (let c = 0; c < this.#columns; c++) {
        const tokens = rootPower(c);
        const [a, b] = [low, high].map((i) => overFloor(grid.rows[i], grid.requests[i], tokens, floor));
        const us = a * exp(share * log(b / a)) * floor(requests, tokens);
        // a kernel can be given more than it needs, so more never takes less
        const fewer = r > 0 ? this.#cells[(r - 1) * this.#columns + c] : 0;
        const shorter = c > 0 ? this.#cells[r * this.#columns + c - 1] : 0;
        this.#cells[r * this.#columns + c] = Math.max(us, fewer, shorter);
      }
    }
    for (let i = 0; i < this.#cells.length; i++) {
      const [r, c] = [Math.floor(i / this.#columns), i % this.#columns];
      this.#cells[i] = log(this.#cells[i] / floor(rootPower(r), rootPower(c)));
    }
  }

  /** Distance to the floor at a point. */
  at(requests: number, tokens: number): number {
    const r = Math.min(this.#rows - 1, Math.max(0, 2 * log2(requests)));
    const c = Math.min(this.#columns - 1, Math.max(0, 2 * log2(tokens)));
    const row = Math.min(this.#rows - 2, Math.floor(r));
    const column = Math.min(this.#columns - 2, Math.floor(c));
    const [down, right] = [r - row, c - column];
    const cell = (i: number, j: number): number => this.#cells[i * this.#columns + j];
    const upper = cell(row, column) * (1 - right) + cell(row, column + 1) * right;
    const lower = cell(row + 1, column) * (1 - right) + cell(row + 1, column + 1) * right;
    return exp(upper * (1 - down) + lower * down);
  }
}

/** A curve of times over one size, tabulated from a function, linear between its points. */
export class Curve {
  readonly #sizes: Float64Array;
  readonly #us: Float64Array;
  #last = 0;

  constructor(sizes: readonly number[], timeOf: (size: number) => number) {
    if (sizes.length < 2)
      throw configError('sizes', `are ${sizes.length}, and must be 2 or more`, 'Give more.');
    this.#sizes = Float64Array.from(sizes);
    let longest = 0;
    // a kernel can be given more than it needs, so more never takes less
    this.#us = Float64Array.from(sizes, (size) => {
      longest = Math.max(longest, timeOf(size));
      return longest;
    });
  }

  /** Beyond the last point the last slope goes on. */
  at(size: number): number {
    const sizes = this.#sizes;
    // sizes of one run move little from step to step
    let at = this.#last;
    while (at > 0 && sizes[at] > size) at--;
    while (at < sizes.length - 2 && sizes[at + 1] <= size) at++;
    this.#last = at;
    const share = Math.max(0, (size - sizes[at]) / (sizes[at + 1] - sizes[at]));
    return this.#us[at] + share * (this.#us[at + 1] - this.#us[at]);
  }
}

/** Shapes near another, with their weights: by distances of logarithms of their sizes, the nearest four. */
export function nearest<T>(
  all: readonly T[],
  distance: (one: T) => number,
  count: number = 4,
): readonly { readonly one: T; readonly weight: number }[] {
  const sorted = all
    .map((one) => ({ one, far: distance(one) }))
    .filter(({ far }) => Number.isFinite(far))
    .sort((a, b) => a.far - b.far)
    .slice(0, count);
  if (sorted.length > 0 && sorted[0].far === 0) return [{ one: sorted[0].one, weight: 1 }];
  const weights = sorted.map(({ far }) => 1 / (far * far));
  const sum = weights.reduce((total, each) => total + each, 0);
  return sorted.map(({ one }, i) => ({ one, weight: weights[i] / sum }));
}
