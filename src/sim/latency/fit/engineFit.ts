/**
 * Fits what an engine adds to its kernels (time a layer, efficiency of reductions) to step records, with the
 * kernels' efficiencies held. Two numbers from hundreds of records of several models: what is left free is
 * what kernel tables cannot tell, and no more, so that the fit holds for models and degrees of parallelism
 * that it has not seen.
 */

import { configError, requireInteger } from '../../../runtime/errors.ts';
import { Calibrated, type CalibratedCoefficients } from '../calibrated.ts';
import { type BatchedRequest, BatchSums, type LatencyModel } from '../latencyModel.ts';
import type { Hardware, ModelConfig } from '../modelConfig.ts';
import { type EngineShape, engineShape, FlooredModel, PhysicalFloor } from '../physics.ts';
import { fitAttention, fitGemm, type KernelTables } from './kernelFit.ts';
import { minimise, type StepPrediction } from './linearFit.ts';
import { batchOf, readTable, type StepRecord } from './stepRecords.ts';

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
// known: the run is replayed, and the shares of bandwidth and compute and the time a layer adds are moved
// until the replay agrees. Requests before a given one are fitted to; the rest judge. They belong to one run
// and share its load, so this is a weaker test than another run would be.

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

// Replays the requests of a measured run through a model of time, with the continuous batching of vLLM: each
// step gives the running requests their next token or the next piece of their prompt, then admits waiting
// ones in order while requests and tokens of the step allow. KV memory is taken as enough, which holds for
// the runs this is for.

/** A request of a measured run; times in µs from the start of the run. */
export interface MeasuredRequest {
  readonly arrivalUs: number;
  readonly promptTokens: number;
  readonly outputTokens: number;
  readonly firstTokenUs: number;
  readonly lastTokenUs: number;
}

export interface RequestTimes {
  readonly firstTokenUs: number;
  readonly lastTokenUs: number;
}

export interface BatchLimits {
  readonly requests: number;
  readonly tokensPerStep: number;
}

/** Of all requests together: a fit replays the run some hundred times. */
const maxTokens = 10_000_000;

/** Reads arrival_us, prompt_tokens, output_tokens, first_token_us, last_token_us, sorted by arrival. */
export function parseMeasuredRequests(text: string, file: string): MeasuredRequest[] {
  const columns = ['arrival_us', 'prompt_tokens', 'output_tokens', 'first_token_us', 'last_token_us'];
  let tokens = 0;
  return Array.from(readTable(text, file, columns), (row) => {
    const request: MeasuredRequest = {
      arrivalUs: row.number('arrival_us'),
      promptTokens: row.integer('prompt_tokens', 0, maxTokens),
      outputTokens: row.integer('output_tokens', 1, maxTokens),
      firstTokenUs: row.number('first_token_us'),
      lastTokenUs: row.number('last_token_us'),
    };
    const { arrivalUs, firstTokenUs, lastTokenUs } = request;
    if (firstTokenUs < arrivalUs || lastTokenUs < firstTokenUs || lastTokenUs === arrivalUs) {
      const problem = 'arrival_us, first_token_us and last_token_us do not follow each other';
      throw row.error(problem, 'Mend or remove the line');
    }
    tokens += request.promptTokens + request.outputTokens;
    if (tokens > maxTokens) {
      throw row.error(`brings the run to more than ${maxTokens} tokens`, 'Give a part of the run');
    }
    return request;
  }).sort((a, b) => a.arrivalUs - b.arrivalUs);
}

interface Running {
  readonly index: number;
  readonly promptTokens: number;
  readonly outputTokens: number;
  progressTokens: number;
  firstTokenUs: number;
}

/**
 * When each request gets its first and last token, in the order of `requests`, which are sorted by arrival.
 * @throws {TierKVError} TKV_CONFIG for limits below 1.
 */
export function replayRequests(
  requests: readonly MeasuredRequest[],
  model: LatencyModel,
  limits: BatchLimits,
): RequestTimes[] {
  requireInteger('requests', limits.requests, 1);
  requireInteger('tokensPerStep', limits.tokensPerStep, 1);
  const times: RequestTimes[] = new Array(requests.length);
  const sums = new BatchSums();
  let running: Running[] = [];
  let next = 0;
  let nowUs = 0;
  while (running.length > 0 || next < requests.length) {
    if (running.length === 0) nowUs = Math.max(nowUs, requests[next].arrivalUs);
    let budget = limits.tokensPerStep;
    sums.clear();
    const scheduled: { request: Running; newTokens: number }[] = [];
    const schedule = (request: Running): void => {
      const left = request.promptTokens - request.progressTokens;
      const newTokens = Math.min(budget, Math.max(1, left));
      if (newTokens === 0) return;
      budget -= newTokens;
      const asScheduled: BatchedRequest = {
        promptTokens: request.promptTokens,
        progressTokens: request.progressTokens,
        newTokens,
        outputTokens: request.outputTokens,
      };
      sums.add(asScheduled);
      scheduled.push({ request, newTokens });
    };
    for (const request of running) schedule(request);
    while (budget > 0 && running.length < limits.requests && next < requests.length) {
      const { arrivalUs, promptTokens, outputTokens } = requests[next];
      if (arrivalUs > nowUs) break;
      const request = { index: next, promptTokens, outputTokens, progressTokens: 0, firstTokenUs: 0 };
      running.push(request);
      schedule(request);
      next++;
    }
    nowUs += model.stepTimeUs(sums);
    for (const { request, newTokens } of scheduled) {
      request.progressTokens += newTokens;
      const generated = request.progressTokens - request.promptTokens + 1;
      if (generated === 1) request.firstTokenUs = nowUs;
      if (generated >= request.outputTokens) {
        times[request.index] = { firstTokenUs: request.firstTokenUs, lastTokenUs: nowUs };
      }
    }
    running = running.filter(({ index }) => times[index] === undefined);
  }
  return times;
}
