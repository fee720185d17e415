/** A rule that remembers which prompts it sent where, whichever way it decided. */

import type { Stateful } from '../../policy.ts';
import type { Picker } from '../picking.ts';
import type { RoutingContext } from '../routingPolicy.ts';
import { PrefixAffinity } from '../scorers/index.ts';
import { ScoredRule } from './scoredRule.ts';

export abstract class RememberingRule extends ScoredRule {
  protected readonly memory: PrefixAffinity;

  /** @param memoryBlocks keys that are remembered of each instance, the ones used last */
  constructor(picker: Picker, memoryBlocks: number, memories: readonly Stateful[] = []) {
    const memory = new PrefixAffinity(memoryBlocks);
    super(picker, [memory, ...memories]);
    this.memory = memory;
  }

  /** Remembered leading blocks of the prompt, by candidate. */
  protected matches({ request, candidates }: RoutingContext): number[] {
    return candidates.map(({ instance }) => this.memory.matchedBlocks(request, instance));
  }

  routed(context: RoutingContext, instance: number): void {
    this.memory.routed(context, instance);
  }

  removed(instance: number): void {
    this.memory.removed(instance);
  }
}
