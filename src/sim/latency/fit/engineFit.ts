/**
 * Fits what an engine adds to its kernels (time a layer, efficiency of reductions) to step records, with the
 * kernels' efficiencies held. Two numbers from hundreds of records of several models: what is left free is
 * what kernel tables cannot tell, and no more, so that the fit holds for models and degrees of parallelism
 * that it has not seen.
 */

import { configError } from '../../../runtime/errors.ts';
import { requireShapes } from '../../../runtime/options.ts';
import { Calibrated, type CalibratedCoefficients } from '../calibrated.ts';
import type { BatchSums } from '../latencyModel.ts';
import type { Hardware, ModelConfig } from '../modelConfig.ts';
import { type EngineShape, engineShape, FlooredModel, PhysicalFloor } from '../physics.ts';
import { fitAttention, fitGemm, type KernelTables } from './kernelFit.ts';
import { minimise, type StepPrediction } from './linearFit.ts';
import type { MeasuredRequest } from './measuredRuns.ts';
import { type BatchLimits, type RequestTimes, replayRequests } from './runReplay.ts';
import { batchOf, type StepRecord } from './stepRecords.ts';

/** What callers must pass, by the names of parameters. */
const inputShapes = {
  hardware: { name: 'text', peakTflops: 'number' },
  tables: { gemm: 'array', prefill: 'array' },
  records: [{ experiment: 'text', model: 'text' }],
  lookup: 'function',
  coefficients: { gemm16: 'object', gemm8: 'object' },
  prepared: 'array',
  start: { gemm16: 'object', gemm8: 'object' },
  aggregates: [{ experiment: 'text', model: 'text' }],
  run: { interconnectGbPerS: 'number' },
  fitted: 'number',
  searches: 'number?',
} as const;

/** Finds the description of a model that records name. */
export type ModelLookup = (model: string) => ModelConfig;

/**
 * A reduction of less than this goes directly from each GPU to each. An assumption: no record reaches beyond
 * it.
 */
const ringSetupBytes = 4 * 2 ** 20;

/**
 * Coefficients from kernel tables alone. The tables' products are in 8 bits; 16-bit ones are taken to compute
 * at the same share of their peak, and to stream weights at the rate at which attention streams KV, which was
 * measured in 16 bits.
 */
export function kernelCoefficients(hardware: Hardware, tables: KernelTables): CalibratedCoefficients {
  requireShapes({ hardware, tables }, inputShapes);
  const gemm8 = fitGemm(hardware, tables.gemm);
  const attention = fitAttention(hardware, tables);
  return {
    gemm8,
    gemm16: { ...gemm8, memory: attention.decode, launchUs: 0 },
    attention,
    engine: { perLayerUs: 0, perRequestUs: 0, perStepUs: 0, reduceEfficiency: 1, ringSetupBytes },
    request: { queueingUs: 0, postDecodeUs: 0, outputTokenUs: 0 },
  };
}

interface PreparedRecord {
  readonly shape: EngineShape;
  readonly batch: BatchSums;
  readonly record: StepRecord;
}

/** Records with their batches and shapes worked out once. */
export function prepareRecords(
  records: readonly StepRecord[],
  hardware: Hardware,
  lookup: ModelLookup,
): PreparedRecord[] {
  requireShapes({ records, hardware, lookup }, inputShapes);
  const shapes = new Map<string, EngineShape>();
  return records.map((record) => {
    const key = `${record.model}/${record.tp}`;
    let shape = shapes.get(key);
    if (shape === undefined) {
      shape = engineShape(lookup(record.model), hardware, { tp: record.tp, dp: 1 });
      shapes.set(key, shape);
    }
    return { shape, batch: batchOf(record), record };
  });
}

export type RecordPrediction = StepPrediction & { readonly record: StepRecord; readonly floorUs: number };

