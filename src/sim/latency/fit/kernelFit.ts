/**
 * Fits kernel efficiencies to tables of measured kernels and says how far the fit is from them. The tables:
 * matrix products (m, k, n, latency_us), attention prefill (heads, kv_heads, head_dim, seq_len, latency_us)
 * and attention decode (also batch_size and kv_len).
 */

import type { Hardware } from '../description/hardware.ts';
import {
  type AttentionEfficiency,
  attentionDecodeUs,
  attentionPrefillUs,
  type GemmEfficiency,
  gemmUs,
} from '../physics/kernels.ts';
import { readTable } from './measured/table.ts';
import { minimise } from './minimise.ts';
import type { Prediction } from './score.ts';

export interface GemmSample {
  readonly rows: number;
  readonly depth: number;
  readonly columns: number;
  readonly latencyUs: number;
}

export interface PrefillSample {
  readonly heads: number;
  readonly headDim: number;
  readonly tokens: number;
  readonly latencyUs: number;
}

export interface DecodeSample {
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
  return [...readTable(text, file, ['m', 'k', 'n', 'latency_us'])].map((row) => ({
    rows: row.number('m'),
    depth: row.number('k'),
    columns: row.number('n'),
    latencyUs: row.positive('latency_us'),
  }));
}

export function parsePrefillTable(text: string, file: string): PrefillSample[] {
  return [...readTable(text, file, ['heads', 'head_dim', 'seq_len', 'latency_us'])].map((row) => ({
    heads: row.number('heads'),
    headDim: row.number('head_dim'),
    tokens: row.number('seq_len'),
    latencyUs: row.positive('latency_us'),
  }));
}

export function parseDecodeTable(text: string, file: string): DecodeSample[] {
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

function logLoss(predictions: readonly Prediction[]): number {
  let sum = 0;
  for (const { predictedUs, measuredUs } of predictions) sum += Math.log(predictedUs / measuredUs) ** 2;
  return sum / predictions.length;
}

/** Products in 8 bits, operands and weights a byte each, results two. */
export function predictGemm(
  efficiency: GemmEfficiency,
  hardware: Hardware,
  samples: readonly GemmSample[],
): Prediction[] {
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
): Prediction[] {
  return samples.map(({ heads, headDim, tokens, latencyUs }) => ({
    predictedUs: attentionPrefillUs(efficiency, hardware.peakTflops * 1e6, heads, headDim, tokens),
    measuredUs: latencyUs,
  }));
}

export function predictDecodeAttention(
  efficiency: AttentionEfficiency,
  hardware: Hardware,
  samples: readonly DecodeSample[],
): Prediction[] {
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
