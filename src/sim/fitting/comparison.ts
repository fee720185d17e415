/** A measured run beside what a model of time predicts of it: TTFT, TPOT and E2E at mean, p50, p90 and p99. */

import type { MeasuredRequest } from '../latency/fit/measuredRuns.ts';
import type { RequestTimes } from '../latency/fit/runReplay.ts';

const comparedTimes = ['TTFT', 'TPOT', 'E2E'] as const;
type ComparedTime = (typeof comparedTimes)[number];
const comparedPoints = ['mean', 'p50', 'p90', 'p99'] as const;
type ComparedPoint = (typeof comparedPoints)[number];

export interface ComparedValue {
  readonly what: ComparedTime;
  readonly point: ComparedPoint;
  readonly measuredMs: number;
  readonly predictedMs: number;
  readonly errorPercent: number;
}

/** The value below or at which a share of the sorted ones lies, by the nearest rank. */
function quantile(sorted: readonly number[], share: number): number {
  return sorted[Math.max(0, Math.ceil(sorted.length * share) - 1)];
}

function pointsOf(values: readonly number[]): Record<ComparedPoint, number> {
  const sorted = values.toSorted((a, b) => a - b);
  const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
  return { mean, p50: quantile(sorted, 0.5), p90: quantile(sorted, 0.9), p99: quantile(sorted, 0.99) };
}

/**
 * @param predicted in the order of `requests` @param first request that is judged
 * @returns no row for a time that no judged request has, such as TPOT where each answer is one token
 */
export function compareTimes(
  requests: readonly MeasuredRequest[],
  predicted: readonly RequestTimes[],
  first: number,
): ComparedValue[] {
  const pairs = requests.map((request, i) => ({ request, times: predicted[i] })).slice(first);
  const several = pairs.filter(({ request }) => request.outputTokens > 1);
  const of: Readonly<
    Record<ComparedTime, readonly [typeof pairs, (at: RequestTimes, r: MeasuredRequest) => number]>
  > = {
    TTFT: [pairs, (at, { arrivalUs }) => at.firstTokenUs - arrivalUs],
    TPOT: [several, (at, { outputTokens }) => (at.lastTokenUs - at.firstTokenUs) / (outputTokens - 1)],
    E2E: [pairs, (at, { arrivalUs }) => at.lastTokenUs - arrivalUs],
  };
  return comparedTimes.flatMap((what) => {
    const [from, time] = of[what];
    if (from.length === 0) return [];
    const measured = pointsOf(from.map(({ request }) => time(request, request) / 1000));
    const made = pointsOf(from.map(({ request, times }) => time(times, request) / 1000));
    return comparedPoints
      .filter((point) => measured[point] > 0)
      .map((point): ComparedValue => {
        const errorPercent = 100 * (made[point] / measured[point] - 1);
        return { what, point, measuredMs: measured[point], predictedMs: made[point], errorPercent };
      });
  });
}
