/**
 * Findings of a replay: the object that is written as JSON and that the table shows. Counts are exact and come from the decisions;
 * rates come from the clock and differ from run to run. `hitDigest` and `decisionDigest` are equal for equal decisions,
 * whatever moved the bytes.
 */

import { tierLinks, tierNames, tierTitle } from '../../runtime/tier/tier.ts';

export interface ReplayReport {
  readonly requests: number;
  /** Hash ids of all requests together. */
  readonly blockLookups: number;
  /** Blocks of the leading hit of each request, by the tier in which they lay at lookup. */
  readonly hits: Readonly<Record<string, number>>;
  /** Blocks that the top tier alone would have served; absent without a lower tier, and of a modeled driver. */
  readonly hbmAloneHits?: number;
  /** sha256, in hex, over the hits of every request in order, each as a decimal number with one newline. */
  readonly hitDigest: string;
  /** Blocks that left each tier downwards, by its link to the next tier that is on. `dropped` left the last tier. */
  readonly demotions: { readonly dropped: number; readonly [link: string]: number };
  /** Bytes copied over each link that was used, such as `ddrToHbm`. */
  readonly bytesMoved: { readonly [link: string]: number };
  /** GB/s (10^9 bytes) of each link that was used, over the time in which it was busy. */
  readonly gbps: { readonly [link: string]: number };
  /** Blocks whose bytes were compared with what they must be, on arrival in the top tier. */
  readonly verified: number;
  /** Compared blocks that differed. Anything but 0 is a fault of the hardware or of tierkv. */
  readonly verifyFailures: number;
  /** The holder of the top tier. `software` marks figures that say nothing about a GPU. */
  readonly adapter: { readonly name: string; readonly software: boolean };
  readonly wallSeconds: number;
  /** sha256, in hex, over the decision log. */
  readonly decisionDigest: string;
  readonly driver: 'real' | 'modeled';
  /** The eviction policy. */
  readonly policy: string;
  /** Malformed trace lines left out. */
  readonly skippedLines: number;
  /** Properties that each configured tier's store really got, fastest first: `TierStore.describe()` by tier name. */
  readonly tiers: { readonly [tier: string]: Readonly<Record<string, string | number | boolean>> };
}

/** How links are called in tables, such as `HBM -> DDR`. */
export function linkTitles(): ReadonlyMap<string, string> {
  const titleOf = (tier: number): string => tierTitle(tierNames[tier]);
  return new Map(tierLinks().map(({ name, from, to }) => [name, `${titleOf(from)} -> ${titleOf(to)}`]));
}
