/** The model of time of an instance, from `--model`, `--hardware`, `--tp` and what else decides it. */

import path from 'node:path';
import { configError, TierKVError } from '../../../runtime/errors.ts';
import { nearestName } from '../../../runtime/nearestName.ts';
import {
  type Coefficients,
  type Hardware,
  type LatencyBackend,
  type LatencyModel,
  latencyBackends,
  type ModelConfig,
  type MoeCommBackend,
  moeCommBackends,
  newLatencyModel,
  parseUpstreamHardware,
} from '../../../sim/latency/index.ts';
import { readText } from '../../input/index.ts';
import { loadCoefficients, loadHardware, loadModel, modelDefaults } from '../../latency/dataFiles.ts';
import { numbersOption, textOption, wholeOption } from './numbers.ts';
import type { Options } from './options.ts';

/** Model, machine and time of the engines of one pool. */
export interface EngineHardware {
  readonly model: ModelConfig;
  readonly hardware: Hardware;
  readonly tp: number;
  readonly dp: number;
  readonly latency: LatencyModel;
  /** Whether steps are held above what the hardware needs. */
  readonly floor: boolean;
  readonly coefficients: Coefficients;
}

/** One of the names, or an error with the nearest of them. */
export function oneOf<T extends string>(field: string, name: string, names: readonly T[]): T {
  const found = names.find((known) => known === name);
  if (found !== undefined) return found;
  const near = nearestName(name, names);
  const remedy = near === undefined ? `Use one of ${names.join(', ')}.` : `Did you mean '${near}'?`;
  throw configError(field, `is "${name}", which does not exist`, remedy);
}

export function engineHardware(options: Options): EngineHardware {
  const model = loadModelOf(options);
  const defaults = modelDefaults(model.name);
  const hardware = hardwareOf(options, defaults?.gpu ?? 'H100');
  const tp = wholeOption(options, 'tp', 1, 1024) ?? defaults?.tp ?? 1;
  const dp = wholeOption(options, 'dp', 1, 1024) ?? 1;
  const coefficients = coefficientsOf(options, hardware);
  const comm = textOption(options, 'moeCommBackend');
  const moeCommBackend: MoeCommBackend | undefined =
    comm === undefined ? undefined : oneOf('--moe-comm-backend', comm, moeCommBackends);
  refuseIdleParallelism(model, dp, coefficients.backend, comm);
  const floor = options.floor === true;
  const latency = newLatencyModel({
    model,
    hardware,
    tp,
    dp,
    coefficients,
    floor,
    ...(moeCommBackend === undefined ? {} : { moeCommBackend }),
  });
  return { model, hardware, tp, dp, latency, floor, coefficients };
}

/** Experts and data parallel ranks are in the times of some backends only. */
function refuseIdleParallelism(
  model: ModelConfig,
  dp: number,
  backend: LatencyBackend,
  comm: string | undefined,
): void {
  if (dp > 1 && backend !== 'trained-physics' && backend !== 'calibrated') {
    const problem = `is ${dp}, and the latency model ${backend} has no part for it`;
    throw configError('dp', problem, 'Use trained-physics or calibrated, or leave it out.');
  }
  if (comm === undefined) return;
  if (backend !== 'trained-physics' || model.experts === 0) {
    const problem = `is ${comm}, which is for experts under trained-physics`;
    throw configError('--moe-comm-backend', problem, 'Leave it out, or choose such a model.');
  }
}

function loadModelOf(options: Options): ModelConfig {
  const folder = textOption(options, 'modelConfigFolder');
  return loadModel(folder === undefined ? String(options.model) : path.join(folder, 'config.json'));
}

function hardwareOf(options: Options, fallback: string): Hardware {
  const asked = textOption(options, 'hardware') ?? fallback;
  const file = textOption(options, 'hardwareConfig');
  if (file === undefined) return loadHardware(asked);
  const all = parseUpstreamHardware(readText(file), file);
  const name = oneOf(
    '--hardware',
    asked,
    all.map((hardware) => hardware.name),
  );
  return all.find((hardware) => hardware.name === name) as Hardware;
}

function coefficientsOf(options: Options, hardware: Hardware): Coefficients {
  const backend: LatencyBackend = oneOf('--latency-model', String(options.latencyModel), latencyBackends);
  const alpha = numbersOption(options, 'alphaCoeffs');
  const beta = numbersOption(options, 'betaCoeffs');
  if (alpha === undefined && beta === undefined) {
    return loadCoefficients(backend, hardware, textOption(options, 'coefficients'));
  }
  if (alpha === undefined || beta === undefined || backend !== 'trained-physics') {
    const message = '--alpha-coeffs and --beta-coeffs go together, with --latency-model trained-physics.';
    throw new TierKVError('TKV_CONFIG', `${message} Give both, or neither.`, { field: '--alpha-coeffs' });
  }
  return { backend, values: { alpha, beta } };
}
