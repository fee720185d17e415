/**
 * Step records and run totals, from files or as shipped for H100. The log of vLLM's scheduler and this
 * project's own format are told apart by their headers.
 */

import type { ModelConfig } from '../../sim/latency/index.ts';
import {
  averageStep,
  type ModelLookup,
  parseEngineLog,
  parseRunSummaries,
  parseStepRecords,
  type StepRecord,
} from '../../sim/latency/index.ts';
import { latencyDataFile, loadModel, readText } from './dataFiles.ts';

export interface Measurements {
  readonly steps: readonly StepRecord[];
  /** Average steps of whole runs. */
  readonly runs: readonly StepRecord[];
}

/** @param steps, @param runs paths; what is not given is what ships. */
export function loadMeasurements(steps: string | undefined, runs: string | undefined): Measurements {
  const stepText = readText(steps ?? latencyDataFile('h100-steps.csv.gz'));
  const stepFile = steps ?? 'data/latency/h100-steps.csv.gz';
  const raw = stepText.slice(0, stepText.indexOf('\n')).includes('step.ts_start_ns');
  const parsed = raw ? parseEngineLog(stepText, stepFile) : parseStepRecords(stepText, stepFile);
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
