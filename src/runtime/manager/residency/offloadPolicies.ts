/**
 * When cached blocks of a tier go to the tier below, by a policy's name and its parameters:
 *
 *     lazy        only when their room is needed
 *     threshold   after each release, coldest first, while the tier is fuller than `share`: they move
 *     eager       as soon as nobody holds them: they are copied and stay, so that evicting them costs nothing
 *     intent      after each release, while the tier is fuller than `share`, the `ahead` blocks that would be
 *                 evicted next are copied and stay: the write is over by the time that their room is needed
 *
 * A copy is only ever made of a block that no lower tier has or awaits, and only where the tier below takes
 * it and the write budget allows it.
 */

import { configError, requireFraction, requireInteger } from '../../errors.ts';
import { nearestName } from '../../nearestName.ts';
import { requireChoice } from '../../policy/registry.ts';

/** What a configuration names: the policy and its parameters, as plain data. */
export interface OffloadChoice {
  readonly policy: string;
  /** Of `threshold` and `intent`: the share of the tier, 0 to 1, above which they act. Default 0.9. */
  readonly share?: number;
  /** Of `intent`: how many blocks ahead of their eviction are copied. Default 64. */
  readonly ahead?: number;
}

export interface ResolvedOffload {
  readonly policy: OffloadPolicyName;
  readonly share: number;
  readonly ahead: number;
}

const parametersOf = {
  lazy: [],
  threshold: ['share'],
  eager: [],
  intent: ['share', 'ahead'],
} as const;
export type OffloadPolicyName = keyof typeof parametersOf;

export const offloadPolicyNames: readonly string[] = Object.keys(parametersOf);

const SHARE_DEFAULT = 0.9;
const AHEAD_DEFAULT = 64;
const AHEAD_MAX = 4096;

/** @throws TKV_CONFIG naming the field under `field` that is not known or out of range */
export function resolveOffload(field: string, choice: OffloadChoice): ResolvedOffload {
  requireChoice(field, choice, offloadPolicyNames);
  const { policy, ...parameters } = choice;
  if (!isOffloadPolicy(policy)) throw unknown(`${field}.policy`, policy, offloadPolicyNames);
  const known: readonly string[] = parametersOf[policy];
  for (const name of Object.keys(parameters)) {
    if (!known.includes(name)) throw unknown(`${field}.${name}`, name, known);
  }
  return {
    policy,
    share: requireFraction(`${field}.share`, choice.share ?? SHARE_DEFAULT),
    ahead: requireInteger(`${field}.ahead`, choice.ahead ?? AHEAD_DEFAULT, 1, AHEAD_MAX),
  };
}

function isOffloadPolicy(name: string): name is OffloadPolicyName {
  return Object.hasOwn(parametersOf, name);
}

function unknown(field: string, name: string, known: readonly string[]): Error {
  const near = nearestName(String(name), known);
  const remedy =
    near !== undefined
      ? `Did you mean ${near}?`
      : known.length > 0
        ? `Known: ${known.join(', ')}.`
        : 'The policy takes no parameters: leave it out.';
  return configError(field, `is not known (${JSON.stringify(name)})`, remedy);
}
