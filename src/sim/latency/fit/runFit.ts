/**
 * Fits the coefficients of a GPU to one measured run of an engine, of which only the requests' times are known: the run is
 * replayed, and the coefficients are moved until the replay agrees. Requests before a given one are fitted to; the rest judge.
 * They belong to one run and share its load, so this is a weaker test than another run would be.
 *
 * Two forms are tried. The small one moves the shares of bandwidth and compute and the time that a step takes beyond its
 * kernels, with several GPUs also the efficiency of their reductions. The wide one moves the time of a request in a step and
 * the shares of attention too: an engine that does work for each request, or whose attention is slow, is nothing that the
 * small one can follow. The wide one counts only where it is clearly nearer, since some of what it moves is hard to tell apart
 * in one run.
 *
 * One run of one model cannot tell what a layer adds from what a step adds, so a layer's part is held as the start has it,
 * where it was fitted to several models, as long as the whole allows it.
 */

import * as is from '../../../runtime/kinds.ts';
import { checkInputs } from '../../../runtime/options.ts';
import { Calibrated, type CalibratedCoefficients } from '../calibrated.ts';
import { type BatchSums, sumBatch } from '../latencyModel.ts';
import { Linear, linearFeatures, linearTerms } from '../linear.ts';
import { type EngineShape, FlooredModel, PhysicalFloor } from '../physics.ts';
import { minimise, nonNegativeLeastSquares } from './linearFit.ts';
import type { MeasuredRequest } from './measuredRuns.ts';
import { type BatchLimits, type RequestTimes, replayRequests } from './runReplay.ts';

export interface MeasuredRun {
  readonly requests: readonly MeasuredRequest[];
  readonly limits: BatchLimits;
  readonly shape: EngineShape;
  readonly interconnectGbPerS: number;
}

/** The run as these coefficients have it. */
export function replayRun(
  run: MeasuredRun,
  coefficients: CalibratedCoefficients,
  ended?: () => void,
): RequestTimes[] {
  checkInputs(
    { run, coefficients },
    {
      run: is.fields({ interconnectGbPerS: is.number() }),
      coefficients: is.fields({ gemm16: is.object(), gemm8: is.object() }),
    },
  );
  const bare = new Calibrated(run.shape, run.interconnectGbPerS, coefficients);
  const model = new FlooredModel(bare, new PhysicalFloor(run.shape));
  return replayRequests(run.requests, model, run.limits, ended);
}

/** Values that a fit moves. Shares are of the GPU's peaks, in (0, 1]. */
interface RunValues {
  readonly streaming: number;
  readonly compute: number;
  /** Time of a step beyond its kernels, of a layer's part and a step's together. */
  readonly overheadUs: number;
  readonly perRequestUs: number;
  readonly attentionPrefill: number;
  readonly attentionDecode: number;
  readonly reduceEfficiency: number;
}

function withValues(
  start: CalibratedCoefficients,
  layers: number,
  values: RunValues,
): CalibratedCoefficients {
  const { streaming, compute, overheadUs, perRequestUs, attentionPrefill, attentionDecode } = values;
  const perLayerUs = Math.min(start.engine.perLayerUs, overheadUs / layers);
  return {
    ...start,
    gemm16: { ...start.gemm16, memory: streaming, compute },
    gemm8: { ...start.gemm8, memory: Math.min(1, start.gemm8.memory * (streaming / start.gemm16.memory)) },
    attention: { ...start.attention, prefill: attentionPrefill, decode: attentionDecode },
    engine: {
      ...start.engine,
      perLayerUs,
      perRequestUs,
      perStepUs: Math.max(0, overheadUs - layers * perLayerUs),
      reduceEfficiency: values.reduceEfficiency,
    },
  };
}

/**
 * Mean distance of time per output token and of whole latency from the measured ones, relative, over the requests from
 * `first` to `end`. Half of it is the mean error of one of the two.
 */