/** Predictions with the physical floor under them. */
export function predictRecords(
  coefficients: CalibratedCoefficients,
  hardware: Hardware,
  prepared: readonly PreparedRecord[],
): RecordPrediction[] {
  requireShapes({ coefficients, hardware, prepared }, inputShapes);
  const models = new Map<EngineShape, { model: Calibrated; floor: PhysicalFloor }>();
  return prepared.map(({ shape, batch, record }) => {
    let found = models.get(shape);
    if (found === undefined) {
      const model = new Calibrated(shape, hardware.interconnectGbPerS, coefficients);
      found = { model, floor: new PhysicalFloor(shape) };
      models.set(shape, found);
    }
    const floorUs = found.floor.floorUs(batch);
    const predictedUs = Math.max(found.model.stepUs(batch), floorUs);
    return { record, floorUs, predictedUs, measuredUs: record.measuredUs };
  });
}

/** Whether the step carries few new prompt tokens. Only the log of such a step is about that step alone. */
function isFitted({ prefillTokens }: StepRecord): boolean {
  return prefillTokens < 128;
}

/**
 * `start` with the engine's overhead fitted: the mean relative error over the experiments, each counting the
 * same. Steps with large prefills are left out, since an asynchronous scheduler logs their time with a
 * neighbour.
 * @throws {TierKVError} TKV_CONFIG when no record is left.
 */
export function fitEngine(
  start: CalibratedCoefficients,
  hardware: Hardware,
  records: readonly StepRecord[],
  lookup: ModelLookup,
): CalibratedCoefficients {
  requireShapes({ start, hardware, records, lookup }, inputShapes);
  const prepared = prepareRecords(records.filter(isFitted), hardware, lookup);
  if (prepared.length === 0) {
    throw configError('records', 'hold no step to fit to', 'Give steps with fewer than 128 prompt tokens.');
  }
  const groups = Map.groupBy(prepared, ({ record }) => record.experiment);
  const withEngine = ([perLayerUs, reduceEfficiency]: readonly number[]): CalibratedCoefficients => ({
    ...start,
    engine: { ...start.engine, perLayerUs: perLayerUs, reduceEfficiency: reduceEfficiency },
  });
  const loss = (values: readonly number[]): number => {
    const coefficients = withEngine(values);
    let total = 0;
    for (const group of groups.values()) {
      let sum = 0;
      for (const { predictedUs, measuredUs } of predictRecords(coefficients, hardware, group)) {
        sum += Math.abs(predictedUs / measuredUs - 1);
      }
      total += sum / group.length;
    }
    return total / groups.size;
  };
  const parallel = records.some(({ tp }) => tp > 1);
  const perLayer = { name: 'perLayerUs', start: 40, min: 0, max: 2000 };
  const reduce = { name: 'reduceEfficiency', start: 0.7, min: 0.02, max: 1 };
  if (!parallel) {
    const found = minimise([perLayer], ([value]) => loss([value, start.engine.reduceEfficiency]));
    return withEngine([found.values[0], start.engine.reduceEfficiency]);
  }
  return withEngine(minimise([perLayer, reduce], loss).values);
}

export interface Fold {
  /** What was kept out of the fit. */
  readonly heldOut: string;
  readonly coefficients: CalibratedCoefficients;
  readonly predictions: readonly RecordPrediction[];
}

/**
 * For each experiment a fit on all others and the predictions of that one. Runs known only by their totals
 * are fitted on too, except those of the model that is held out.
 */
export function crossValidate(
  start: CalibratedCoefficients,
  hardware: Hardware,
  records: readonly StepRecord[],
  aggregates: readonly StepRecord[],
  lookup: ModelLookup,
): Fold[] {
  requireShapes({ start, hardware, records, aggregates, lookup }, inputShapes);
  const experiments = [...new Set(records.map(({ experiment }) => experiment))];
  return experiments.map((heldOut) => {
    const judged = records.filter(({ experiment }) => experiment === heldOut);
    const models = new Set(judged.map(({ model }) => model));
    const others = records.filter(({ experiment }) => experiment !== heldOut);
    const fitted = [...others, ...aggregates.filter(({ model }) => !models.has(model))];
    const coefficients = fitEngine(start, hardware, fitted, lookup);
    const predictions = predictRecords(coefficients, hardware, prepareRecords(judged, hardware, lookup));
    return { heldOut, coefficients, predictions };
  });
}

