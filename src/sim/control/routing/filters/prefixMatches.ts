/** How much of a prompt an instance is believed to have, for filters that go by it. */

import type { PlainState, Stateful } from '../../policy.ts';
import type { RoutingContext } from '../routingPolicy.ts';
import { affinityBlocks, PrefixAffinity } from '../scorers/index.ts';

/** `router`: where it sent the prefix before (llm-d's approximate producer); `caches`: as they told it. */
export const prefixSources = ['router', 'caches'] as const;
export type PrefixSource = (typeof prefixSources)[number];

export class PrefixMatches implements Stateful {
  readonly source: PrefixSource;
  readonly #memory: PrefixAffinity = new PrefixAffinity(affinityBlocks);

  constructor(source: PrefixSource) {
    this.source = source;
  }

  /** Leading blocks of the prompt. */
  blocks({ request, router }: RoutingContext, instance: number): number {
    return this.source === 'caches'
      ? router.observedKv.hbmBlocks(request, instance)
      : this.#memory.matchedBlocks(request, instance);
  }

  /** Of all blocks of the prompt; 0 for a prompt without a full block. */
  share(context: RoutingContext, instance: number): number {
    const { promptBlocks } = context.request;
    return promptBlocks === 0 ? 0 : this.blocks(context, instance) / promptBlocks;
  }

  routed(context: RoutingContext, instance: number): void {
    if (this.source === 'router') this.#memory.routed(context, instance);
  }

  removed(instance: number): void {
    this.#memory.removed(instance);
  }

  snapshot(): PlainState {
    return this.#memory.snapshot();
  }

  restore(state: PlainState): void {
    this.#memory.restore(state);
  }
}
