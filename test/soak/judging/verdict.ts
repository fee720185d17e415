/** What a soak says of a runtime: how each thing that could leak grew, and whether that is a leak. */

import type { Sample, SoakReport } from '../campaign.ts';
import { leaks, type Slope, theilSen } from './slope.ts';

/**
 * Hours of the trace in which caches of the process still fill; of a run too short for a slope, a quarter.
 */
const WARM_UP_HOURS = 0.25;
const WARM_UP_SHARE = 0.25;
/** What is projected to an hour has to have been watched for a fifth of one after that. */
const SPAN_HOURS_MIN = 0.2;

/**
 * Growth over an hour's traffic that is still called flat: this share of the resident bytes, or this number
 * of bytes where that is more.
 */
const TOLERATED_SHARE = 0.02;
const TOLERATED_BYTES = 8 * 1024 * 1024;

/** Cores that an idle runtime may keep busy. */
export const IDLE_CORES_MAX = 0.01;

export interface Growth {
  readonly what: string;
  readonly unit: 'bytes' | 'count';
  /** Over an hour's traffic. Undefined: too short to say. */
  readonly slope: Slope | undefined;
  readonly median: number;
  readonly tolerance: number;
  readonly leaks: boolean;
}

export interface Verdict {
  readonly growths: readonly Growth[];
  readonly rss: Growth;
  readonly warmUpSamples: number;
  /** Why the soak failed, a line each; none when it passed. */
  readonly failures: readonly string[];
}

export function verdictOf({ samples, tally, totals, unrest, idle }: SoakReport): Verdict {
  const hours = samples.at(-1)?.hours ?? 0;
  const warmUpHours = isLongEnough(hours) ? WARM_UP_HOURS : hours * WARM_UP_SHARE;
  const warmUpSamples = samples.filter((sample) => sample.hours <= warmUpHours).length;
  const steady = samples.slice(warmUpSamples);
  const bytes = (what: string, of: (sample: Sample) => number): Growth => byteGrowth(what, steady, of);
  const rss = bytes('RSS', (sample) => sample.rssBytes);
  const growths = [
    rss,
    bytes('heap used', (sample) => sample.heapUsedBytes),
    bytes('external', (sample) => sample.externalBytes),
    bytes('array buffers', (sample) => sample.arrayBuffersBytes),
    countGrowth('descriptors', steady, (sample) => sample.fds),
    countGrowth('threads', steady, (sample) => sample.threads),
  ].filter((growth) => growth !== undefined);
  const failures = [
    ...(tally.wrongBlocks > 0 ? [`${tally.wrongBlocks} blocks held wrong bytes`] : []),
    ...(tally.unreadable > 0 ? [`${tally.unreadable} blocks could not be compared`] : []),
    ...(totals.diverged > 0 ? [`${totals.diverged} blocks differ from others of the same content`] : []),
    ...growths.filter((growth) => growth.leaks).map(({ what }) => `${what} grows`),
    ...unrest,
    ...idle
      .filter(({ cores }) => cores >= IDLE_CORES_MAX)
      .map(({ wait, cores }) => `idle (wait: ${wait}) keeps ${cores.toFixed(4)} of a core busy`),
  ];
  return { growths, rss, warmUpSamples, failures };
}

function byteGrowth(what: string, steady: readonly Sample[], of: (sample: Sample) => number): Growth {
  const median = middle(steady.map(of));
  const tolerance = Math.max(TOLERATED_SHARE * median, TOLERATED_BYTES);
  const slope = slopeOf(steady, steady.map(of));
  return {
    what,
    unit: 'bytes',
    slope,
    median,
    tolerance,
    leaks: slope !== undefined && leaks(slope, tolerance),
  };
}

function countGrowth(
  what: string,
  steady: readonly Sample[],
  of: (sample: Sample) => number | undefined,
): Growth | undefined {
  const counts = steady.map(of).filter((count) => count !== undefined);
  if (counts.length === 0) return undefined;
  const slope = slopeOf(steady, counts);
  return { what, unit: 'count', slope, median: middle(counts), tolerance: 0, leaks: climbs(counts) };
}

function slopeOf(steady: readonly Sample[], values: readonly number[]): Slope | undefined {
  const hours = steady.map((sample) => sample.hours);
  return isLongEnough(hours.at(-1) ?? 0) ? theilSen(hours, values) : undefined;
}

function isLongEnough(hours: number): boolean {
  return hours >= WARM_UP_HOURS + SPAN_HOURS_MIN;
}

/**
 * Whether the last third never comes down to where the first third was: a count of what is held has no other
 * noise.
 */
export function climbs(counts: readonly number[]): boolean {
  const third = Math.floor(counts.length / 3);
  if (third === 0) return false;
  return Math.min(...counts.slice(-third)) > Math.max(...counts.slice(0, third));
}

function middle(values: readonly number[]): number {
  return [...values].sort((a, b) => a - b)[values.length >> 1] ?? 0;
}
