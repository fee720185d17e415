/**
 * Simulated requests beside recorded ones, request by request, as upstream's `calibrate` reports them: what
 * was recorded came from a server that was observed, or from another simulation.
 */

import * as is from '../../runtime/kinds.ts';
import { checkInputs } from '../../runtime/options.ts';
import { percentile } from '../metrics/statistics.ts';

/** Times of one request in microseconds. */
export interface RequestTiming {
  readonly id: number;
  readonly ttftUs: number;
  readonly e2eUs: number;
  readonly inputTokens: number;
  readonly outputTokens: number;
}

type Quality = 'excellent' | 'good' | 'fair' | 'poor';

interface MetricComparison {
  /** `real_mean`, `sim_mean`, `mean_error`, `mean_percent_error` (a share), and so on. */
  readonly workload_level: Readonly<Record<string, number>>;
  readonly request_level: {
    readonly mape: number;
    readonly pearson_r: number;
    readonly bias_direction: 'over-predict' | 'under-predict' | 'neutral';
    readonly quality: Quality;
  };
  readonly count: number;
}

interface RecordedComparison {
  readonly matched: number;
  readonly tokenMismatches: number;
  readonly metrics: { readonly e2e: MetricComparison; readonly ttft: MetricComparison };
}

/** Recorded requests that never ended have negative times, and match no simulated request. */
export function compareRecorded(
  recorded: readonly RequestTiming[],
  simulated: readonly RequestTiming[],
): RecordedComparison {
  checkInputs(
    { recorded, simulated },
    {
      recorded: is.list(is.fields({ id: is.number(), ttftUs: is.number() })),
      simulated: is.list(is.fields({ id: is.number(), ttftUs: is.number() })),
    },
  );
  const byId = new Map(simulated.map((timing) => [timing.id, timing]));
  const pairs = recorded.flatMap((real) => {
    const made = byId.get(real.id);
    return made === undefined || real.ttftUs < 0 || real.e2eUs < 0 ? [] : [[real, made] as const];
  });
  const tokenMismatches = pairs.filter(
    ([real, made]) => real.inputTokens !== made.inputTokens || real.outputTokens !== made.outputTokens,
  ).length;
  const metric = (of: (timing: RequestTiming) => number): MetricComparison =>
    compareMetric(
      Float64Array.from(pairs, ([real]) => of(real)),
      Float64Array.from(pairs, ([, made]) => of(made)),
    );
  const metrics = { e2e: metric(({ e2eUs }) => e2eUs), ttft: metric(({ ttftUs }) => ttftUs) };
  return { matched: pairs.length, tokenMismatches, metrics };
}

const mean = (values: Float64Array): number =>
  values.length === 0 ? 0 : values.reduce((sum, value) => sum + value, 0) / values.length;

function compareMetric(real: Float64Array, made: Float64Array): MetricComparison {
  const [sortedReal, sortedMade] = [real.toSorted(), made.toSorted()];
  const figures: readonly (readonly [string, number, number])[] = [
    ['mean', mean(real), mean(made)],
    ['median', percentile(sortedReal, 50), percentile(sortedMade, 50)],
    ...[50, 90, 95, 99].map((p): [string, number, number] => [
      `p${p}`,
      percentile(sortedReal, p),
      percentile(sortedMade, p),
    ]),
  ];
  const workload = Object.fromEntries(
    figures.flatMap(([name, realFigure, madeFigure]) => [
      [`real_${name}`, realFigure],
      [`sim_${name}`, madeFigure],
      [`${name}_error`, madeFigure - realFigure],
      [`${name}_percent_error`, realFigure === 0 ? 0 : (madeFigure - realFigure) / realFigure],
    ]),
  );
  const mape = meanShareOff(real, made);
  const pearson = pearsonOf(real, made);
  const bias = made.reduce((sum, value, i) => sum + value - real[i], 0);
  return {
    workload_level: workload,
    request_level: {
      mape,
      pearson_r: pearson,
      bias_direction: bias > 0 ? 'over-predict' : bias < 0 ? 'under-predict' : 'neutral',
      quality: qualityOf(mape, pearson),
    },
    count: real.length,
  };
}

/** Requests whose real value is 0 are left out. */
function meanShareOff(real: Float64Array, made: Float64Array): number {
  let [sum, count] = [0, 0];
  for (const [i, value] of real.entries()) {
    if (value === 0) continue;
    sum += Math.abs(made[i] - value) / value;
    count++;
  }
  return count === 0 ? 0 : sum / count;
}

/** 0 for fewer than three, and where one of the two does not vary. */
function pearsonOf(real: Float64Array, made: Float64Array): number {
  if (real.length < 3) return 0;
  const [realMean, madeMean] = [mean(real), mean(made)];
  let [both, realSquares, madeSquares] = [0, 0, 0];
  for (const [i, value] of real.entries()) {
    const [x, y] = [value - realMean, made[i] - madeMean];
    both += x * y;
    realSquares += x * x;
    madeSquares += y * y;
  }
  const scale = Math.sqrt(realSquares * madeSquares);
  return scale === 0 ? 0 : both / scale;
}

function qualityOf(mape: number, pearson: number): Quality {
  if (mape < 0.1 && pearson > 0.95) return 'excellent';
  if (mape < 0.2 && pearson > 0.85) return 'good';
  return mape < 0.35 && pearson > 0.7 ? 'fair' : 'poor';
}
