/** BLIS: the simulator's parts. */

export { ModeledTier } from './tier/modeledTier.ts';
