/** How a prefix that lies below HBM is brought back: how much of it is loaded, how much computed again. */

export {
  type ComputeEstimate,
  type LoadEstimate,
  type LoadPlan,
  loadOrRecompute,
  type PrefixLeft,
  planOf,
} from './loadOrRecompute.ts';
