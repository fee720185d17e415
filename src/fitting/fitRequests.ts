/**
 * `tierkv latency fit --requests`: coefficients of a GPU from the requests of one measured run, when no steps
 * were logged. The first share of the requests is fitted to, the rest judges; what is written is the fit on
 * the first share alone.
 */

import { loadHardware, loadKernelTables, loadModel, readText } from '../files/dataFiles.ts';
import { requireFraction, requireInteger, TierKVError } from '../runtime/errors.ts';
import { coefficientSchema } from '../sim/latency/coefficients.ts';
import {
  fitEngine,
  fitRun,
  kernelCoefficients,
  parseMeasuredRequests,
} from '../sim/latency/fit/engineFit.ts';
import { engineShape } from '../sim/latency/physics.ts';
import { latencyOptionNames, withOptionNames } from '../simulate/optionNames.ts';
import { type RunQuantity, runQuantities } from './check.ts';
import { fittableRuns, loadMeasurements, modelLookup, requireFiniteFit, rounded } from './fit.ts';

export interface FitRequestsOptions {
  readonly requests: string;
  readonly gpu: string;
  readonly model: string;
  readonly tp: number;
  readonly maxNumSeqs: number;
  readonly maxNumBatchedTokens: number;
  /** Share of the requests, in order of arrival, that the fit sees. */
  readonly fitShare: number;
}

export interface FitRequestsReport {
  readonly file: Record<string, unknown>;
  readonly fitted: number;
  readonly judged: readonly RunQuantity[];
}

/** @throws {TierKVError} for a file, model or GPU that does not exist, or too few requests. */
export function fitToRequests(options: FitRequestsOptions): FitRequestsReport {
  const report = withOptionNames(latencyOptionNames, () => fitOneRun(options));
  requireFiniteFit(options.requests, report);
  return report;
}

function fitOneRun(options: FitRequestsOptions): FitRequestsReport {
  const hardware = loadHardware(options.gpu);
  const requests = parseMeasuredRequests(readText(options.requests), options.requests);
  const fitted = Math.floor(requests.length * requireFraction('--fit-share', options.fitShare));
  if (fitted < 1) {
    const problem = `${options.requests} leaves ${fitted} requests to fit to`;
    throw new TierKVError('TKV_INPUT', `${problem}. Give more requests or a larger --fit-share.`, {
      path: options.requests,
    });
  }
  const h100 = loadHardware('H100');
  const measurements = loadMeasurements(undefined, undefined);
  const lookup = modelLookup();
  const steps = [...measurements.steps, ...fittableRuns(measurements, lookup)];
  const start = fitEngine(kernelCoefficients(h100, loadKernelTables()), h100, steps, lookup);
  const run = {
    requests,
    limits: {
      requests: requireInteger('--max-num-seqs', options.maxNumSeqs, 1, 65_536),
      tokensPerStep: requireInteger('--max-num-batched-tokens', options.maxNumBatchedTokens, 1, 10_000_000),
    },
    shape: engineShape(loadModel(options.model), hardware, {
      tp: requireInteger('--tp', options.tp, 1, 1024),
      dp: 1,
    }),
    interconnectGbPerS: hardware.interconnectGbPerS,
  };
  const coefficients = fitRun(run, start, fitted);
  return {
    file: {
      schema: coefficientSchema,
      backend: 'calibrated',
      gpu: hardware.name,
      fit: { requests: `the first ${fitted} of ${requests.length}`, model: options.model, tp: options.tp },
      ...(rounded(coefficients) as object),
    },
    fitted,
    judged: fitted < requests.length ? runQuantities(run, coefficients, 'held out', fitted) : [],
  };
}
