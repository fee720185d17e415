/** The report of a server soak: requests served, growth of memory, times of `begin`. */

import { formatBytes, formatCount, renderTable } from '../../../src/io/printing/text.ts';
import { leaks, type Slope, theilSen } from '../judging/slope.ts';
import { type BeginTimes, quantile } from './beginTimes.ts';
import type { RestSample, ServerSoakReport } from './campaign.ts';

/**
 * Of the samples: caches of the process still fill, and what the driver keeps of devices that are lost under
 * load levels off after some tens of them.
 */
const WARM_UP_SHARE = 0.4;
/** Growth from the end of the warm-up to the last sample that is still called flat. */
const TOLERATED_SHARE = 0.02;
const TOLERATED_BYTES = 8 * 1024 * 1024;
const SAMPLES_MIN = 8;
/** The largest ratio of the times of `begin` with a slow disk and without a disk. */
export const RATIO_MAX = 5;

export interface Growth {
  readonly what: string;
  readonly median: number;
  /** Bytes a minute. Undefined: too few samples to say. */
  readonly slope: Slope | undefined;
  readonly minutes: number;
  readonly leaks: boolean;
}

const kinds: readonly (readonly [string, (sample: RestSample) => number])[] = [
  ['RSS', (sample) => sample.rssBytes],
  ['heap used', (sample) => sample.heapUsedBytes],
  ['external', (sample) => sample.externalBytes],
  ['array buffers', (sample) => sample.arrayBuffersBytes],
];

export function growthsOf(samples: readonly RestSample[]): Growth[] {
  const steady = samples.slice(Math.ceil(samples.length * WARM_UP_SHARE));
  const times = steady.map(({ minutes }) => minutes);
  const minutes = (times.at(-1) ?? 0) - (times[0] ?? 0);
  return kinds.map(([what, of]) => {
    const values = steady.map(of);
    const median = quantile(values, 0.5);
    const slope = steady.length < SAMPLES_MIN ? undefined : theilSen(times, values);
    const tolerated = Math.max(TOLERATED_SHARE * median, TOLERATED_BYTES) / minutes;
    return { what, median, slope, minutes, leaks: slope !== undefined && leaks(slope, tolerated) };
  });
}

/** Why the soak failed, a line each; none when it passed. Times are no part of it. */
export function failuresOf(report: ServerSoakReport): string[] {
  const { served, compared, unrest } = report;
  return [
    ...(compared.wrongTokens > 0
      ? [`KV of ${compared.wrongTokens} tokens was wrong`, ...compared.wrong]
      : []),
    ...(served.wrongTokens > 0 ? [`${served.wrongTokens} tokens of answers were wrong`] : []),
    ...served.rejected.map((error) => `rejected: ${error}`),
    ...served.hung.map((request) => `hangs: ${request}`),
    ...growthsOf(report.samples)
      .filter((growth) => growth.leaks)
      .map(({ what }) => `${what} grows`),
    ...unrest,
  ];
}

export function workLines({
  served,
  compared,
  times,
  counters,
  rounds,
  devicesLost,
}: ServerSoakReport): string {
  const count = (name: string): string => formatCount(counters[name] ?? 0);
  return [
    `${formatCount(served.requests)} requests in ${rounds} rounds: ${formatCount(served.answered)} answered, ` +
      `${formatCount(served.disconnected)} clients left, ${served.rejected.length} rejected, ${served.hung.length} hung`,
    `${formatCount(served.tokens)} tokens generated, ${formatCount(compared.prefilled)} prefilled, ` +
      `${formatCount(compared.found)} found; KV of ${formatCount(compared.tokensCompared)} tokens compared, ` +
      `${compared.wrongTokens} wrong`,
    `${devicesLost} devices lost; up to ${times.waitingMost} requests waited for room; hits HBM ${count('hits.hbm')}, ` +
      `DDR ${count('hits.ddr')}, NVMe ${count('hits.nvme')}, misses ${count('misses')}; blocks written to the disk ` +
      `${count('demotions.ddr')}, dropped instead ${count('demotionsSkipped')}`,
  ].join('\n');
}

export function growthTable(samples: readonly RestSample[]): string {
  const right = 'right' as const;
  const perMinute = (value: number): string => `${(value / 1024).toFixed(1)} KiB`;
  return renderTable(
    [
      { title: `at rest, ${samples.length} samples` },
      { title: 'median', align: right },
      { title: 'growth a minute', align: right },
      { title: '95 % interval', align: right },
      { title: 'verdict' },
    ],
    growthsOf(samples).map(({ what, median, slope, leaks: grows }) => [
      what,
      formatBytes(Math.round(median)),
      slope === undefined ? '-' : perMinute(slope.perUnit),
      slope === undefined ? 'too short to say' : `${perMinute(slope.low)} to ${perMinute(slope.high)}`,
      slope === undefined ? '-' : grows ? 'GROWS' : 'flat',
    ]),
  );
}

/** @param over with the disk @param without with none */
export function timesTable(over: BeginTimes, without: BeginTimes): string {
  const right = 'right' as const;
  const rows = (['atOnce', 'all'] as const).flatMap((which) =>
    [0.5, 0.9, 0.99].map((share) => {
      const [with_, bare] = [quantile(over[which], share), quantile(without[which], share)];
      return [
        `${which === 'atOnce' ? 'found room at once' : 'with the wait for room'}, p${share * 100}`,
        `${bare.toFixed(1)} ms`,
        `${with_.toFixed(1)} ms`,
        (with_ / bare).toFixed(2),
      ];
    }),
  );
  return renderTable(
    [
      { title: 'begin that hits DDR' },
      { title: `no disk (${formatCount(without.all.length)})`, align: right },
      { title: `slow disk (${formatCount(over.all.length)})`, align: right },
      { title: 'ratio', align: right },
    ],
    rows,
  );
}

/** How many times as long the p99 of `begin` is over the disk: with and without the wait for room. */
export function ratiosOf(
  over: BeginTimes,
  without: BeginTimes,
): { readonly atOnce: number; readonly all: number } {
  const ratio = (which: 'atOnce' | 'all'): number =>
    quantile(over[which], 0.99) / quantile(without[which], 0.99);
  return { atOnce: ratio('atOnce'), all: ratio('all') };
}

/**
 * How long those waited that had blocks read from the disk: as long as it takes, since they asked to wait.
 */
export function diskLine({ fromDisk }: BeginTimes): string {
  const [median, most] = [0.5, 0.99].map((share) => (quantile(fromDisk, share) / 1000).toFixed(2));
  return `begin that reads the slow disk (${formatCount(fromDisk.length)}): median ${median} s, p99 ${most} s`;
}

export function lastLine(report: ServerSoakReport): string {
  const { served, compared } = report;
  return (
    `requests ${served.requests}, wrong tokens ${compared.wrongTokens + served.wrongTokens}, ` +
    `rejected ${served.rejected.length}, hung ${served.hung.length}, held at rest ${report.unrest.length}`
  );
}
