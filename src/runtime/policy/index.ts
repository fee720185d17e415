/** Eviction policies: what they are told and asked, and how one is chosen. */

export type { EvictionPolicy, PolicyChoice, PolicyWorld, Retention, Visit } from './evictionPolicy.ts';
export { defaultEviction, evictionPolicyNames, makeEvictionPolicy, resolvePolicy } from './registry.ts';
export type { Retaining } from './retaining.ts';
