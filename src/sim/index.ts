/** BLIS: the simulator's parts. */

export * from './cluster/index.ts';
export * from './control/index.ts';
export * from './deployment/index.ts';
export * from './driver/index.ts';
export * from './instance/index.ts';
export * from './kernel/index.ts';
export * from './latency/index.ts';
export * from './metrics/index.ts';
export * from './random/index.ts';
export * from './report/index.ts';
export * from './sandbox/index.ts';
export { ModeledTier } from './tier/modeledTier.ts';
export * from './workload/index.ts';
