/**
 * Coefficients of a GPU from the requests of one measured run, when no steps
 * were logged. The first share of the requests is fitted to, the rest judges; what is written is the fit on
 * the first share alone. A fit that does not fit is refused: the run was then served in another way than was said.
 */

import { configError, namedError, requireFraction, requireInteger } from '../../runtime/errors.ts';
import { loadCoefficients, loadHardware, loadKernelTables, loadModel, readText } from '../build/dataFiles.ts';
import type { CalibratedCoefficients } from '../latency/calibrated.ts';
import { coefficientSchema } from '../latency/coefficients.ts';
import { engineMemory } from '../latency/engineMemory.ts';
import { fitEngine, kernelCoefficients } from '../latency/fit/engineFit.ts';
import { type MeasuredRunFile, readMeasuredRun } from '../latency/fit/measuredRuns.ts';
import { fitRun, type MeasuredRun, replayRun, runDistance } from '../latency/fit/runFit.ts';
import type { Hardware, ModelConfig } from '../latency/modelConfig.ts';
import { engineShape } from '../latency/physics.ts';
import { type RunQuantity, runQuantities } from './check.ts';
import { fittableRuns, loadMeasurements, modelLookup, requireFiniteFit, rounded } from './fit.ts';

/** How a run was served. */
export interface ServedBy {
  readonly gpu: string;
  readonly model: string;
  readonly tp: number;
  /** Ranks of a mixture of experts, or engines of a dense model that requests are dealt to in turn. */
  readonly dp: number;
  readonly maxSequences: number;
  readonly maxBatchedTokens: number;
  readonly memoryUtilization: number;
  readonly blockTokens: number;
  /** KV blocks of the engine, where its log says them; else they follow from the GPU and the model. */
  readonly kvBlocks?: number;
}

export interface FitRequestsOptions extends ServedBy {
  readonly requests: string;
  /** Share of the requests, in order of arrival, that the fit sees. */
  readonly fitShare: number;
}

interface FitRequestsReport {
  readonly file: Record<string, unknown>;
  readonly fitted: number;
  readonly judged: readonly RunQuantity[];
  readonly read: MeasuredRunFile;
  /** KV blocks that the replay had. */
  readonly kvBlocks: number;
  /** Peaks of the GPU's file of which the fit took all: the GPU is faster than its file says. */
  readonly atPeak: readonly PeakField[];
}

type PeakField = 'peakTflops';

/** Share of a peak from which on a fit stopped at it. */
const wholePeak = 0.99;

/** Peaks that are used up. A run that streams at its peak says nothing: many fit about as well with all of the bandwidth. */
function peaksTaken({ gemm16 }: CalibratedCoefficients): PeakField[] {
  return gemm16.compute >= wholePeak ? ['peakTflops'] : [];
}

/** Mean error of the fitted requests from which on a fit is refused. */
const mostError = 0.25;

/** Told of each replay of the run: the share of the work that is done, about, and how many there were. */
type FitProgress = (share: number, replays: number) => void;

/** @throws {TierKVError} for a file, model or GPU that does not exist, too few requests, or a fit that does not fit. */
export function fitToRequests(options: FitRequestsOptions, progress?: FitProgress): FitRequestsReport {
  const report = fitOneRun(options, progress);
  requireFiniteFit(options.requests, report.file);
  return report;
}

/** The run with what served it. */
export function measuredRun(
  requests: MeasuredRun['requests'],
  by: ServedBy,
): MeasuredRun & { readonly kvBlocks: number } {
  const hardware = loadHardware(by.gpu);
  const model = loadModel(by.model);
  const tp = requireInteger('tp', by.tp, 1, 1024);
  const dp = requireInteger('dp', by.dp, 1, 1024);
  const isMoe = model.experts > 0;
  const kvBlocks = by.kvBlocks ?? blocksOf(model, hardware, by);
  const blockTokens = requireInteger('blockTokens', by.blockTokens, 1, 65_536);
  const ranks = isMoe ? dp : 1; // of one engine, which its batch is spread over
  const ofRank = requireInteger('maxBatchedTokens', by.maxBatchedTokens, 1, 10_000_000);
  return {
    requests,
    kvBlocks,
    limits: {
      requests: ranks * requireInteger('maxSequences', by.maxSequences, 1, 65_536),
      tokensPerStep: ranks * ofRank,
      ...(ranks === 1 ? {} : { tokensPerPrompt: ofRank }), // no prompt lies on two ranks
      kvTokens: kvBlocks * blockTokens,
      blockTokens,
      replicas: isMoe ? 1 : dp,
    },
    shape: engineShape(model, hardware, { tp, dp: ranks }),
    interconnectGbPerS: hardware.interconnectGbPerS,
  };
}

function blocksOf(model: ModelConfig, hardware: Hardware, by: ServedBy): number {
  const { tp, dp, maxSequences, maxBatchedTokens, memoryUtilization, blockTokens } = by;
  return engineMemory(model, hardware, {
    tp,
    dp: model.experts > 0 ? dp : 1,
    blockTokens,
    memoryUtilization,
    maxSequences,
    maxBatchedTokens,
  }).blocks;
}

/** Coefficients to begin from: the GPU's own, where there are some, else those of H100 on this GPU's links. */
function startOf(hardware: Hardware): CalibratedCoefficients {
  const h100 = loadHardware('H100');
  const measurements = loadMeasurements(undefined, undefined);
  const lookup = modelLookup();
  const steps = [...measurements.steps, ...fittableRuns(measurements, lookup)];
  const start = fitEngine(kernelCoefficients(h100, loadKernelTables()), h100, steps, lookup);
  if (hardware.reduceEfficiency === 0) return start;
  const { reduceEfficiency, reduceLatencyUs } = hardware;
  return { ...start, engine: { ...start.engine, reduceEfficiency, reduceLatencyUs } };
}

