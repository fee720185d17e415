/**
 * `tierkv latency fit`: coefficients of `calibrated` or `linear` from measured steps, written as a
 * coefficient file.
 */

import { configError, TierKVError } from '../../runtime/errors.ts';
import { latencyDataFile, loadHardware, loadKernelTables, loadModel, readText } from '../build/dataFiles.ts';
import type { CalibratedCoefficients } from '../latency/calibrated.ts';
import { parseLinkCalibration } from '../latency/capacity.ts';
import { coefficientSchema } from '../latency/coefficients.ts';
import {
  fitEngine,
  kernelCoefficients,
  type ModelLookup,
  predictRecords,
  prepareRecords,
} from '../latency/fit/engineFit.ts';
import { fitLinear, type Score, scoreOf } from '../latency/fit/linearFit.ts';
import {
  averageStep,
  parseEngineLog,
  parseRunSummaries,
  parseStepRecords,
  type StepRecord,
  usualBlockTokens,
} from '../latency/fit/stepRecords.ts';
import { linearTerms } from '../latency/linear.ts';
import type { ModelConfig } from '../latency/modelConfig.ts';

interface FitOptions {
  readonly backend: 'calibrated' | 'linear';
  readonly gpu: string;
  readonly steps?: string;
  readonly runs?: string;
  /** Experiments that are kept out of the fit. */
  readonly holdOut: readonly string[];
  readonly links?: string;
  /** Tokens of a KV block of the engine whose step log it is. Default 16. */
  readonly blockTokens?: number;
}

interface FitReport {
  /** Content of the coefficient file. */
  readonly file: Record<string, unknown>;
  readonly fitted: Score;
  readonly heldOut?: Score;
}

/** Numbers as they are kept in files: six significant digits are more than any fit here can tell. */
export function rounded(value: unknown): unknown {
  if (typeof value === 'number') return Number(value.toPrecision(6));
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, rounded(inner)]));
}

/**
 * Refuses a fit that ended in no number, as measurements beyond all measure make it end.
 * @throws {TierKVError} TKV_INPUT naming the file.
 */
export function requireFiniteFit(file: string, value: unknown): void {
  if (typeof value === 'number' && !Number.isFinite(value)) {
    const problem = `${file}: the fit gives no finite numbers`;
    throw new TierKVError('TKV_INPUT', `${problem}. Leave out the measurements that cannot be right`, {
      path: file,
    });
  }
  if (typeof value !== 'object' || value === null) return;
  for (const inner of Object.values(value)) requireFiniteFit(file, inner);
}

/** @throws {TierKVError} for a file, model, GPU or experiment that does not exist, or nothing left to fit. */
export function fitCoefficients(options: FitOptions): FitReport {
  const report = fitSteps(options);
  requireFiniteFit(options.steps ?? options.gpu, report);
  return report;
}

