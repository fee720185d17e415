/**
 * `tierkv latency check`: how far `calibrated` is from what was measured. Each experiment is predicted by a
 * fit on all the others; prefills are held against measured kernels; one run of another GPU is replayed.
 * Beside it stands what upstream's two backends, without the floor, say about the same steps.
 */

import { configError } from '../../runtime/errors.ts';
import {
  latencyDataFile,
  loadCoefficients,
  loadHardware,
  loadKernelTables,
  loadModel,
  readText,
} from '../build/dataFiles.ts';
import { Calibrated, type CalibratedCoefficients } from '../latency/calibrated.ts';
import {
  crossValidate,
  type Fold,
  fitEngine,
  kernelCoefficients,
  type ModelLookup,
  predictRecords,
  prepareRecords,
  type RecordPrediction,
} from '../latency/fit/engineFit.ts';
import {
  composedPrefillUs,
  isWarmUp,
  predictDecodeAttention,
  predictGemm,
  predictPrefillAttention,
  prefillTokenRange,
} from '../latency/fit/kernelFit.ts';
import { regimeOf, type Score, scoreOf, scoresBy } from '../latency/fit/linearFit.ts';
import { readMeasuredRun } from '../latency/fit/measuredRuns.ts';
import { fitRun, type MeasuredRun, replayRun } from '../latency/fit/runFit.ts';
import { batchOf } from '../latency/fit/stepRecords.ts';
import { sumBatch } from '../latency/latencyModel.ts';
import { newLatencyModel } from '../latency/makeModel.ts';
import type { Hardware } from '../latency/modelConfig.ts';
import { engineShape } from '../latency/physics.ts';
import { fittableRuns, loadMeasurements, type Measurements, modelLookup, requireFiniteFit } from './fit.ts';

interface CheckOptions {
  readonly gpu: string;
  readonly steps?: string;
  readonly runs?: string;
  /** Tokens of a KV block of the engine whose step log it is. Default 16. */
  readonly blockTokens?: number;
}

export interface NamedScore extends Score {
  readonly what: string;
}

interface CheckedStep {
  readonly experiment: string;
  readonly model: string;
  readonly regime: string;
  readonly predictedUs: number;
  readonly measuredUs: number;
  readonly floorUs: number;
}

export interface LatencyCheckReport {
  /** Predictions of experiments that the fit did not see. */
  readonly heldOut: readonly NamedScore[];
  /** The same steps by a fit that saw them all, and by upstream's backends. */
  readonly sameSteps: readonly NamedScore[];
  readonly kernels: readonly NamedScore[];
  readonly runs: readonly NamedScore[];
  readonly otherGpu: readonly RunQuantity[];
  readonly belowFloor: { readonly predicted: number; readonly measured: number };
  readonly folds: readonly {
    readonly heldOut: string;
    readonly perLayerUs: number;
    readonly reduceEfficiency: number;
  }[];
  readonly steps: readonly CheckedStep[];
}

const named = (what: string, score: Score): NamedScore => ({ what, ...score });

function heldOutScores(folds: readonly Fold[], lookup: ModelLookup): NamedScore[] {
  const all = folds.flatMap(({ predictions }) => predictions);
  const regime = (p: RecordPrediction): string => regimeOf(p.record.prefillTokens);
  const byModel = scoresBy(all, (p) => `${lookup(p.record.model).name} x ${p.record.tp}, ${regime(p)}`);
  return [
    named('all steps', scoreOf(all)),
    ...[...scoresBy(all, regime)].map(([what, score]) => named(what, score)),
    ...folds.map(({ heldOut, predictions }) => named(`experiment ${heldOut}`, scoreOf(predictions))),
    ...folds.map(({ heldOut, predictions }) => {
      const decodes = predictions.filter(({ record }) => record.prefillTokens === 0);
      return named(`experiment ${heldOut}, decode`, scoreOf(decodes));
    }),
    ...[...byModel].map(([what, score]) => named(what, score)),
  ];
}

