/**
 * A choice among prefixes, for each request or session anew. The tokens of a group are a stream of their own,
 * named after workload and group, so that they move no other draw and are the same for every client.
 */

import { type GoRandom, partitionSeed } from '../../../random/index.ts';
import type { RequestOrigin } from '../../request.ts';
import type { PrefixChoiceSpec } from '../../spec/additions/index.ts';
import { NO_PREFIX, type Prefix } from '../prefix.ts';

export interface ChosenPrefix {
  readonly prefix: Prefix;
  readonly origin: RequestOrigin;
}

export class PrefixChoice {
  readonly #probability: number;
  readonly #none: ChosenPrefix;
  readonly #choices: readonly (ChosenPrefix & { readonly upTo: number })[];

  constructor(spec: PrefixChoiceSpec, origin: RequestOrigin, workloadSeed: bigint) {
    this.#probability = spec.reuseProbability;
    this.#none = { prefix: NO_PREFIX, origin };
    const total = spec.groups.reduce((sum, { popularity }) => sum + popularity, 0);
    let reached = 0;
    this.#choices = spec.groups.map(({ id, tokens, popularity }) => {
      reached += popularity / total;
      const seed = partitionSeed(workloadSeed, `prefix/${id}`);
      const prefix: Prefix = { tokens, spans: [{ seed, position: 0, tokens }] };
      return { prefix, origin: { ...origin, prefixGroup: id }, upTo: reached };
    });
  }

  choose(random: GoRandom): ChosenPrefix {
    if (random.float64() >= this.#probability) return this.#none;
    const drawn = random.float64();
    return this.#choices.find(({ upTo }) => drawn < upTo) ?? this.#choices[this.#choices.length - 1];
  }
}
