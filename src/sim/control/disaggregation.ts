/** Deciders of prefill/decode disaggregation: whether another instance computes a request's prompt than its output. */

import { type InstanceSnapshot, type NamedPolicy, type RequestView, StatelessPolicy } from './policy.ts';
import { type NumberRule, Registry } from './registry.ts';
import type { RouterState } from './routerState.ts';

/** `never` and `always`. */
class Fixed extends StatelessPolicy implements PrefillDecodeDecider {
  readonly name: string;
  readonly readsCaches: boolean = false;
  readonly #decision: PrefillDecodeDecision;

  constructor(name: string, disaggregate: boolean) {
    super();
    this.name = name;
    this.#decision = { disaggregate, reason: name };
  }

  decide(): PrefillDecodeDecision {
    return this.#decision;
  }
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
class PrefixThreshold extends StatelessPolicy implements PrefillDecodeDecider {
  readonly name: string = 'prefix-threshold';
  readonly readsCaches: boolean = true;
  readonly #tokens: number;
  readonly #blockTokens: number;

  constructor(tokens: number, blockTokens: number) {
    super();
    this.#tokens = tokens;
    this.#blockTokens = blockTokens;
  }

  decide(request: RequestView, decode: InstanceSnapshot, router: RouterState): PrefillDecodeDecision {
    const uncached = uncachedTokens(request, decode, router, this.#blockTokens);
    return { disaggregate: uncached > this.#tokens, reason: `${uncached} tokens are not cached there` };
  }
}

/**
 * Two limits on uncached tokens, as in Dynamo: up to the lower one the request stays whole, above the upper
 * one it is always handed off, and between the two while the decode instance has requests waiting.
 */
class TokenCap extends StatelessPolicy implements PrefillDecodeDecider {
  readonly name: string = 'token-cap';
  readonly readsCaches: boolean = true;
  readonly #bypass: number;
  readonly #always: number;
  readonly #blockTokens: number;

  constructor(bypass: number, always: number, blockTokens: number) {
    super();
    this.#bypass = bypass;
    this.#always = always;
    this.#blockTokens = blockTokens;
  }

  decide(request: RequestView, decode: InstanceSnapshot, router: RouterState): PrefillDecodeDecision {
    const uncached = uncachedTokens(request, decode, router, this.#blockTokens);
    const disaggregate = uncached > this.#always || (uncached > this.#bypass && decode.queueDepth > 0);
    return { disaggregate, reason: `${uncached} tokens are not cached there` };
  }
}

//  The contract.

export interface PrefillDecodeDecision {
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
      make: () => new Fixed('never', false),
    },
    {
      name: 'always',
      readsKeys: false,
      readsReports: false,
      about: 'every request',
      parameters: {},
      make: () => new Fixed('always', true),
    },
    {
      name: 'prefix-threshold',
      readsKeys: true,
      readsReports: false,
      about: 'more uncached prompt tokens than a threshold',
      parameters: { tokens: tokens(16) },
      make: (p, world) => new PrefixThreshold(p.number('tokens'), world.blockTokens),
    },
    {
      name: 'token-cap',
      readsKeys: true,
      readsReports: true,
      about: 'above an upper limit always, above a lower one while requests wait',
      parameters: { bypassTokens: tokens(5000), alwaysTokens: tokens(16384) },
      make: (p, world) => new TokenCap(p.number('bypassTokens'), p.number('alwaysTokens'), world.blockTokens),
    },
  ],
);
