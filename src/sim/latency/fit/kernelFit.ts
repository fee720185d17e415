/**
 * Fits kernel efficiencies to tables of measured kernels and says how far the fit is from them. The tables:
 * matrix products (m, k, n, latency_us), attention prefill (heads, kv_heads, head_dim, seq_len, latency_us)
 * and attention decode (also batch_size and kv_len).
 */

import { invariant } from '../../../runtime/errors.ts';
import * as is from '../../../runtime/kinds.ts';
import { checkInputs } from '../../../runtime/options.ts';
import { type Hardware, type ModelConfig, trueHeadDim } from '../modelConfig.ts';
import {
  type AttentionEfficiency,
  attentionDecodeUs,
  attentionPrefillUs,
  type EngineShape,
  type GemmEfficiency,
  gemmUs,
} from '../physics.ts';
import { minimise, type StepPrediction } from './linearFit.ts';
import { readTable } from './stepRecords.ts';

interface GemmSample {
  readonly rows: number;
  readonly depth: number;
  readonly columns: number;
  readonly latencyUs: number;
}

interface PrefillSample {
  readonly heads: number;
  readonly headDim: number;
  readonly tokens: number;
  readonly latencyUs: number;
}

interface DecodeSample {
  readonly kvHeads: number;
  readonly headDim: number;
  readonly requests: number;
  readonly contextTokens: number;
  readonly latencyUs: number;
}

export interface KernelTables {
  readonly gemm: readonly GemmSample[];
  readonly prefill: readonly PrefillSample[];
  readonly decode: readonly DecodeSample[];
}

/** Prompt lengths and rows within which large prefills lie; the decode rows of products go down to 8. */
export const prefillTokenRange = { least: 128, most: 8192 } as const;

export function parseGemmTable(text: string, file: string): GemmSample[] {
  checkInputs({ text, file }, { text: is.text(), file: is.name() });
  return [...readTable(text, file, ['m', 'k', 'n', 'latency_us'])].map((row) => ({
    rows: row.number('m'),
    depth: row.number('k'),
    columns: row.number('n'),
    latencyUs: row.positive('latency_us'),
  }));
}

export function parsePrefillTable(text: string, file: string): PrefillSample[] {
  checkInputs({ text, file }, { text: is.text(), file: is.name() });
  return [...readTable(text, file, ['heads', 'head_dim', 'seq_len', 'latency_us'])].map((row) => ({
    heads: row.number('heads'),
    headDim: row.number('head_dim'),
    tokens: row.number('seq_len'),
    latencyUs: row.positive('latency_us'),
  }));
}

export function parseDecodeTable(text: string, file: string): DecodeSample[] {
  checkInputs({ text, file }, { text: is.text(), file: is.name() });
  const columns = ['kv_heads', 'head_dim', 'batch_size', 'kv_len', 'latency_us'];
  return [...readTable(text, file, columns)].map((row) => ({
    kvHeads: row.number('kv_heads'),
    headDim: row.number('head_dim'),
    requests: row.number('batch_size'),
    contextTokens: row.number('kv_len'),
    latencyUs: row.positive('latency_us'),
  }));
}

const peak8 = (hardware: Hardware): { flopsPerUs: number; bytesPerUs: number } => ({
  flopsPerUs: hardware.peakTflops8bit * 1e6,
  bytesPerUs: hardware.memoryTbPerS * 1e6,
});

function logLoss(predictions: readonly StepPrediction[]): number {
  let sum = 0;
  for (const { predictedUs, measuredUs } of predictions) sum += Math.log(predictedUs / measuredUs) ** 2;
  return sum / predictions.length;
}

/** Products in 8 bits, operands and weights a byte each, results two. */
export function predictGemm(
  efficiency: GemmEfficiency,
  hardware: Hardware,
  samples: readonly GemmSample[],
): StepPrediction[] {
  checkInputs(
    { efficiency, hardware, samples },
    {
      efficiency: is.fields({ memory: is.number(), compute: is.number() }),
      hardware: is.fields({ name: is.text(), peakTflops: is.number() }),
      samples: is.array(),
    },
  );
  const peak = peak8(hardware);
  return samples.map(({ rows, depth, columns, latencyUs }) => ({
    predictedUs: gemmUs(efficiency, peak, rows, depth, columns, 1, 1),
    measuredUs: latencyUs,
  }));
}

