/** Rules that draw: all draws come from the router's stream under the key of the simulation. */

import type { StateVisitor } from '../../../runtime/snapshot.ts';
import type { GoRandom } from '../../random/goRand.ts';
import { visitStream } from '../policy.ts';
import type { PolicyEntry } from '../registry.ts';
import type { RoutingChoice, RoutingContext, RoutingPolicy } from '../routing/routingPolicy.ts';

abstract class Drawing implements RoutingPolicy {
  abstract readonly name: string;
  readonly readsCaches: boolean = false;
  readonly readsReports: boolean = false;
  protected readonly random: GoRandom;

  constructor(random: GoRandom) {
    this.random = random;
  }

  choose(context: RoutingContext): RoutingChoice {
    const index = this.draw(context);
    return { index, reason: this.name, scores: null, parts: [], filteredOut: [] };
  }

  protected abstract draw(context: RoutingContext): number;

  visitState(visitor: StateVisitor): void {
    visitStream(visitor, this.random);
  }
}

/** Any of them, all alike. */
class RandomInstance extends Drawing {
  readonly name: string = 'random';

  protected override draw({ candidates }: RoutingContext): number {
    return this.random.intn(candidates.length);
  }
}

/** Two different ones are drawn, and the one with fewer in flight is taken; of two alike the first drawn. */
class PowerOfTwo extends Drawing {
  readonly name: string = 'power-of-two';

  protected override draw({ candidates }: RoutingContext): number {
    const count = candidates.length;
    if (count === 1) return 0;
    const first = this.random.intn(count);
    const other = this.random.intn(count - 1);
    const second = other < first ? other : other + 1;
    return candidates[second].inFlight < candidates[first].inFlight ? second : first;
  }
}

/** Routing rules that draw. */
export const chanceRules: readonly PolicyEntry<RoutingPolicy>[] = [
  {
    name: 'random',
    about: 'any instance, drawn from the stream of the simulation',
    readsKeys: false,
    readsReports: false,
    parameters: {},
    make: (_, world) => new RandomInstance(world.stream('router')),
  },
  {
    name: 'power-of-two',
    about: 'two are drawn, and the one with fewer in flight is taken',
    readsKeys: false,
    readsReports: false,
    parameters: {},
    make: (_, world) => new PowerOfTwo(world.stream('router')),
  },
];
