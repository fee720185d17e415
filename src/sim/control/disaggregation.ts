/** Deciders of prefill/decode disaggregation: whether another instance computes a request's prompt than its output. */

import { type InstanceSnapshot, type NamedPolicy, noMemory, type RequestView } from './policy.ts';
import { type NumberRule, Registry } from './registry.ts';
import type { RouterState } from './routerState.ts';

/** `never` and `always`. */
function fixed(name: string, disaggregate: boolean): PrefillDecodeDecider {
  return { ...noMemory, name, readsCaches: false, decide: () => ({ disaggregate, reason: name }) };
}

/** Prompt tokens that the instance would have to compute, as far as the router knows its cache. */
function uncachedTokens(
  request: RequestView,
  { instance }: InstanceSnapshot,
  router: RouterState,
  blockTokens: number,
): number {
  return request.promptTokens - router.observedKv.topBlocks(request, instance) * blockTokens;
}

/** Hands off when the decode instance would have to compute more than `tokens` prompt tokens itself. */
function prefixThreshold(tokens: number, blockTokens: number): PrefillDecodeDecider {
  return {
    ...noMemory,
    name: 'prefix-threshold',
    readsCaches: true,
    decide(request, decode, router) {
      const uncached = uncachedTokens(request, decode, router, blockTokens);
      return { disaggregate: uncached > tokens, reason: `${uncached} tokens are not cached there` };
    },
  };
}

/**
 * Two limits on uncached tokens, as in Dynamo: up to the lower one the request stays whole, above the upper
 * one it is always handed off, and between the two while the decode instance has requests waiting.
 */
function tokenCap(bypass: number, always: number, blockTokens: number): PrefillDecodeDecider {
  return {
    ...noMemory,
    name: 'token-cap',
    readsCaches: true,
    decide(request, decode, router) {
      const uncached = uncachedTokens(request, decode, router, blockTokens);
      const disaggregate = uncached > always || (uncached > bypass && decode.queueDepth > 0);
      return { disaggregate, reason: `${uncached} tokens are not cached there` };
    },
  };
}

//  The contract.

interface PrefillDecodeDecision {
  readonly disaggregate: boolean;
  readonly reason: string;
}

export interface PrefillDecodeDecider extends NamedPolicy {
  /** Whether it asks the router's observed view of caches. */
  readonly readsCaches: boolean;
  /** @param decode the instance that was chosen to decode */
  decide(request: RequestView, decode: InstanceSnapshot, router: RouterState): PrefillDecodeDecision;
}

//  The registry.

function tokens(byDefault: number): NumberRule {
  return { kind: 'number', default: byDefault, min: 0, integer: true };
}

export const prefillDecodeDeciders: Registry<PrefillDecodeDecider> = new Registry<PrefillDecodeDecider>(
  'decider',
  [
    {
      name: 'never',
      readsKeys: false,
      readsReports: false,
      about: 'no hand-off',
      parameters: {},
      make: () => fixed('never', false),
    },
    {
      name: 'always',
      readsKeys: false,
      readsReports: false,
      about: 'every request',
      parameters: {},
      make: () => fixed('always', true),
    },
    {
      name: 'prefix-threshold',
      readsKeys: true,
      readsReports: false,
      about: 'more uncached prompt tokens than a threshold',
      parameters: { tokens: tokens(16) },
      make: (p, world) => prefixThreshold(p.number('tokens'), world.blockTokens),
    },
    {
      name: 'token-cap',
      readsKeys: true,
      readsReports: true,
      about: 'above an upper limit always, above a lower one while requests wait',
      parameters: { bypassTokens: tokens(5000), alwaysTokens: tokens(16384) },
      make: (p, world) => tokenCap(p.number('bypassTokens'), p.number('alwaysTokens'), world.blockTokens),
    },
  ],
);
