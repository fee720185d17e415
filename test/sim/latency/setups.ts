/** Models, GPUs and coefficients of the data files, for the tests of this folder. */

import {
  loadCoefficients,
  loadHardware,
  loadKernelTables,
  loadModel,
} from '../../../src/sim/build/dataFiles.ts';
import { loadMeasurements, type Measurements, modelLookup } from '../../../src/sim/fitting/fit.ts';
import type { BatchedRequest, LatencyModel } from '../../../src/sim/latency/latencyModel.ts';
import type { LatencyBackend } from '../../../src/sim/latency/latencyNames.ts';
import { newLatencyModel } from '../../../src/sim/latency/makeModel.ts';
import type { Hardware } from '../../../src/sim/latency/modelConfig.ts';
import { engineShape, PhysicalFloor } from '../../../src/sim/latency/physics.ts';

export type { Measurements };
export { loadCoefficients, loadHardware, loadKernelTables, loadMeasurements, loadModel, modelLookup };

export const h100: Hardware = loadHardware('H100');

export interface Setup {
  readonly model: string;
  readonly tp: number;
  readonly dp: number;
}

/** Dense, grouped heads, mixtures of experts, interleaved and quantised, on one GPU and several. */
export const setups: readonly Setup[] = [
  { model: 'llama-3.1-8b-instruct', tp: 1, dp: 1 },
  { model: 'qwen3-14b', tp: 2, dp: 1 },
  { model: 'llama-3.1-70b-instruct', tp: 4, dp: 1 },
  { model: 'mixtral-8x7b-v0.1', tp: 2, dp: 1 },
  { model: 'qwen3-30b-a3b', tp: 1, dp: 2 },
  { model: 'llama-4-scout-17b-16e-instruct-fp8-dynamic', tp: 4, dp: 1 },
];

/** A model of time on H100. `linear` has no shipped coefficients; any will do for laws. */
export function modelOn(backend: LatencyBackend, setup: Setup, floor: boolean): LatencyModel {
  const coefficients =
    backend === 'linear'
      ? { backend, values: { alpha: [100, 2, 5], beta: [3000, 20, 5, 0.01, 0.0001] } }
      : loadCoefficients(backend, h100, undefined);
  const { tp, dp } = setup;
  return newLatencyModel({ model: loadModel(setup.model), hardware: h100, tp, dp, coefficients, floor });
}

export function floorOf(setup: Setup): PhysicalFloor {
  return new PhysicalFloor(engineShape(loadModel(setup.model), h100, { tp: setup.tp, dp: setup.dp }));
}

export function request(
  promptTokens: number,
  progressTokens: number,
  newTokens: number,
  outputTokens: number,
): BatchedRequest {
  return { promptTokens, progressTokens, newTokens, outputTokens };
}
