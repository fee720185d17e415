/** Replicas that come and go. */

export { makeScaling } from './makeScaling.ts';
export { freshScaling, ScalingLoop, type ScalingSetup } from './scalingLoop.ts';
export { Traffic } from './traffic.ts';
