/**
 * `tierkv latency predict`: how long a batch takes on a GPU, what that is made of, and how far above the
 * floor it lies.
 */

import { requireFraction, requireInteger, requirePositive, TierKVError } from '../../runtime/errors.ts';
import {
  automaticBlockCount,
  engineShape,
  kvBytesPerToken,
  type LatencyBackend,
  type MoeCommBackend,
  newLatencyModel,
  PhysicalFloor,
  type StepPart,
} from '../../sim/latency/index.ts';
import { printable, renderTable } from '../output/index.ts';
import { withOptionNames } from '../process/index.ts';
import { parseBatch } from './batchText.ts';
import { loadCoefficients, loadHardware, loadModel, modelDefaults } from './dataFiles.ts';

export interface PredictOptions {
  readonly model: string;
  readonly gpu?: string;
  readonly tp?: number;
  readonly dp: number;
  readonly backend: LatencyBackend;
  readonly coefficients?: string;
  readonly moeCommBackend: MoeCommBackend;
  readonly batch: readonly string[];
  readonly floor: boolean;
  readonly blockTokens: number;
  readonly memoryUtilization: number;
}

export interface BatchPrediction {
  readonly batch: string;
  readonly stepUs: number;
  readonly floorUs: number;
  readonly parts: readonly StepPart[];
}

export interface PredictReport {
  readonly model: string;
  readonly gpu: string;
  readonly tp: number;
  readonly dp: number;
  readonly backend: string;
  readonly floor: boolean;
  readonly kvBytesPerToken: number;
  /** Absent when the formula does not describe the model or nothing fits; `kvBlocksProblem` says which. */
  readonly kvBlocks?: number;
  readonly kvBlocksProblem?: string;
  readonly queueingUsOf512Tokens: number;
  readonly outputTokenProcessingUs: number;
  readonly postDecodeOverheadUs: number;
  readonly batches: readonly BatchPrediction[];
}

/** The options behind the names that the library gives to what it checks. */
export const engineOptions: Readonly<Record<string, string>> = {
  tp: '--tp',
  dp: '--dp',
  blockTokens: '--block-size',
  memoryUtilization: '--gpu-memory-utilization',
  model: '--model',
  GPU: '--gpu',
};

/** @throws {TierKVError} for anything unknown or out of range. */
export function predict(options: PredictOptions): PredictReport {
  return withOptionNames(engineOptions, () => predictBatches(options));
}

function predictBatches(options: PredictOptions): PredictReport {
  const model = loadModel(options.model);
  const defaults = modelDefaults(model.name);
  const hardware = loadHardware(options.gpu ?? defaults?.gpu ?? 'H100');
  const tp = requireInteger('--tp', options.tp ?? defaults?.tp ?? 1, 1, 1024);
  const dp = requireInteger('--dp', options.dp, 1, 1024);
  const coefficients = loadCoefficients(options.backend, hardware, options.coefficients);
  const { floor, moeCommBackend } = options;
  const latency = newLatencyModel({ model, hardware, tp, dp, coefficients, moeCommBackend, floor });
  const physics = new PhysicalFloor(engineShape(model, hardware, { tp, dp }));
  const batches = options.batch.map((text): BatchPrediction => {
    const sums = parseBatch(text);
    return {
      batch: text,
      stepUs: latency.stepTimeUs(sums),
      floorUs: physics.floorUs(sums),
      parts: latency.explain(sums),
    };
  });
  let blocks: { kvBlocks: number } | { kvBlocksProblem: string };
  const blockTokens = requireInteger('--block-size', options.blockTokens, 1, 2 ** 20);
  const memoryUtilization = requireFraction(
    '--gpu-memory-utilization',
    requirePositive('--gpu-memory-utilization', options.memoryUtilization),
  );
  try {
    const limits = { tp, dp, blockTokens, memoryUtilization, adapterBytes: 0 };
    blocks = { kvBlocks: automaticBlockCount(model, hardware, limits) };
  } catch (error) {
    if (!(error instanceof TierKVError)) throw error;
    blocks = { kvBlocksProblem: error.message };
  }
  return {
    model: model.name,
    gpu: hardware.name,
    tp,
    dp,
    backend: latency.backend,
    floor,
    kvBytesPerToken: kvBytesPerToken(model, tp),
    ...blocks,
    queueingUsOf512Tokens: latency.queueingTimeUs(512),
    outputTokenProcessingUs: latency.outputTokenProcessingUs,
    postDecodeOverheadUs: latency.postDecodeOverheadUs,
    batches,
  };
}

const ms = (us: number): string => (us / 1000).toFixed(3);

export function renderPrediction(report: PredictReport): string {
  const { model, gpu, tp, dp, backend, kvBlocks, kvBlocksProblem } = report;
  const engine = `${gpu} x ${tp}${dp > 1 ? ` x ${dp} ranks` : ''}`;
  const head =
    `${printable(`${model} on ${engine}`)}, ` +
    `${backend}${report.floor ? '' : ', without the physical floor'}\n`;
  const rows = report.batches.map(({ batch, stepUs, floorUs, parts }) => [
    batch,
    ms(stepUs),
    ms(floorUs),
    (stepUs / Math.max(floorUs, 1e-9)).toFixed(2),
    parts
      .filter(({ us }) => us >= 0.5)
      .map(({ part, us }) => `${part} ${ms(us)}`)
      .join(', '),
  ]);
  const table = renderTable(
    [
      { title: 'batch' },
      { title: 'step ms', align: 'right' },
      { title: 'floor ms', align: 'right' },
      { title: 'step/floor', align: 'right' },
      { title: 'made of (ms)' },
    ],
    rows,
  );
  const blocks =
    kvBlocks === undefined
      ? `no automatic block count: ${printable(kvBlocksProblem ?? '')}`
      : `KV blocks ${kvBlocks}`;
  return `${head}${table}KV bytes/token/GPU ${report.kvBytesPerToken}, ${blocks}\n`;
}