/** Efficiency of 8-bit products, fitted to the rows up to the largest prefill. */
export function fitGemm(hardware: Hardware, samples: readonly GemmSample[]): GemmEfficiency {
  const relevant = samples.filter(({ rows }) => rows <= prefillTokenRange.most);
  const efficiency = ([memory, compute, exponent, launchUs]: readonly number[]): GemmEfficiency => ({
    memory: memory,
    compute: compute,
    exponent: exponent,
    launchUs: launchUs,
  });
  const found = minimise(
    [
      { name: 'memory', start: 0.7, min: 0.05, max: 1 },
      { name: 'compute', start: 0.7, min: 0.05, max: 1 },
      { name: 'exponent', start: 2, min: 1, max: 16 },
      { name: 'launchUs', start: 3, min: 0, max: 50 },
    ],
    (values) => logLoss(predictGemm(efficiency(values), hardware, relevant)),
  );
  return efficiency(found.values);
}

export function predictPrefillAttention(
  efficiency: AttentionEfficiency,
  hardware: Hardware,
  samples: readonly PrefillSample[],
): StepPrediction[] {
  checkInputs(
    { efficiency, hardware, samples },
    {
      efficiency: is.fields({ prefill: is.number(), decode: is.number() }),
      hardware: is.fields({ name: is.text(), peakTflops: is.number() }),
      samples: is.array(),
    },
  );
  return samples.map(({ heads, headDim, tokens, latencyUs }) => ({
    predictedUs: attentionPrefillUs(efficiency, hardware.peakTflops * 1e6, heads, headDim, tokens),
    measuredUs: latencyUs,
  }));
}

export function predictDecodeAttention(
  efficiency: AttentionEfficiency,
  hardware: Hardware,
  samples: readonly DecodeSample[],
): StepPrediction[] {
  checkInputs(
    { efficiency, hardware, samples },
    {
      efficiency: is.fields({ prefill: is.number(), decode: is.number() }),
      hardware: is.fields({ name: is.text(), peakTflops: is.number() }),
      samples: is.array(),
    },
  );
  return samples.map(({ kvHeads, headDim, requests, contextTokens, latencyUs }) => ({
    predictedUs: attentionDecodeUs(
      efficiency,
      hardware.memoryTbPerS * 1e6,
      kvHeads,
      headDim,
      requests,
      contextTokens,
    ),
    measuredUs: latencyUs,
  }));
}

/**
 * The first decode of each measured table, one request with the shortest context, is up to twice as slow as
 * longer ones after it: it warmed the device up. It is left out of fits and said so.
 */
export function isWarmUp({ requests, contextTokens }: DecodeSample): boolean {
  return requests === 1 && contextTokens <= 1024;
}

/** Efficiency of attention, prefill and decode each fitted to their table. */
export function fitAttention(hardware: Hardware, tables: KernelTables): AttentionEfficiency {
  const prefill = tables.prefill.filter(({ tokens }) => tokens <= prefillTokenRange.most);
  const decode = tables.decode.filter((sample) => !isWarmUp(sample));
  const parameters = [
    { name: 'launchUs', start: 20, min: 0, max: 100 },
    { name: 'share', start: 0.8, min: 0.05, max: 1 },
  ];
  const none = { prefill: 1, decode: 1, prefillLaunchUs: 0, decodeLaunchUs: 0 };
  const ofPrefill = minimise(parameters, ([launch, share]) =>
    logLoss(predictPrefillAttention({ ...none, prefillLaunchUs: launch, prefill: share }, hardware, prefill)),
  );
  const ofDecode = minimise(parameters, ([launch, share]) =>
    logLoss(predictDecodeAttention({ ...none, decodeLaunchUs: launch, decode: share }, hardware, decode)),
  );
  return {
    prefill: ofPrefill.values[1],
    prefillLaunchUs: ofPrefill.values[0],
    decode: ofDecode.values[1],
    decodeLaunchUs: ofDecode.values[0],
  };
}

// A prefill put together from measured kernels alone: for each matrix product the share of the peak that the
// table has at its rows for the nearest shape, for attention the measured time of the nearest number of
// heads. It is what a prefill costs if kernels in 16 bits reach the share of their peak that the table's
// 8-bit ones reach, and nothing else takes time.

interface MeasuredPoint {
  readonly x: number;
  readonly y: number;
}

/** Linear in log x between points, the nearest point outside. */
function interpolate(points: readonly MeasuredPoint[], x: number): number {
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
  checkInputs(
    { tables, hardware, model, shape, tokens },
    {
      tables: is.fields({ gemm: is.array(), prefill: is.array() }),
      hardware: is.fields({ name: is.text(), peakTflops: is.number() }),
      model: is.fields({ name: is.text(), layers: is.number() }),
      shape: is.fields({ layers: is.number(), moeLayers: is.number() }),
      tokens: is.number(),
    },
  );
  let us =
    model.layers * attentionUs(hardware, tables.prefill, model.heads / shape.tp, trueHeadDim(model), tokens);
  for (const { depth, columns, count } of shape.tokenMatrices) {
    const share = peakShare(hardware, tables.gemm, tokens, depth, columns);
    us += (count * 2 * tokens * depth * columns) / (share * shape.peakFlopsPerUs);
  }
  return us;
}
