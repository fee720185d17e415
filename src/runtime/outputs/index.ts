/** What a scheduler and an operator are told of the cache. */

export { type KVBudget, kvBudget, type TierBudget } from './kvBudget.ts';
export { type KVMetrics, kvMetrics, type TierMetrics } from './kvMetrics.ts';