function fitOneRun(options: FitRequestsOptions, progress: FitProgress | undefined): FitRequestsReport {
  const hardware = loadHardware(options.gpu);
  const read = readMeasuredRun(readText(options.requests), options.requests);
  const { requests } = read;
  const fitted = Math.floor(requests.length * requireFraction('fitShare', options.fitShare));
  if (fitted < 1) {
    const problem = `${options.requests} leaves ${fitted} requests to fit to`;
    throw namedError(
      'TKV_INPUT',
      { path: options.requests },
      (name) => `${problem}. Give more requests or a larger ${name('fitShare')}.`,
    );
  }
  const { kvBlocks, ...run } = measuredRun(requests, options);
  requireRoomFor(run, options, kvBlocks);
  const coefficients = rounded(
    fitRun(run, startOf(hardware), fitted, undefined, progress),
  ) as CalibratedCoefficients;
  requireGoodFit(run, coefficients, fitted, options);
  return {
    file: {
      schema: coefficientSchema,
      backend: 'calibrated',
      gpu: hardware.name,
      fit: {
        requests: `the first ${fitted} of ${requests.length}`,
        model: options.model,
        tp: options.tp,
        dp: options.dp,
      },
      ...coefficients,
    },
    fitted,
    judged: fitted < requests.length ? runQuantities(run, coefficients, 'held out', fitted) : [],
    read,
    kvBlocks,
    atPeak: peaksTaken(coefficients),
  };
}

/** A request that the engine had and that does not fit into the memory that was said shows that it was another. */
function requireRoomFor(
  { requests, limits }: MeasuredRun,
  options: FitRequestsOptions,
  kvBlocks: number,
): void {
  const longest = Math.max(...requests.map(({ promptTokens, outputTokens }) => promptTokens + outputTokens));
  if (longest <= (limits.kvTokens ?? Infinity)) return;
  const problem = `is ${kvBlocks} of ${options.blockTokens} tokens, and a request of ${options.requests} has ${longest} tokens`;
  throw configError('kvBlocks', problem, 'Give the number of blocks that the log of the engine says.');
}

/**
 * How much times between tokens differ among requests that had equally many others beside them: the longest tenth over the
 * shortest. Near 1 where the server did nothing else; no fit can be better than this.
 */
function unrest({ requests }: MeasuredRun, fitted: number): number {
  const byCompany = new Map<number, number[]>();
  const seen = requests.slice(0, fitted).filter(({ outputTokens }) => outputTokens > 1);
  for (const { firstTokenUs, lastTokenUs, outputTokens } of seen) {
    const middleUs = (firstTokenUs + lastTokenUs) / 2;
    const company = seen.filter((one) => one.arrivalUs <= middleUs && one.lastTokenUs >= middleUs).length;
    const gaps = byCompany.get(company) ?? [];
    gaps.push((lastTokenUs - firstTokenUs) / (outputTokens - 1));
    byCompany.set(company, gaps);
  }
  const [most = []] = [...byCompany.values()].sort((a, b) => b.length - a.length);
  const sorted = most.toSorted((a, b) => a - b);
  if (sorted.length < 5) return 1;
  return sorted[Math.floor(0.9 * sorted.length)] / Math.max(1, sorted[Math.floor(0.1 * sorted.length)]);
}

/** Factor from which on a server is said to have done other work. */
const muchUnrest = 1.5;

function requireGoodFit(
  run: MeasuredRun,
  coefficients: CalibratedCoefficients,
  fitted: number,
  options: FitRequestsOptions,
): void {
  const error = runDistance(run, replayRun(run, coefficients), 0, fitted) / 2;
  if (error <= mostError) return;
  const factor = unrest(run, fitted);
  const restless =
    factor < muchUnrest
      ? ''
      : `Times between tokens of requests with equally many beside them differ by a factor of ${factor.toFixed(1)}: the ` +
        'server, or its machine, did other work at the time, and no model of time follows that. Observe it when it is ' +
        'quiet, or at a lower rate. Otherwise: ';
  const compared = ['model', 'gpu', 'tp', 'dp', 'maxSequences', 'maxBatchedTokens'];
  throw namedError(
    'TKV_INPUT',
    { path: options.requests },
    (name) =>
      `${name(options.requests)}: the fit does not fit: it is off by ${(100 * error).toFixed(0)}% on the very requests it ` +
      `was fitted to, more than ${100 * mostError}%. ${restless}The run was served in another way than was said: compare ` +
      `${compared.map(name).join(', ')} and ${name('kvBlocks')} with the log of the engine, and see that the file has ` +
      'cached_tokens where the prefix cache was on',
  );
}

/**
 * The run as these coefficients predict it, with all requests judged.
 * @param file of coefficients; as shipped unless given
 */
export function predictedRun(
  requests: MeasuredRun['requests'],
  by: ServedBy,
  file: string | undefined,
): { readonly run: MeasuredRun; readonly coefficients: CalibratedCoefficients; readonly kvBlocks: number } {
  const hardware = loadHardware(by.gpu);
  const loaded = loadCoefficients('calibrated', hardware, file);
  const { kvBlocks, ...run } = measuredRun(requests, by);
  return { run, kvBlocks, coefficients: loaded.values as CalibratedCoefficients };
}
