/** From what a user names (backend, model, GPU, parallelism) to the model of time that a simulator asks. */

import { configError, requireInteger } from '../../runtime/errors.ts';
import { optionNames, requireOptions, requireShapes } from '../../runtime/options.ts';
import { Calibrated, onLinksOf } from './calibrated.ts';
import type { Coefficients } from './coefficients.ts';
import type { LatencyModel } from './latencyModel.ts';
import { Blackbox, Linear } from './linear.ts';
import type { Hardware, ModelConfig } from './modelConfig.ts';
import { engineShape, FlooredModel, PhysicalFloor } from './physics.ts';
import { Roofline } from './roofline.ts';
import { type MoeCommBackend, requireDivisibleHeads, TrainedPhysics } from './trainedPhysics.ts';

export const latencyBackends = ['trained-physics', 'roofline', 'linear', 'blackbox', 'calibrated'] as const;
export type LatencyBackend = (typeof latencyBackends)[number];

/** Models whose coefficients users bring in a file; the data folder has those of the others. */
const broughtCoefficients: readonly LatencyBackend[] = ['linear'];

/** Whether tierkv has coefficients for the model. */
export function hasOwnCoefficients(backend: LatencyBackend): boolean {
  return !broughtCoefficients.includes(backend);
}

export interface LatencySetup {
  readonly model: ModelConfig;
  readonly hardware: Hardware;
  readonly tp: number;
  /** Data parallel ranks; above 1 only for a mixture of experts. */
  readonly dp?: number;
  readonly coefficients: Coefficients;
  readonly moeCommBackend?: MoeCommBackend;
  /**
   * Whether no step may be shorter than its arithmetic and traffic need at the GPU's peak; true unless set.
   */
  readonly floor?: boolean;
}

const latencySetupNames: readonly string[] = optionNames<LatencySetup>({
  model: true,
  hardware: true,
  tp: true,
  dp: true,
  coefficients: true,
  moeCommBackend: true,
  floor: true,
});

/**
 * The model of time for one engine.
 * @throws {TierKVError} TKV_CONFIG for a parallelism that the model does not allow or coefficients out of
 * range.
 */
export function newLatencyModel(setup: LatencySetup): LatencyModel {
  requireShapes({ setup }, { setup: { tp: 'number' } });
  requireOptions(setup, latencySetupNames, 'setup');
  const { model, hardware, coefficients } = setup;
  const parallelism = { tp: requireInteger('tp', setup.tp, 1), dp: requireInteger('dp', setup.dp ?? 1, 1) };
  if (parallelism.dp > 1 && model.experts === 0) {
    throw configError(
      'dp',
      `is ${parallelism.dp}, but ${model.name} is dense`,
      'Run several instances instead.',
    );
  }
  const shape = engineShape(model, hardware, parallelism);
  const bare = (): LatencyModel => {
    switch (coefficients.backend) {
      case 'trained-physics': {
        const comm = setup.moeCommBackend ?? 'allgather_reducescatter';
        return new TrainedPhysics(model, hardware, parallelism, coefficients.values, comm);
      }
      case 'roofline':
        return new Roofline(model, hardware, parallelism, coefficients.values.alpha);
      case 'linear':
        return new Linear(coefficients.values);
      case 'blackbox':
        return new Blackbox(coefficients.values);
      case 'calibrated':
        requireDivisibleHeads(model, parallelism.tp);
        return new Calibrated(
          shape,
          hardware.interconnectGbPerS,
          onLinksOf(hardware, coefficients.gpu, coefficients.values),
        );
    }
  };
  return (setup.floor ?? true) ? new FlooredModel(bare(), new PhysicalFloor(shape)) : bare();
}