function upstreamScores(hardware: Hardware, measurements: Measurements, lookup: ModelLookup): NamedScore[] {
  return (['trained-physics', 'roofline'] as const).map((backend) => {
    const coefficients = loadCoefficients(backend, hardware, undefined);
    const predictions = measurements.steps.map((record) => {
      const setup = { model: lookup(record.model), hardware, tp: record.tp, coefficients, floor: false };
      return {
        predictedUs: newLatencyModel(setup).stepTimeUs(batchOf(record)),
        measuredUs: record.measuredUs,
      };
    });
    return named(`${backend}, all steps`, scoreOf(predictions));
  });
}

/** Models on one GPU, for which a step is kernels and the engine alone. */
const composedModels = [
  'llama-3.1-8b-instruct',
  'llama-2-7b-hf',
  'qwen2.5-7b-instruct',
  'qwen3-14b',
] as const;

function kernelScores(hardware: Hardware, fitted: CalibratedCoefficients): NamedScore[] {
  const tables = loadKernelTables();
  const { least, most } = prefillTokenRange;
  const inRange = tables.gemm.filter(({ rows }) => rows >= least && rows <= most);
  const prefill = tables.prefill.filter(({ tokens }) => tokens <= most);
  const decode = tables.decode.filter((sample) => !isWarmUp(sample));
  const lengths = [128, 256, 512, 1024, 2048, 4096, 8192];
  const composed = composedModels.map((name) => {
    const model = loadModel(name);
    const shape = engineShape(model, hardware, { tp: 1, dp: 1 });
    const calibrated = new Calibrated(shape, 0, fitted);
    const predictions = lengths.map((tokens) => {
      const batch = sumBatch([
        { promptTokens: tokens, progressTokens: 0, newTokens: tokens, outputTokens: 1 },
      ]);
      const measuredUs = composedPrefillUs(tables, hardware, model, shape, tokens);
      return { predictedUs: calibrated.stepUs(batch), measuredUs };
    });
    return named(`step of ${name} against its kernels, 128 to 8192 tokens`, scoreOf(predictions));
  });
  return [
    named('matrix products, 128 to 8192 rows', scoreOf(predictGemm(fitted.gemm8, hardware, inRange))),
    named(
      'attention of prefills to 8192 tokens',
      scoreOf(predictPrefillAttention(fitted.attention, hardware, prefill)),
    ),
    named('attention of decodes', scoreOf(predictDecodeAttention(fitted.attention, hardware, decode))),
    ...composed,
  ];
}

/** The run that ships for another GPU: its model, and the limits its engine ran under. */
export function otherGpuRun(): MeasuredRun {
  const file = 'rtx-pro-6000-run.csv';
  const hardware = loadHardware('RTX-PRO-6000');
  return {
    requests: readMeasuredRun(readText(latencyDataFile(file)), `data/latency/${file}`).requests,
    limits: { requests: 128, tokensPerStep: 2048 },
    shape: engineShape(loadModel('llama-3.1-8b-instruct'), hardware, { tp: 1, dp: 1 }),
    interconnectGbPerS: hardware.interconnectGbPerS,
  };
}

/** @throws {TierKVError} for a file, model or GPU that does not exist. */
export function check(options: CheckOptions): LatencyCheckReport {
  const report = judge(options);
  requireFiniteFit(options.steps ?? options.gpu, report);
  return report;
}

/** Most experiments that are held out in turn, each at the price of a fit on all the others. */
const maxExperiments = 64;

