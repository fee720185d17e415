/** What a search is given to begin with: guides to the slots, and its first policies. */

export { crossings } from './crossings.ts';
export { firstPolicies } from './firstPolicies.ts';
export { slotGuides } from './guides.ts';
export { presetsInContext } from './inContext.ts';
