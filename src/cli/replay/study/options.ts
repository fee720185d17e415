/**
 * What a study of policies is asked for: which policies, at which capacities. A study moves no bytes. It is
 * what `--policy` prints beside a replay, and all that is done for several policies or capacities, or for a
 * trace that is not in Mooncake's format.
 */

import { configError, requireInteger } from '../../../runtime/errors.ts';
import { evictionPolicyNames, type PolicyChoice, resolvePolicy } from '../../../runtime/index.ts';
import { nearestName } from '../../../runtime/nearestName.ts';

export interface StudyOptions {
  /** Beside LRU and the optimum. */
  readonly policies: readonly string[];
  /** HBM of each run, in blocks. */
  readonly capacities: readonly number[];
  readonly lower: readonly [ddr: number, nvme: number];
}

/** What `--policy` may say besides the names of policies. */
const ALL = 'all';
const OPTIMUM = 'optimum';
/** It ranks by owner, which a trace does not name: it would be LRU. */
const NEEDS_OWNERS = 'priority';

/** @throws TKV_CONFIG for a name that is not known, with the nearest one */
export function parsePolicies(text: string): readonly string[] {
  const words = text.split(',').map((word) => word.trim());
  const known = [...evictionPolicyNames, ALL, OPTIMUM];
  for (const word of words) {
    if (known.includes(word)) continue;
    const near = nearestName(word, known);
    const remedy = near === undefined ? `Known: ${known.join(', ')}.` : `Did you mean ${near}?`;
    throw configError('--policy', `names ${JSON.stringify(word)}, which is not known`, remedy);
  }
  if (words.includes(ALL)) return evictionPolicyNames.filter((name) => name !== NEEDS_OWNERS);
  return [...new Set(words.filter((word) => word !== OPTIMUM))];
}

/** Whether the words name one policy, under which a replay can run. */
export function singlePolicy(text: string): PolicyChoice | undefined {
  return evictionPolicyNames.includes(text.trim()) ? resolvePolicy({ policy: text.trim() }) : undefined;
}

/** Capacities as a list. @throws TKV_CONFIG for one that is no count of blocks */
export function parseCapacities(text: string, most: number): readonly number[] {
  return [...new Set(text.split(',').map((word) => blocksOf('--hbm-blocks', word, 1, most)))];
}

/** A count of blocks. @throws TKV_CONFIG naming the option */
export function blocksOf(option: string, text: string, least: number, most?: number): number {
  if (/^\s*\d+\s*$/.test(text)) return requireInteger(option, Number(text), least, most);
  throw configError(
    option,
    `has ${JSON.stringify(text.trim())} for a number`,
    `Give it whole numbers from ${least} on.`,
  );
}
