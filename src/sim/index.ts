/** BLIS: the simulator's parts. */

export { ModeledTier } from './tier/modeledTier.ts';
export * from './latency/index.ts';
