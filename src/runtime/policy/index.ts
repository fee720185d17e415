/** Eviction policies: what they are told and asked, and how one is chosen. */

export type { EvictionPolicy, PolicyChoice, PolicyWorld, Retention, Visit } from './evictionPolicy.ts';
export { evictionPolicyNames, makeEvictionPolicy, resolvePolicy } from './registry.ts';
