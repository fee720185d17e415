/** Replicas that come and go, in each configuration that scales. */

export { makeScaling } from './makeScaling.ts';
export type { ReplicaChange, ScaleChange } from './scaleChange.ts';
export { freshScaling, type ScalingSetup } from './scalingLoop.ts';
export { ScalingLoops } from './scalingLoops.ts';
