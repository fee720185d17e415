/**
 * How far the replay of a measured run is from the run: times to first token, between tokens, and of whole
 * requests.
 */

import { type CalibratedCoefficients, type MeasuredRun, replayRun } from '../../sim/latency/index.ts';

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
