/**
 * Fits the coefficients of a GPU to one measured run of an engine, of which only the requests' times are
 * known: the run is replayed, and the shares of bandwidth and compute and the time a layer adds are moved
 * until the replay agrees. Requests before a given one are fitted to; the rest judge. They belong to one run
 * and share its load, so this is a weaker test than another run would be.
 */

import { Calibrated, type CalibratedCoefficients } from '../backends/calibrated.ts';
import type { EngineShape } from '../physics/engineShape.ts';
import { FlooredModel, PhysicalFloor } from '../physics/floor.ts';
import { minimise } from './minimise.ts';
import {
  type BatchLimits,
  type MeasuredRequest,
  type RequestTimes,
  replayRequests,
} from './requestReplay.ts';

export interface MeasuredRun {
  readonly requests: readonly MeasuredRequest[];
  readonly limits: BatchLimits;
  readonly shape: EngineShape;
  readonly interconnectGbPerS: number;
}

/** The run as these coefficients have it. */
export function replayRun(run: MeasuredRun, coefficients: CalibratedCoefficients): RequestTimes[] {
  const bare = new Calibrated(run.shape, run.interconnectGbPerS, coefficients);
  const model = new FlooredModel(bare, new PhysicalFloor(run.shape));
  return replayRequests(run.requests, model, run.limits);
}

function withShares(
  start: CalibratedCoefficients,
  [streaming, compute, perLayerUs]: readonly number[],
): CalibratedCoefficients {
  return {
    ...start,
    gemm16: { ...start.gemm16, memory: streaming, compute: compute },
    attention: { ...start.attention, decode: streaming },
    engine: { ...start.engine, perLayerUs: perLayerUs },
  };
}

/**
 * Mean distance of time per output token and of whole latency from the measured ones, relative, over `fitted`
 * requests.
 */
function distance(run: MeasuredRun, times: readonly RequestTimes[], fitted: number): number {
  let sum = 0;
  for (let i = 0; i < fitted; i++) {
    const measured = run.requests[i];
    const replayed = times[i];
    // a request of one token has no time between tokens
    const decodeUs = measured.lastTokenUs - measured.firstTokenUs;
    const decode = decodeUs > 0 ? (replayed.lastTokenUs - replayed.firstTokenUs) / decodeUs : 1;
    const whole = (replayed.lastTokenUs - measured.arrivalUs) / (measured.lastTokenUs - measured.arrivalUs);
    sum += Math.abs(decode - 1) + Math.abs(whole - 1);
  }
  return sum / fitted;
}

/**
 * @param start coefficients of another GPU to begin from.
 * @param fitted number of requests, from the first, that the fit sees.
 */
export function fitRun(
  run: MeasuredRun,
  start: CalibratedCoefficients,
  fitted: number,
): CalibratedCoefficients {
  const { gemm16, engine } = start;
  const found = minimise(
    [
      { name: 'streaming', start: gemm16.memory, min: 0.2, max: 1 },
      { name: 'compute', start: gemm16.compute, min: 0.1, max: 1 },
      { name: 'perLayerUs', start: engine.perLayerUs, min: 0, max: 500 },
    ],
    (values) => distance(run, replayRun(run, withShares(start, values)), fitted),
  );
  return withShares(start, found.values);
}
