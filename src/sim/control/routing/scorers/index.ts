/** Scorers by name. */

import { NoHitLru, SessionAffinity } from './history.ts';
import {
  activeRequests,
  kvUtilizationScorer,
  loadAware,
  loadBalance,
  loraAffinity,
  queueDepth,
  runningRequests,
  tokenLoad,
  vllmDp,
} from './load.ts';
import { PrefixAffinity, PrefixLength, precisePrefix, shadowPrefix, tieredPrefix } from './prefix.ts';
import type { Scorer } from './scorer.ts';

export { PrefixAffinity } from './prefix.ts';
export type { Scorer } from './scorer.ts';

/** Keys that `prefix-affinity` remembers of each instance; upstream's number. */
export const affinityBlocks = 10_000;

const scorers: Readonly<Record<string, (blockTokens: number) => Scorer>> = {
  'prefix-affinity': () => new PrefixAffinity(affinityBlocks),
  'prefix-length': (blockTokens) => new PrefixLength(affinityBlocks, blockTokens),
  'precise-prefix-cache': precisePrefix,
  'tiered-prefix': tieredPrefix,
  'shadow-prefix': shadowPrefix,
  'no-hit-lru': () => new NoHitLru(),
  'session-affinity': () => new SessionAffinity(),
  'queue-depth': queueDepth,
  'kv-utilization': kvUtilizationScorer,
  'load-balance': loadBalance,
  'active-requests': activeRequests,
  'running-requests': runningRequests,
  'load-aware': loadAware,
  'token-load': tokenLoad,
  'vllm-dp': vllmDp,
  'lora-affinity': loraAffinity,
};

export const scorerNames: readonly string[] = Object.keys(scorers);

/** The others go by what the router counts, remembers, or knows of caches. */
const ofReports: readonly string[] = [
  'queue-depth',
  'kv-utilization',
  'load-balance',
  'running-requests',
  'load-aware',
  'vllm-dp',
  'lora-affinity',
];

/** Whether the scorer of that name goes by what instances report. */
export function scorerReadsReports(name: string): boolean {
  return ofReports.includes(name);
}

/** @param name one of `scorerNames` */
export function makeScorer(name: string, blockTokens: number): Scorer {
  return scorers[name](blockTokens);
}