// Fits the coefficients of a GPU to one measured run of an engine, of which only the requests' times are
// known: the run is replayed, and the shares of bandwidth and compute and the time that a step takes beyond its kernels are
// moved until the replay agrees, with several GPUs also the efficiency of their reductions. One run of one model cannot tell
// what a layer adds from what a step adds, so a layer's part is held as the start has it, where it was fitted to several
// models, as long as the whole allows it. Requests before a given one are fitted to; the rest judge. They belong to one run
// and share its load, so this is a weaker test than another run would be.

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
  requireShapes({ run, coefficients }, inputShapes);
  const bare = new Calibrated(run.shape, run.interconnectGbPerS, coefficients);
  const model = new FlooredModel(bare, new PhysicalFloor(run.shape));
  return replayRequests(run.requests, model, run.limits, ended);
}

function withShares(
  start: CalibratedCoefficients,
  layers: number,
  [streaming, compute, overheadUs, reduceEfficiency]: readonly number[],
): CalibratedCoefficients {
  const perLayerUs = Math.min(start.engine.perLayerUs, overheadUs / layers);
  return {
    ...start,
    gemm16: { ...start.gemm16, memory: streaming, compute: compute },
    gemm8: { ...start.gemm8, memory: Math.min(1, start.gemm8.memory * (streaming / start.gemm16.memory)) },
    attention: { ...start.attention, decode: streaming },
    engine: {
      ...start.engine,
      perLayerUs,
      perStepUs: Math.max(0, overheadUs - layers * perLayerUs),
      reduceEfficiency: reduceEfficiency ?? start.engine.reduceEfficiency,
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

/** The distance that a fit makes small: of the run, and of first tokens, each counted up to wholly wrong. */
function fitDistance(run: MeasuredRun, times: readonly RequestTimes[], fitted: number): number {
  let sum = 0;
  for (let i = 0; i < fitted; i++) {
    const { arrivalUs, firstTokenUs } = run.requests[i];
    const error = Math.abs((times[i].firstTokenUs - arrivalUs) / Math.max(1, firstTokenUs - arrivalUs) - 1);
    sum += Number.isFinite(error) ? Math.min(1, error) : 1;
  }
  return runDistance(run, times, 0, fitted) + (firstTokenWeight * sum) / fitted;
}

/** What a step takes beyond its kernels, at most: more is another cause. */
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
  requireShapes({ run, start, fitted, searches }, inputShapes);
  const { gemm16, engine } = start;
  const { layers, tp, dp } = run.shape;
  const overheadUs = layers * engine.perLayerUs + engine.perStepUs;
  const reduce = { name: 'reduceEfficiency', start: engine.reduceEfficiency, min: 0.02, max: 1 };
  // the simplex ends in valleys where streaming and overhead make up for each other: the best of several starts is kept
  const gapUs = shortGapUs(run.requests.slice(0, fitted));
  const starts = [
    ...startFactors.map(([shares, overhead]) => [shares, overhead * overheadUs]),
    ...overheadShares.map((share) => [0.8, share * gapUs]),
  ];
  const wanted = Math.min(starts.length, searches);
  let replays = 0;
  let done = 0;
  let ofSearch = 0;
  const loss = (values: readonly number[]): number => {
    replays++;
    ofSearch++;
    progress(Math.min(1, (done + Math.min(0.95, ofSearch / SEARCH_REPLAYS)) / wanted), replays);
    return fitDistance(run, replayRun(run, withShares(start, layers, values)), fitted);
  };
  const parametersOf = ([shares, overhead]: readonly number[]): Parameters<typeof minimise>[0] => [
    { name: 'streaming', start: gemm16.memory * shares, min: 0.02, max: 1 },
    { name: 'compute', start: gemm16.compute * shares, min: 0.02, max: 1 },
    { name: 'overheadUs', start: Math.min(overhead, mostOverheadUs), min: 0, max: mostOverheadUs },
    ...(tp * dp > 1 ? [reduce] : []),
  ];
  const tries = starts
    .map((one) => ({
      parameters: parametersOf(one),
      at: loss(parametersOf(one).map((parameter) => parameter.start)),
    }))
    .sort((a, b) => a.at - b.at)
    .slice(0, searches)
    .map(({ parameters }) => {
      ofSearch = 0;
      const found = minimise(parameters, loss);
      done++;
      return found;
    });
  const found = tries.reduce((best, one) => (one.loss < best.loss ? one : best));
  return withShares(start, layers, found.values);
}
