/** The deciders between one instance for a whole request and a hand-off. */

import type { InstanceSnapshot } from '../instances.ts';
import { StatelessPolicy } from '../policy.ts';
import type { RequestView } from '../request.ts';
import type { RouterState } from '../routerState.ts';
import type { PrefillDecodeDecider, PrefillDecodeDecision } from './prefillDecodeDecider.ts';

/** `never` and `always`. */
export class Fixed extends StatelessPolicy implements PrefillDecodeDecider {
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
  return request.promptTokens - router.observedKv.hbmBlocks(request, instance) * blockTokens;
}

/** Hands off when the decode instance would have to compute more than so many prompt tokens itself. */
export class PrefixThreshold extends StatelessPolicy implements PrefillDecodeDecider {
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
export class TokenCap extends StatelessPolicy implements PrefillDecodeDecider {
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
