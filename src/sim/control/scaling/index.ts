/** How many replicas there should be, and how they come and go. */

export * from './actuationConfig.ts';
export * from './autoScalePolicy.ts';
export {
  AutoScaler,
  type AutoScalerConfig,
  checkAutoScaler,
  noTriggers,
  type ScaleTriggers,
} from './autoScaler.ts';
export { scalingPolicies } from './policies/registry.ts';
export {
  checkActuation,
  type Replica,
  type ReplicaAction,
  type ReplicaPhase,
  type ReplicaStart,
  Replicas,
} from './replicas.ts';
export { warmupFactor } from './warmup.ts';