export function runDistance(
  run: MeasuredRun,
  times: readonly RequestTimes[],
  first: number,
  end: number,
): number {
  let sum = 0;
  for (let i = first; i < end; i++) {
    const measured = run.requests[i];
    const replayed = times[i];
    // a request of one token has no time between tokens
    const decodeUs = measured.lastTokenUs - measured.firstTokenUs;
    const decode = decodeUs > 0 ? (replayed.lastTokenUs - replayed.firstTokenUs) / decodeUs : 1;
    const whole = (replayed.lastTokenUs - measured.arrivalUs) / (measured.lastTokenUs - measured.arrivalUs);
    // a request without room has no time; it counts as wholly wrong, so that a search can go on
    sum += Number.isFinite(whole) && Number.isFinite(decode) ? Math.abs(decode - 1) + Math.abs(whole - 1) : 2;
  }
  return sum / (end - first);
}

/** Weight of a request's time to its first token in a fit: much of it is queueing, in which all errors of steps add up. */
const firstTokenWeight = 0.25;
/**
 * Weight of the means of the run in a fit. Where a server was slow at times, what is near to most requests is below the mean,
 * and the mean is what a capacity is planned with.
 */
const meansWeight = 0.5;

/**
 * The distance that a fit makes small: of the run, of first tokens, each counted up to wholly wrong, and of the means of time
 * per output token and of whole latency.
 */
function fitDistance(
  run: MeasuredRun,
  times: readonly RequestTimes[],
  fitted: number,
  ofMeansToo: boolean,
): number {
  let firsts = 0;
  const means = { decode: [0, 0], whole: [0, 0] };
  for (let i = 0; i < fitted; i++) {
    const { arrivalUs, firstTokenUs, lastTokenUs, outputTokens } = run.requests[i];
    const at = times[i];
    const error = Math.abs((at.firstTokenUs - arrivalUs) / Math.max(1, firstTokenUs - arrivalUs) - 1);
    firsts += Number.isFinite(error) ? Math.min(1, error) : 1;
    const gaps = Math.max(1, outputTokens - 1);
    means.decode[0] += (at.lastTokenUs - at.firstTokenUs) / gaps;
    means.decode[1] += (lastTokenUs - firstTokenUs) / gaps;
    means.whole[0] += at.lastTokenUs - arrivalUs;
    means.whole[1] += lastTokenUs - arrivalUs;
  }
  let ofMeans = 0;
  for (const [replayed, measured] of Object.values(means)) {
    const error = measured > 0 ? Math.abs(replayed / measured - 1) : 0;
    ofMeans += Number.isFinite(error) ? Math.min(1, error) : 1;
  }
  const ofRequests = runDistance(run, times, 0, fitted) + (firstTokenWeight * firsts) / fitted;
  return ofMeansToo ? ofRequests + meansWeight * ofMeans : ofRequests;
}

/** Most time of a step beyond its kernels, µs; more has another cause. */
const mostOverheadUs = 1e7;

/** Factors of the shares and of the overhead from which searches begin. */
const startFactors = [
  [1, 1],
  [0.8, 1.5],
  [0.6, 0.5],
] as const;
/** Replays of a run in a search, about: for the time left alone. */
const SEARCH_REPLAYS = 250;
/** Shares of the shortest measured times between tokens that a search takes to be beyond the kernels at first. */
const overheadShares = [0.5, 0.9] as const;

/** Time between tokens that a tenth of the requests stay below, µs. */
function shortGapUs(requests: readonly MeasuredRequest[]): number {
  const gaps = requests
    .filter(({ outputTokens }) => outputTokens > 1)
    .map(({ firstTokenUs, lastTokenUs, outputTokens }) => (lastTokenUs - firstTokenUs) / (outputTokens - 1))
    .sort((a, b) => a - b);
  return gaps[Math.floor(gaps.length / 10)] ?? 0;
}

/** Share of the small form's distance that the wide one has to stay below to be taken. */
const clearlyNearer = 0.95;
/** Replays of the run that the small form may take to settle by the means too. */
const settlingReplays = 150;
/** Replays of the run that the wide form may take. */
const wideReplays = 600;

