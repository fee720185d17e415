/** From what a user names (backend, model, GPU, parallelism) to the model of time that a simulator asks. */

import { configError } from '../../runtime/errors.ts';
import * as is from '../../runtime/kinds.ts';
import { checkInputs, type Kinds, optionTable } from '../../runtime/options.ts';
import { Calibrated, onLinksOf } from './calibrated.ts';
import type { Coefficients } from './coefficients.ts';
import { Kernels } from './kernels.ts';
import type { LatencyModel, SpeculationChoice } from './latencyModel.ts';
import { type LatencyBackend, latencyFacts, latencyModelsThat, type MoeCommBackend } from './latencyNames.ts';
import { Blackbox, Linear } from './linear.ts';
import type { Hardware, ModelConfig } from './modelConfig.ts';
import { engineShape, FlooredModel, PhysicalFloor } from './physics.ts';
import { Roofline } from './roofline.ts';
import { checkSpeculation } from './speculation.ts';
import { requireDivisibleHeads, TrainedPhysics } from './trainedPhysics.ts';

/** Models whose coefficients users bring in a file; the data folder has those of the others. */
const broughtCoefficients: readonly LatencyBackend[] = ['linear'];

/** Whether tierkv has coefficients for the model. */
export function hasOwnCoefficients(backend: LatencyBackend): boolean {
  return !broughtCoefficients.includes(backend);
}

/** Input of `newLatencyModel`: model, GPU, parallelism and coefficients. */
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
  /** Speculative decoding, with the model that proposes where there is one. */
  readonly speculation?: SpeculationChoice & { readonly draftModel?: ModelConfig };
  /** Whether experts lie whole on the GPUs, and not a part of each on all; as data parallel ranks are unless set. */
  readonly expertParallel?: boolean;
  /** Load of the busiest GPU over the mean where experts are spread, at least 1; 1 unless set. */
  readonly expertImbalance?: number;
}

const latencySetupTable = optionTable({
  model: is.passed(),
  hardware: is.passed(),
  tp: is.integer(1),
  dp: is.optional(is.integer(1), 1),
  coefficients: is.passed(),
  moeCommBackend: is.optional(is.passed()),
  floor: is.optional(is.flag()),
  speculation: is.optional(is.passed()),
  expertParallel: is.optional(is.flag()),
  expertImbalance: is.optional(is.passed(), 1),
} satisfies Kinds<LatencySetup>);

/**
 * The model of time for one engine.
 * @throws {TierKVError} TKV_CONFIG for a parallelism that the model does not allow or coefficients out of
 * range.
 */
export function newLatencyModel(setup: LatencySetup): LatencyModel {
  checkInputs({ setup }, { setup: is.fields({ tp: is.number() }) });
  const { model, hardware, coefficients, tp, dp } = latencySetupTable.read(setup, 'setup');
  const parallelism = { tp, dp };
  if (parallelism.dp > 1 && model.experts === 0) {
    throw configError(
      'dp',
      `is ${parallelism.dp}, but ${model.name} is dense`,
      'Run several instances instead.',
    );
  }
  const { speculation, expertImbalance = 1 } = setup;
  requireImbalance(setup, expertImbalance);
  const shape = engineShape(model, hardware, { ...parallelism, expertImbalance });
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
        requireDivisibleHeads(model, parallelism.tp, true);
        return new Calibrated(
          shape,
          hardware.interconnectGbPerS,
          onLinksOf(hardware, coefficients.gpu, coefficients.values),
        );
      case 'kernels':
        requireDivisibleHeads(model, parallelism.tp, true);
        return new Kernels(model, hardware, shape, coefficients.values, setup.expertParallel ?? dp > 1);
    }
  };
  const latency = (setup.floor ?? true) ? new FlooredModel(bare(), new PhysicalFloor(shape)) : bare();
  if (speculation === undefined) return latency;
  if (latencyFacts[coefficients.backend].verifies !== true) {
    const problem = `asks for speculation, and the latency model ${coefficients.backend} has no part for it`;
    throw configError('draftTokens', problem, `Use ${latencyModelsThat('verifies').join(' or ')}.`);
  }
  const { draftModel, ...choice } = checkSpeculation(speculation);
  const { speculation: _own, expertImbalance: _load, ...alike } = setup;
  const draft =
    draftModel === undefined ? {} : { draft: newLatencyModel({ ...alike, model: draftModel, dp: 1 }) };
  return Object.assign(latency, { speculation: { ...choice, ...draft } });
}

/** Imbalance is of experts that lie on several GPUs, and in one model of time. */
function requireImbalance({ model, tp, dp = 1, coefficients }: LatencySetup, imbalance: number): void {
  if (imbalance === 1) return;
  const remedy = 'Leave it out.';
  if (!(imbalance >= 1 && imbalance <= tp * dp)) {
    const most = `Set it from 1, all alike, to ${tp * dp}, all on one GPU.`;
    throw configError('expertImbalance', `is ${imbalance}`, most);
  }
  if (model.experts === 0)
    throw configError('expertImbalance', `is ${imbalance}, and ${model.name} is dense`, remedy);
  if (latencyFacts[coefficients.backend].loadsExperts === true) return;
  const problem = `is ${imbalance}, and the latency model ${coefficients.backend} has no part for it`;
  throw configError('expertImbalance', problem, remedy);
}
