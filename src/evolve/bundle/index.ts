/** Policy bundles: their shape, how they are read, named and described. */

export { describePolicies, descriptionText, type PolicyDescription } from './describe.ts';
export { bundleLimits } from './fields.ts';
export * from './policyBundle.ts';
export { canonicalJson, contentHash, policyId } from './policyId.ts';
export { baseline, preset, presets } from './presets.ts';
export { parseBundle, readBundle } from './readBundle.ts';
export { treeComparisons } from './readTree.ts';
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
