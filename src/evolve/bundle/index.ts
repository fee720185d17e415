/** Policy bundles: their shape, how they are read, named and described. */

export { describePolicies, descriptionText, type PolicyDescription } from './describe.ts';
export * from './policyBundle.ts';
export { canonicalJson, contentHash, policyId } from './policyId.ts';
export { baseline, preset, presets, withItsScheduler } from './presets.ts';
export { bundleLimits } from './reading/fields.ts';
export { parseBundle, readBundle } from './reading/readBundle.ts';
export { treeComparisons } from './reading/readTree.ts';
export { bundleSchema } from './schema.ts';
export {
  observerFunction,
  type SlotAction,
  type SlotContract,
  type SlotFunction,
  slotContracts,
  treeFeatures,
} from './slots.ts';
export {
  type BatchRule,
  batchRuleNames,
  evictionPolicies,
  schedulerOrders,
  type VictimRule,
  victimRuleNames,
} from './templates.ts';