/**
 * @param start coefficients of another GPU to begin from.
 * @param fitted number of requests, from the first, that the fit sees.
 * @param searches most starts that are searched from, the nearest first; each search replays the run some hundred times.
 * @param progress told of each replay, with the share of the searches that is done, the one under way as far as one usually goes.
 */
export function fitRun(
  run: MeasuredRun,
  start: CalibratedCoefficients,
  fitted: number,
  searches: number = Number.POSITIVE_INFINITY,
  progress: (share: number, replays: number) => void = () => {},
): CalibratedCoefficients {
  checkInputs(
    { run, start, fitted, searches },
    {
      run: is.fields({ interconnectGbPerS: is.number() }),
      start: is.fields({ gemm16: is.object(), gemm8: is.object() }),
      fitted: is.number(),
      searches: is.optional(is.number()),
    },
  );
  const { gemm16, engine } = start;
  const { layers, tp, dp } = run.shape;
  const overheadUs = layers * engine.perLayerUs + engine.perStepUs;
  const reduce = { name: 'reduceEfficiency', start: engine.reduceEfficiency, min: 0.02, max: 1 };
  const hasReductions = tp * dp > 1;
  // the simplex ends in valleys where streaming and overhead make up for each other: the best of several starts is kept
  const gapUs = shortGapUs(run.requests.slice(0, fitted));
  const starts = [
    ...startFactors.map(([shares, overhead]) => [shares, overhead * overheadUs]),
    ...overheadShares.map((share) => [0.8, share * gapUs]),
  ];
  const wanted = Math.min(starts.length, searches) + 1;
  let replays = 0;
  let done = 0;
  let ofSearch = 0;
  const distanceOf = (values: RunValues, ofMeansToo: boolean = true): number => {
    replays++;
    ofSearch++;
    progress(Math.min(1, (done + Math.min(0.95, ofSearch / SEARCH_REPLAYS)) / wanted), replays);
    return fitDistance(run, replayRun(run, withValues(start, layers, values)), fitted, ofMeansToo);
  };
  const smallValues = ([streaming, compute, overhead, reduced]: readonly number[]): RunValues => ({
    streaming,
    compute,
    overheadUs: overhead,
    perRequestUs: engine.perRequestUs,
    attentionPrefill: start.attention.prefill,
    attentionDecode: streaming,
    reduceEfficiency: reduced ?? engine.reduceEfficiency,
  });
  const parametersOf = ([shares, overhead]: readonly number[]): Parameters<typeof minimise>[0] => [
    { name: 'streaming', start: gemm16.memory * shares, min: 0.02, max: 1 },
    { name: 'compute', start: gemm16.compute * shares, min: 0.02, max: 1 },
    { name: 'overheadUs', start: Math.min(overhead, mostOverheadUs), min: 0, max: mostOverheadUs },
    ...(hasReductions ? [reduce] : []),
  ];
  // the means make valleys of their own: a search goes by requests alone, and the means only settle where it ended
  const smallLoss = (values: readonly number[]): number => distanceOf(smallValues(values), false);
  const tries = starts
    .map((one) => ({
      parameters: parametersOf(one),
      at: smallLoss(parametersOf(one).map((parameter) => parameter.start)),
    }))
    .sort((a, b) => a.at - b.at)
    .slice(0, searches)
    .map(({ parameters }) => {
      ofSearch = 0;
      const found = minimise(parameters, smallLoss);
      done++;
      return found;
    });
  const searched = tries.reduce((best, one) => (one.loss < best.loss ? one : best));
  ofSearch = 0;
  const nearby = parametersOf([1, 0]).map((parameter, i) => ({ ...parameter, start: searched.values[i] }));
  const small = minimise(nearby, (values) => distanceOf(smallValues(values)), settlingReplays);
  const wide = fitWide(run, start, fitted, smallValues(small.values), distanceOf);
  return withValues(
    start,
    layers,
    wide.loss < clearlyNearer * small.loss ? wide.values : smallValues(small.values),
  );
}