function fitSteps(options: FitOptions): FitReport {
  const hardware = loadHardware(options.gpu);
  const measurements = loadMeasurements(options.steps, options.runs, options.blockTokens);
  const lookup = modelLookup();
  const experiments = [...new Set(measurements.steps.map(({ experiment }) => experiment))];
  for (const name of options.holdOut) {
    if (experiments.includes(name)) continue;
    throw configError('holdOut', `names "${name}"`, `The records have: ${experiments.join(', ')}.`);
  }
  const judged = measurements.steps.filter(({ experiment }) => options.holdOut.includes(experiment));
  const steps = measurements.steps.filter(({ experiment }) => !options.holdOut.includes(experiment));
  if (steps.length === 0) {
    throw configError('steps', 'holds no step to fit to', 'Give steps, or hold out fewer experiments.');
  }
  const links = options.links === undefined ? {} : linksOf(options.links);
  const about = {
    experiments: [...new Set(steps.map(({ experiment }) => experiment))].join(', '),
    heldOut: options.holdOut.join(', '),
  };
  if (options.backend === 'linear') {
    const { coefficients, predict } = fitLinear(steps);
    return {
      file: {
        schema: coefficientSchema,
        backend: 'linear',
        fit: about,
        alpha: { alpha0: 0, alpha1: 0, alpha2: 0 },
        beta: rounded(Object.fromEntries(linearTerms.map((term, i) => [term, coefficients.beta[i] ?? 0]))),
      },
      fitted: scoreOf(predict(steps)),
      ...(judged.length > 0 ? { heldOut: scoreOf(predict(judged)) } : {}),
    };
  }
  const runs = fittableRuns(measurements, lookup);
  const start = kernelCoefficients(hardware, loadKernelTables());
  const coefficients = rounded(
    fitEngine(start, hardware, [...steps, ...runs], lookup),
  ) as CalibratedCoefficients;
  const score = (records: typeof steps): Score =>
    scoreOf(predictRecords(coefficients, hardware, prepareRecords(records, hardware, lookup)));
  return {
    file: {
      schema: coefficientSchema,
      backend: 'calibrated',
      gpu: hardware.name,
      fit: { ...about, runs: runs.map(({ experiment }) => experiment).join(', ') },
      ...coefficients,
      ...links,
    },
    fitted: score(steps),
    ...(judged.length > 0 ? { heldOut: score(judged) } : {}),
  };
}

function linksOf(file: string): { links: unknown } {
  return { links: rounded(parseLinkCalibration(readText(file), file).links) };
}

// Step records and run totals, from files or as shipped for H100. The log of vLLM's scheduler and this
// project's own format are told apart by their headers.

export interface Measurements {
  readonly steps: readonly StepRecord[];
  /** Average steps of whole runs. */
  readonly runs: readonly StepRecord[];
}

/**
 * @param steps, @param runs paths; what is not given is what ships.
 * @param blockTokens of the blocks that a step log of vLLM counts
 */
export function loadMeasurements(
  steps: string | undefined,
  runs: string | undefined,
  blockTokens: number = usualBlockTokens,
): Measurements {
  const stepText = readText(steps ?? latencyDataFile('h100-steps.csv.gz'));
  const stepFile = steps ?? 'data/latency/h100-steps.csv.gz';
  const raw = stepText.slice(0, stepText.indexOf('\n')).includes('step.ts_start_ns');
  if (!Number.isSafeInteger(blockTokens) || blockTokens < 1) {
    throw configError('blockTokens', `is ${blockTokens}`, 'Give an integer of at least 1.');
  }
  if (!raw && blockTokens !== usualBlockTokens) {
    const problem = `is ${blockTokens}, and ${stepFile} counts tokens, not blocks`;
    throw configError('blockTokens', problem, "Leave it out: it is for a step log of vLLM's scheduler.");
  }
  const parsed = raw ? parseEngineLog(stepText, stepFile, blockTokens) : parseStepRecords(stepText, stepFile);
  const useRuns = runs !== undefined || steps === undefined;
  const runText = useRuns ? readText(runs ?? latencyDataFile('h100-runs.csv')) : undefined;
  const summaries =
    runText === undefined ? [] : parseRunSummaries(runText, runs ?? 'data/latency/h100-runs.csv');
  return { steps: parsed, runs: summaries.map(averageStep) };
}

/** Descriptions of the models that records name, each read once. */
export function modelLookup(): ModelLookup {
  const known = new Map<string, ModelConfig>();
  return (name) => {
    const found = known.get(name) ?? loadModel(name);
    known.set(name, found);
    return found;
  };
}

/**
 * Runs that a fit may use: of models without step records, so that a model is judged by steps alone. Mixtures
 * of experts stay out, since what they add to a layer has no parameter here.
 */
export function fittableRuns({ steps, runs }: Measurements, lookup: ModelLookup): StepRecord[] {
  const judged = new Set(steps.map(({ model }) => lookup(model).name));
  return runs.filter(({ model }) => !judged.has(lookup(model).name) && lookup(model).experts === 0);
}
