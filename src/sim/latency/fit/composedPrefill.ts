/**
 * A prefill put together from measured kernels alone: for each matrix product the share of the peak that the
 * table has at its rows for the nearest shape, for attention the measured time of the nearest number of
 * heads. It is what a prefill costs if kernels in 16 bits reach the share of their peak that the table's
 * 8-bit ones reach, and nothing else takes time.
 */

import { invariant } from '../../../runtime/errors.ts';
import type { Hardware } from '../description/hardware.ts';
import type { ModelConfig } from '../description/modelConfig.ts';
import { trueHeadDim } from '../description/modelConfig.ts';
import type { EngineShape } from '../physics/engineShape.ts';
import type { GemmSample, KernelTables, PrefillSample } from './kernelFit.ts';

interface Point {
  readonly x: number;
  readonly y: number;
}

/** Linear in log x between points, the nearest point outside. */
function interpolate(points: readonly Point[], x: number): number {
  const above = points.findIndex((point) => point.x >= x);
  if (above === -1) return points.at(-1)!.y;
  if (above === 0) return points[0].y;
  const [a, b] = [points[above - 1], points[above]];
  const t = Math.log(x / a.x) / Math.log(b.x / a.x);
  return a.y * (1 - t) + b.y * t;
}

function nearest<T>(candidates: readonly T[], distance: (candidate: T) => number): T {
  invariant(candidates.length > 0, 'a prefill was composed from an empty table');
  return candidates.reduce((best, one) => (distance(one) < distance(best) ? one : best));
}

function peakShare(
  hardware: Hardware,
  samples: readonly GemmSample[],
  rows: number,
  depth: number,
  columns: number,
): number {
  const far = (sample: GemmSample): number =>
    Math.abs(Math.log(sample.depth / depth)) + Math.abs(Math.log(sample.columns / columns));
  const shape = nearest(samples, far);
  const points = samples
    .filter((sample) => sample.depth === shape.depth && sample.columns === shape.columns)
    .map((sample) => ({
      x: sample.rows,
      y:
        (2 * sample.rows * sample.depth * sample.columns) /
        (sample.latencyUs * hardware.peakTflops8bit * 1e6),
    }))
    .sort((a, b) => a.x - b.x);
  return interpolate(points, rows);
}

function attentionUs(
  hardware: Hardware,
  samples: readonly PrefillSample[],
  heads: number,
  headDim: number,
  tokens: number,
): number {
  const near = nearest(samples, (sample) => Math.abs(Math.log(sample.heads / heads))).heads;
  const table = samples.filter((sample) => sample.heads === near).sort((a, b) => a.tokens - b.tokens);
  if (tokens <= table[0].tokens) return table[0].latencyUs;
  const points = table.map((sample) => ({
    x: sample.tokens,
    y:
      (2 * sample.heads * sample.headDim * sample.tokens ** 2) /
      (sample.latencyUs * hardware.peakTflops * 1e6),
  }));
  return (2 * heads * headDim * tokens ** 2) / (interpolate(points, tokens) * hardware.peakTflops * 1e6);
}

/** µs of the matrix products and the attention of a prefill of `tokens` tokens, without the output head. */
export function composedPrefillUs(
  tables: KernelTables,
  hardware: Hardware,
  model: ModelConfig,
  shape: EngineShape,
  tokens: number,
): number {
  let us =
    model.layers * attentionUs(hardware, tables.prefill, model.heads / shape.tp, trueHeadDim(model), tokens);
  for (const { depth, columns, count } of shape.tokenMatrices) {
    const share = peakShare(hardware, tables.gemm, tokens, depth, columns);
    us += (count * 2 * tokens * depth * columns) / (share * shape.peakFlopsPerUs);
  }
  return us;
}