/** Natural logarithms: how far the wide form moves a value from where it begins. */
const widestMove = 2;

/** The wide form, from the small one's values and from what a linear model says of the run, whichever is nearer. */
function fitWide(
  run: MeasuredRun,
  start: CalibratedCoefficients,
  fitted: number,
  small: RunValues,
  distanceOf: (values: RunValues) => number,
): { readonly values: RunValues; readonly loss: number } {
  const share = (value: number): number => Math.min(1, Math.max(1e-6, value));
  const estimates = linearModelsOf(run, fitted).map((beta) => valuesFrom(beta, run.shape, start, small));
  const begins = [small, ...estimates]
    .map((values) => ({ values, loss: distanceOf(values) }))
    .reduce((best, one) => (one.loss < best.loss ? one : best)).values;
  // a time of 0 cannot be moved by a factor: it begins as a little of a step's
  const leastUs = 0.02 * Math.max(1, begins.overheadUs);
  const moved = (by: readonly number[]): RunValues => {
    const factors = by.map(Math.exp);
    return {
      streaming: share(begins.streaming * factors[0]),
      compute: share(begins.compute * factors[1]),
      overheadUs: Math.min(mostOverheadUs, begins.overheadUs * factors[2]),
      perRequestUs: Math.max(begins.perRequestUs, leastUs) * factors[3],
      attentionPrefill: share(begins.attentionPrefill * factors[4]),
      attentionDecode: share(begins.attentionDecode * factors[5]),
      reduceEfficiency: share(begins.reduceEfficiency * (factors[6] ?? 1)),
    };
  };
  const names = ['streaming', 'compute', 'overheadUs', 'perRequestUs', 'attentionPrefill', 'attentionDecode'];
  if (run.shape.tp * run.shape.dp > 1) names.push('reduceEfficiency');
  const parameters = names.map((name) => ({ name, start: 0, min: -widestMove, max: widestMove }));
  const found = minimise(parameters, (by) => distanceOf(moved(by)), wideReplays);
  return { values: moved(found.values), loss: found.loss };
}

/** Derives the GPU's values from linear terms of a step. */
function valuesFrom(
  beta: readonly number[],
  shape: EngineShape,
  start: CalibratedCoefficients,
  small: RunValues,
): RunValues {
  const [stepUs, tokenUs, decodeUs, contextUs, pairUs] = beta;
  const share = (value: number): number => (value > 0 && value < 1 ? Math.max(1e-6, value) : 1);
  const floor = new PhysicalFloor(shape);
  const prefill = (tokens: number): BatchSums =>
    sumBatch([{ promptTokens: tokens + 1, progressTokens: 0, newTokens: tokens, outputTokens: 1 }]);
  const { flops } = floor.work(prefill(1));
  const { bytes } = floor.work(prefill(1));
  const streaming = Math.min(1, 2 * start.gemm16.memory);
  const weightsUs = bytes / (shape.peakBytesPerUs * streaming);
  return {
    ...small,
    streaming,
    compute: share(flops / (shape.peakFlopsPerUs * tokenUs)),
    overheadUs: Math.max(0, stepUs - weightsUs),
    perRequestUs: Math.max(0, decodeUs - tokenUs),
    attentionPrefill: share(shape.attentionFlopsPerPair / (shape.peakFlops16PerUs * pairUs)),
    attentionDecode: share(shape.kvBytesPerToken / (shape.peakBytesPerUs * contextUs)),
  };
}

/** Rounds of replay and regression from each beginning: the schedule that times are made of follows from the times. */
const linearRounds = 10;

/**
 * Linear models whose replay comes near to the times of the run: of each round of regression, from steps that take one time and
 * from steps that take as long as they hold requests.
 */
