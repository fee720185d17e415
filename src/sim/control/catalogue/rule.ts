/**
 * Whole-router rules: what published routers do beyond a weighted sum of scorers. A rule scores every
 * candidate for the record and says which it takes.
 */

import type { Stateful, StateVisitor } from '../../../runtime/snapshot.ts';
import type { InstanceSnapshot, PolicyWorld } from '../policy.ts';
import type { NumberRule, ParameterRule, ParameterRules, PolicyParameters } from '../registry.ts';
import {
  Picker,
  type RoutingChoice,
  type RoutingContext,
  type RoutingPolicy,
  tieNames,
} from '../routing/routingPolicy.ts';
import { PrefixAffinity } from '../routing/scorers.ts';

/** A rule's choice, and the branch that made it. */
export interface Taken {
  readonly index: number;
  readonly reason: string;
}

export abstract class ScoredRule implements RoutingPolicy {
  abstract readonly name: string;
  readonly readsCaches: boolean = false;
  readonly readsReports: boolean = false;
  protected readonly picker: Picker;
  readonly #memories: readonly Stateful[];
  #scores: Float64Array = new Float64Array(8);

  /** @param memories what the rule remembers beside the draws of its picker */
  constructor(picker: Picker, memories: readonly Stateful[] = []) {
    this.picker = picker;
    this.#memories = memories;
  }

  choose(context: RoutingContext): RoutingChoice {
    const count = context.candidates.length;
    if (this.#scores.length < count) this.#scores = new Float64Array(2 * count);
    const { index, reason } = this.take(context, this.#scores);
    return { index, reason: `${this.name}: ${reason}`, scores: this.#scores, parts: [], filteredOut: [] };
  }

  /** Fills `scores[i]` for candidate i, higher is better, `-Infinity` for one that is out of the question. */
  protected abstract take(context: RoutingContext, scores: Float64Array): Taken;

  /** The least of `cost` among the candidates that `keeps` is true of; among all if it is true of no candidate. */
  protected least(
    candidates: readonly InstanceSnapshot[],
    scores: Float64Array,
    cost: (instance: InstanceSnapshot, i: number) => number,
    keeps: (instance: InstanceSnapshot, i: number) => boolean = () => true,
  ): number {
    const someKept = candidates.some(keeps);
    for (let i = 0; i < candidates.length; i++) {
      scores[i] = someKept && !keeps(candidates[i], i) ? -Infinity : -cost(candidates[i], i);
    }
    return this.picker.highest(scores, candidates.length);
  }

  visitState(visitor: StateVisitor): void {
    this.picker.visitState(visitor);
    for (const memory of this.#memories) memory.visitState(visitor);
  }
}

export const inFlightOf = ({ inFlight }: InstanceSnapshot): number => inFlight;

//  A rule that remembers which prompts it sent where, whichever way it decided.

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

//  Parameters that several rules have.

export function numberRule(byDefault: number, limits: Partial<NumberRule> = { min: 0 }): NumberRule {
  return { kind: 'number', default: byDefault, ...limits };
}

export function wholeRule(byDefault: number, min: number = 0): NumberRule {
  return numberRule(byDefault, { min, integer: true });
}

export function positiveRule(byDefault: number): NumberRule {
  return numberRule(byDefault, { above: 0 });
}

/** How equal scores are told apart. */
export const tiesRule: ParameterRule = { kind: 'choice', default: 'lowest', names: tieNames };

export function pickerOf(p: PolicyParameters, world: PolicyWorld): Picker {
  return Picker.of(p.text('ties'), world);
}

/**
 * `memoryBlocks`: keys that a rule remembers of each instance. Default: SGLang's 2^26 characters, at 4 characters a token and
 * 16 tokens a block.
 */
export const memoryRules: ParameterRules = { memoryBlocks: wholeRule(2 ** 20, 1), ties: tiesRule };