function judge(options: CheckOptions): LatencyCheckReport {
  const hardware = loadHardware(options.gpu);
  const measurements = loadMeasurements(options.steps, options.runs, options.blockTokens);
  const experiments = new Set(measurements.steps.map(({ experiment }) => experiment)).size;
  if (experiments < 2 || experiments > maxExperiments) {
    const problem = `has steps of ${experiments} experiments; each is judged by a fit on the others`;
    throw configError('steps', problem, `Give steps of 2 to ${maxExperiments} experiments.`);
  }
  const lookup = modelLookup();
  const start = kernelCoefficients(hardware, loadKernelTables());
  const runs = fittableRuns(measurements, lookup);
  const folds = crossValidate(start, hardware, measurements.steps, runs, lookup);
  const fitted = fitEngine(start, hardware, [...measurements.steps, ...runs], lookup);
  const predict = (records: typeof measurements.steps): RecordPrediction[] =>
    predictRecords(fitted, hardware, prepareRecords(records, hardware, lookup));
  const all = folds.flatMap(({ predictions }) => predictions);

  const run = otherGpuRun();
  const half = Math.floor(run.requests.length / 2);
  const ofHalf = fitRun(run, fitted, half, 1);
  return {
    heldOut: heldOutScores(folds, lookup),
    sameSteps: [
      named('calibrated, all steps, each experiment held out', scoreOf(all)),
      named('calibrated, all steps, fitted on them', scoreOf(predict(measurements.steps))),
      ...upstreamScores(hardware, measurements, lookup),
    ],
    kernels: kernelScores(hardware, fitted),
    runs: predict(measurements.runs).map((p) => {
      const seen = runs.some(({ experiment }) => experiment === p.record.experiment);
      return named(`${p.record.experiment}${seen ? ' (fitted on)' : ''}`, scoreOf([p]));
    }),
    otherGpu: [
      ...runQuantities(run, fitted, 'coefficients of H100', 0),
      ...runQuantities(run, ofHalf, 'fitted on its first half, judged on the second', half),
    ],
    belowFloor: {
      predicted: all.filter(({ predictedUs, floorUs }) => predictedUs < floorUs).length,
      measured: all.filter(({ measuredUs, floorUs }) => measuredUs < floorUs).length,
    },
    folds: folds.map(({ heldOut, coefficients }) => ({
      heldOut,
      perLayerUs: coefficients.engine.perLayerUs,
      reduceEfficiency: coefficients.engine.reduceEfficiency,
    })),
    steps: all.map(({ record, predictedUs, measuredUs, floorUs }) => ({
      experiment: record.experiment,
      model: lookup(record.model).name,
      regime: regimeOf(record.prefillTokens),
      predictedUs,
      measuredUs,
      floorUs,
    })),
  };
}

// How far the replay of a measured run is from the run: times to first token, between tokens, and of whole
// requests.

export interface RunQuantity {
  readonly what: string;
  readonly measuredMeanMs: number;
  readonly replayedMeanMs: number;
  readonly meanErrorPercent: number;
  readonly p90ErrorPercent: number;
}

function p90(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.ceil(sorted.length * 0.9) - 1];
}

function mean(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}

/** Errors of a replay on the requests from `first` on; quantities that no request has are left out. */
export function runQuantities(
  run: MeasuredRun,
  coefficients: CalibratedCoefficients,
  label: string,
  first: number,
): RunQuantity[] {
  const times = replayRun(run, coefficients);
  const judged = run.requests.map((request, i) => ({ request, replayed: times[i] })).slice(first);
  const quantity = (
    what: string,
    of: (
      at: { firstTokenUs: number; lastTokenUs: number },
      request: MeasuredRun['requests'][number],
    ) => number,
    from: typeof judged = judged,
  ): RunQuantity[] => {
    const measured = from.map(({ request }) => of(request, request) / 1000);
    const replayed = from.map((pair) => of(pair.replayed, pair.request) / 1000);
    if (mean(measured) <= 0 || p90(measured) <= 0 || from.length === 0) return []; // nothing to be off from
    const value: RunQuantity = {
      what: `${label}: ${what}`,
      measuredMeanMs: mean(measured),
      replayedMeanMs: mean(replayed),
      meanErrorPercent: 100 * (mean(replayed) / mean(measured) - 1),
      p90ErrorPercent: 100 * (p90(replayed) / p90(measured) - 1),
    };
    return [value];
  };
  const several = judged.filter(({ request }) => request.outputTokens > 1);
  return [
    ...quantity('TTFT', (at, request) => at.firstTokenUs - request.arrivalUs),
    ...quantity(
      'TPOT',
      (at, request) => (at.lastTokenUs - at.firstTokenUs) / (request.outputTokens - 1),
      several,
    ),
    ...quantity('latency', (at, request) => at.lastTokenUs - request.arrivalUs),
  ];
}
