/** Models of how long a step takes, what fits into memory, and how such models are fitted to measurements. */

export {
  Calibrated,
  type CalibratedCoefficients,
  type EngineOverhead,
} from './backends/calibrated.ts';
export { Linear, type LinearCoefficients, linearFeatures, linearTerms } from './backends/linear.ts';
export { Roofline } from './backends/roofline.ts';
export {
  type MoeCommBackend,
  moeCommBackends,
  TrainedPhysics,
  type TrainedPhysicsCoefficients,
} from './backends/trainedPhysics.ts';
export { BatchSums, type ScheduledRequest, sumBatch } from './batchSums.ts';
export { automaticBlockCount, type BlockCountOptions, kvBytesPerToken, weightBytes } from './capacity.ts';
export { type Coefficients, coefficientSchema, parseCoefficients } from './coefficients.ts';
export {
  type Hardware,
  parseHardware,
  parseUpstreamHardware,
  requireKnownName,
} from './description/hardware.ts';
export { type ModelConfig, modelFileName, parseModelConfig } from './description/modelConfig.ts';
export * from './fit/index.ts';
export {
  type LatencyModel,
  type Parallelism,
  type StepPart,
  toTicks,
  withAdapterOverhead,
} from './latencyModel.ts';
export { fitLink, type LinkCalibration, type LinkSample, linkSchema, parseLinkCalibration } from './links.ts';
export { type LatencyBackend, type LatencySetup, latencyBackends, newLatencyModel } from './makeModel.ts';
export { type EngineShape, engineShape, expertsTouched } from './physics/engineShape.ts';
export { FlooredModel, PhysicalFloor, type PhysicalWork } from './physics/floor.ts';
export { type AttentionEfficiency, type GemmEfficiency, gemmUs } from './physics/kernels.ts';
