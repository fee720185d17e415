/**
 * The tiers, ordered from fast to slow, the outcomes of a transfer, and the names of both in logs and tables. Shared code
 * goes over the tiers of a configuration; the name of one stands in its store, in its row and in the list here.
 */

import { type CodeName, codeNames } from '../codes.ts';
import { configError, requireInteger } from '../errors.ts';
import * as is from '../kinds.ts';
import { checkInputs } from '../options.ts';

/**
 * The registration of names, from the fastest tier to the slowest, each with the title that people read. A tier of an
 * embedder's own adds its name to this interface by module augmentation, and to the list by `addTierName`.
 */
export interface TierTitles {
  hbm: 'HBM';
  ddr: 'DDR';
  nvme: 'NVMe';
  remote: 'Remote';
}

/** The name of a tier in a configuration, such as `ddr`. */
export type TierName = Extract<keyof TierTitles, string>;

const titles: Record<string, string> = { hbm: 'HBM', ddr: 'DDR', nvme: 'NVMe', remote: 'Remote' };
const names: TierName[] = Object.keys(titles) as TierName[];

/** Every tier that a configuration may name, from fast to slow. */
export const tierNames: readonly TierName[] = names;

/** A tier's number: its place in `tierNames`. */
export type Tier = number;

/** The numbers of the tiers that come with this package, for their own stores and for tests. */
export const Tier = { HBM: 0, DDR: 1, NVME: 2, REMOTE: 3 } as const;

/**
 * Position of the top tier in every list of tiers that a configuration has: the fastest is the first, and sequences
 * read and write there.
 */
export const TOP = 0;

/**
 * Adds a tier behind all others. Call it before the first configuration that names it; a second call changes nothing.
 * @param title for tables and messages
 * @throws TKV_CONFIG for a name that no option or link could carry
 * @returns its number
 */
export function addTierName(name: TierName, title: string = name): Tier {
  checkInputs({ name, title }, { name: is.text(), title: is.optional(is.text()) });
  if (!/^[a-z][a-z0-9]*$/.test(name)) {
    throw configError('name', `is ${JSON.stringify(name)}`, 'Use small letters and digits, a letter first.');
  }
  if (!names.includes(name)) names.push(name);
  titles[name] = title;
  return names.indexOf(name);
}

export function tierName(tier: Tier): TierName {
  return names[tier];
}

/** How a tier is called in tables and messages, such as `NVMe`. */
export function tierTitle(name: TierName): string {
  return titles[name] ?? name;
}

const links: string[][] = [];

/** The name of the link that carries blocks from one tier to another, such as `hbmToDdr`. */
export function linkName(from: Tier, to: Tier): string {
  requireInteger('from', from, 0, names.length - 1);
  requireInteger('to', to, 0, names.length - 1);
  const known = links[from]?.[to];
  if (known !== undefined) return known;
  const target = names[to];
  const name = `${names[from]}To${target[0].toUpperCase()}${target.slice(1)}`;
  links[from] ??= [];
  links[from][to] = name;
  return name;
}

/** The links between all tiers, neighbours first, and downwards before upwards. */
export function tierLinks(): { readonly name: string; readonly from: Tier; readonly to: Tier }[] {
  const found = [];
  for (let lower = 1; lower < names.length; lower++) {
    for (let upper = lower - 1; upper >= 0; upper--) {
      found.push({ name: linkName(upper, lower), from: upper, to: lower });
      found.push({ name: linkName(lower, upper), from: lower, to: upper });
    }
  }
  return found;
}

/**
 * How a transfer can end. `loaded` is the only success, of reads and writes alike; "done" cannot be built from an
 * error.
 *
 *   loaded     the bytes are in place and, where the destination verifies, they are right
 *   missing    the source holds nothing under that name
 *   corrupt    the bytes differ from what was asked for: digest, key, layout or generation disagree
 *   timedOut   the deadline passed; the slots stay taken until the job retires
 *   refused    nothing was done and nothing harmed: disk full, I/O error, device lost, stale generation
 *   cancelled  its last waiter has gone
 */
export const Outcome = { LOADED: 0, MISSING: 1, CORRUPT: 2, TIMED_OUT: 3, REFUSED: 4, CANCELLED: 5 } as const;
export type Outcome = (typeof Outcome)[keyof typeof Outcome];

export const outcomeNames: readonly CodeName<typeof Outcome>[] = codeNames(Outcome);
