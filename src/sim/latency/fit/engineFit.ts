/**
 * Fits what an engine adds to its kernels (time a layer, efficiency of reductions) to step records, with the
 * kernels' efficiencies held. Two numbers from hundreds of records of several models: what is left free is
 * what kernel tables cannot tell, and no more, so that the fit holds for models and degrees of parallelism
 * that it has not seen.
 */

import { configError } from '../../../runtime/errors.ts';
import * as is from '../../../runtime/kinds.ts';
import { checkInputs } from '../../../runtime/options.ts';
import { Calibrated, type CalibratedCoefficients } from '../calibrated.ts';
import type { BatchSums } from '../latencyModel.ts';
import type { Hardware, ModelConfig } from '../modelConfig.ts';
import { type EngineShape, engineShape, PhysicalFloor } from '../physics.ts';
import { fitAttention, fitGemm, type KernelTables } from './kernelFit.ts';
import { minimise, type StepPrediction } from './linearFit.ts';
import { batchOf, type StepRecord } from './stepRecords.ts';

/** Shapes of the arguments, by the names of parameters. */
const inputs = {
  hardware: is.fields({ name: is.text(), peakTflops: is.number() }),
  tables: is.fields({ gemm: is.array(), prefill: is.array() }),
  records: is.list(is.fields({ experiment: is.text(), model: is.text() })),
  lookup: is.func(),
  coefficients: is.fields({ gemm16: is.object(), gemm8: is.object() }),
  prepared: is.array(),
  start: is.fields({ gemm16: is.object(), gemm8: is.object() }),
  aggregates: is.list(is.fields({ experiment: is.text(), model: is.text() })),
};

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
  checkInputs({ hardware, tables }, inputs);
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
  checkInputs({ records, hardware, lookup }, inputs);
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
  checkInputs({ coefficients, hardware, prepared }, inputs);
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
  checkInputs({ start, hardware, records, lookup }, inputs);
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
  /** Measurements that were kept out of the fit. */
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
  checkInputs({ start, hardware, records, aggregates, lookup }, inputs);
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