function linearModelsOf(run: MeasuredRun, fitted: number): number[][] {
  // engines side by side mix their steps in time
  if ((run.limits.replicas ?? 1) > 1) return [];
  const gapUs = Math.max(1, shortGapUs(run.requests.slice(0, fitted)));
  const found: number[][] = [];
  for (const term of ['step', 'decode'] as const) {
    let beta = linearTerms.map((name) => (name === term ? gapUs : 0));
    for (let round = 0; round < linearRounds; round++) {
      const rows = stepSums(run, beta, fitted);
      if (rows.length === 0) break;
      const next = robustLeastSquares(rows).map((value) => Math.min(value, mostOverheadUs));
      if (!next.some((value) => value > 0)) break;
      // half the way: faster steps make emptier schedules, in which steps look slower, and the whole way swings
      const damped = beta.map((value, i) => (round === 0 ? next[i] : (value + next[i]) / 2));
      found.push(damped);
      beta = damped;
    }
  }
  return found;
}

/**
 * Features of the steps in which a request, replayed by a linear model, waits for its first token, and of those in
 * which it gets the others: sums of linear features, each row over the measured time that they should come to.
 */
function stepSums(run: MeasuredRun, beta: readonly number[], fitted: number): number[][] {
  const starts: number[] = [];
  const ends: number[] = [];
  /** Sums of the features up to each step's end. */
  const sums: number[][] = [];
  const total = linearTerms.map(() => 0);
  const model = new Linear({ alpha: [0, 0, 0], beta });
  const times = replayRequests(run.requests, model, run.limits, undefined, (fromUs, us, batch) => {
    linearFeatures(batch).forEach((feature, i) => {
      total[i] += feature;
    });
    starts.push(fromUs);
    ends.push(fromUs + us);
    sums.push([...total]);
  });
  const upTo = (us: number): number[] => {
    let [low, high] = [0, ends.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (ends[middle] <= us) low = middle + 1;
      else high = middle;
    }
    const before = low === 0 ? linearTerms.map(() => 0) : sums[low - 1];
    if (low === ends.length || us <= starts[low]) return before;
    const part = (us - starts[low]) / (ends[low] - starts[low]);
    return before.map((value, i) => value + part * (sums[low][i] - value));
  };
  const rows: number[][] = [];
  const add = (fromUs: number, toUs: number, measuredUs: number): void => {
    if (!(measuredUs > 0) || !(toUs > fromUs) || !Number.isFinite(toUs)) return;
    const from = upTo(fromUs);
    rows.push(upTo(toUs).map((value, i) => (value - from[i]) / measuredUs));
  };
  for (let i = 0; i < fitted; i++) {
    const { arrivalUs, firstTokenUs, lastTokenUs } = run.requests[i];
    add(arrivalUs, times[i].firstTokenUs, firstTokenUs - arrivalUs);
    add(times[i].firstTokenUs, times[i].lastTokenUs, lastTokenUs - firstTokenUs);
  }
  return rows;
}

/** Rounds that weigh rows down which are far off. */
const robustRounds = 3;
/** Relative error from which on a row counts less. */
const farOff = 0.1;

/** Non-negative coefficients with which every row adds up to about 1, rows that are far off counting less. */
function robustLeastSquares(rows: readonly (readonly number[])[]): number[] {
  let weights: number[] = rows.map(() => 1);
  // terms in their own scale, or the descent takes forever over those of different size
  const scale = rows[0].map((_, j) => Math.max(1e-300, ...rows.map((row) => row[j])));
  let found: number[] = [];
  for (let round = 0; round < robustRounds; round++) {
    const scaled = nonNegativeLeastSquares(
      rows.map((row, i) => row.map((value, j) => (weights[i] * value) / scale[j])),
      weights,
    );
    found = scaled.map((value, j) => value / scale[j]);
    weights = rows.map((row) => {
      const error = Math.abs(row.reduce((sum, value, j) => sum + value * found[j], 0) - 1);
      return Math.sqrt(farOff / Math.max(farOff, error));
    });
  }
  return found;
}
