/**
 * What a replay found: the object that `--json` writes and the table shows. Counts are exact and come from the decisions;
 * rates come from the clock and differ from run to run. `hitDigest` and `decisionDigest` are equal for equal decisions,
 * whatever moved the bytes.
 */

/** A direction in which blocks are copied. A tier that is off is jumped over. */
export const linkNames = [
  'hbmToDdr',
  'ddrToHbm',
  'ddrToNvme',
  'nvmeToDdr',
  'hbmToNvme',
  'nvmeToHbm',
  'hbmToRemote',
  'ddrToRemote',
  'nvmeToRemote',
  'remoteToHbm',
  'remoteToDdr',
] as const;
export type LinkName = (typeof linkNames)[number];

export interface ReplayReport {
  readonly requests: number;
  /** Hash ids of all requests together. */
  readonly blockLookups: number;
  /** Blocks of the leading hit of each request, by the tier in which they lay at lookup. */
  readonly hits: {
    readonly hbm: number;
    readonly ddr: number;
    readonly nvme: number;
    /** Only of a run with a shared tier. */
    readonly remote?: number;
  };
  /** Blocks that HBM alone would have served; absent where there is no lower tier, and of a modeled driver. */
  readonly hbmAloneHits?: number;
  /** sha256, in hex, over the hits of every request in order, each as a decimal number with one newline. */
  readonly hitDigest: string;
  /** Blocks that left a tier downwards. `dropped` left the last tier. */
  readonly demotions: { readonly hbmToDdr: number; readonly ddrToNvme: number; readonly dropped: number };
  /** Bytes copied over each link that was used. */
  readonly bytesMoved: { readonly [link in LinkName]?: number };
  /** GB/s (10^9 bytes) of each link that was used, over the time in which it was busy. */
  readonly gbps: { readonly [link in LinkName]?: number };
  /** Blocks whose bytes were compared with what they must be, on arrival in HBM. */
  readonly verified: number;
  /** Of those, the ones that differed. Anything but 0 is a fault of the hardware or of tierkv. */
  readonly verifyFailures: number;
  /** What held the HBM tier. `software` marks figures that say nothing about a GPU. */
  readonly adapter: { readonly name: string; readonly software: boolean };
  readonly wallSeconds: number;
  /** sha256, in hex, over the decision log. */
  readonly decisionDigest: string;
  readonly driver: 'real' | 'modeled';
  /** The eviction policy. */
  readonly policy: string;
  /** Malformed trace lines left out (`--skip-bad`). */
  readonly skippedLines: number;
  /** What each configured tier's store really got, fastest first: `TierStore.describe()` by tier name. */
  readonly tiers: { readonly [tier: string]: Readonly<Record<string, string | number | boolean>> };
}
