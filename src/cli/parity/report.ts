/** Two runs side by side: what each found, how long transfers and requests took, how far they are apart. */

import type { HandoffFit } from '../../handoff/linkFit.ts';
import type { ServedRequest } from '../../parity/traffic.ts';
import type { VegaLiteSpec } from '../../printing/chart.ts';
import { formatCount, formatCounted, formatShare, printable, renderTable } from '../../printing/text.ts';
import type { ManagerConfig } from '../../runtime/index.ts';
import { tierName } from '../../runtime/tier/tier.ts';
import type { LinkProfiles } from '../../sim/links/modeledDriver.ts';
import { type Summary, summarize } from '../../sim/metrics/statistics.ts';
import { type KnownLinks, priceTransfers } from './links.ts';
import type { ObservedTransfer, RunObserver } from './observer.ts';

export interface Sides<T> {
  readonly real: T;
  readonly predicted: T;
}

export interface HitComparison extends Sides<{ readonly lookups: number; readonly rate: number }> {
  /** Share of the lookups that each tier served. */
  readonly byTier: Readonly<Record<string, Sides<number>>>;
  /** Predicted less real, in percentage points. */
  readonly points: number;
}

export interface LinkComparison extends Sides<Summary> {
  /** Predicted over real, less 1, of the medians. */
  readonly medianError: number;
  /**
   * Half of the real transfers were off by no more than this, each given to the calibrated link when the
   * runtime issued it. Null for none.
   */
  readonly eachError: number | null;
}

export const latencyNames = ['ttft', 'tpot', 'e2e'] as const;
export type LatencyName = (typeof latencyNames)[number];

export interface LatencyComparison extends Sides<Summary> {
  readonly meanError: number;
  readonly p50Error: number;
  readonly p99Error: number;
  /** Half of the requests are off by no more than this. */
  readonly eachError: number;
}

const relative = (predicted: number, real: number): number =>
  real === 0 ? (predicted === 0 ? 0 : Infinity) : predicted / real - 1;

export function compareHits(real: RunObserver, predicted: RunObserver): HitComparison {
  const share = ({ found }: RunObserver, tier: number): number =>
    found.lookups === 0 ? 0 : found.byTier[tier] / found.lookups;
  const byTier = Object.fromEntries(
    real.tiers.map((tier, i) => [tierName(tier), { real: share(real, i), predicted: share(predicted, i) }]),
  );
  return {
    real: { lookups: real.found.lookups, rate: real.hitRate },
    predicted: { lookups: predicted.found.lookups, rate: predicted.hitRate },
    byTier,
    points: 100 * (predicted.hitRate - real.hitRate),
  };
}

export function compareLinks(
  real: RunObserver,
  predicted: RunObserver,
  links: LinkProfiles,
  config: ManagerConfig,
): Record<string, LinkComparison> {
  const priced = priceTransfers(real.transfers, links, config.unitBytes[0]);
  const names = [...new Set([...real.transfers, ...predicted.transfers].map(({ link }) => link))].sort();
  return Object.fromEntries(
    names.map((name): [string, LinkComparison] => {
      const times = (all: readonly ObservedTransfer[]): Summary =>
        summarize(Float64Array.from(all.filter(({ link }) => link === name).map((one) => one.durationUs)));
      const sides = { real: times(real.transfers), predicted: times(predicted.transfers) };
      const errors = real.transfers.flatMap(({ link, durationUs }, i) =>
        link === name ? [Math.abs(relative(priced[i], durationUs))] : [],
      );
      const eachError = errors.length === 0 ? null : summarize(Float64Array.from(errors)).p50;
      return [name, { ...sides, medianError: relative(sides.predicted.p50, sides.real.p50), eachError }];
    }),
  );
}

const measures: Readonly<Record<LatencyName, (request: ServedRequest) => number>> = {
  ttft: ({ arrivalUs, firstTokenUs }) => firstTokenUs - arrivalUs,
  tpot: ({ firstTokenUs, lastTokenUs, outputTokens }) =>
    (lastTokenUs - firstTokenUs) / Math.max(outputTokens - 1, 1),
  e2e: ({ arrivalUs, lastTokenUs }) => lastTokenUs - arrivalUs,
};

/** Requests that both served. */
export function compareLatencies(
  real: readonly ServedRequest[],
  predicted: readonly ServedRequest[],
): Record<LatencyName, LatencyComparison> {
  const other = new Map(predicted.map((request) => [request.key, request]));
  const pairs = real.flatMap((request) => {
    const match = other.get(request.key);
    return match === undefined ? [] : [[request, match] as const];
  });
  const compare = (name: LatencyName): LatencyComparison => {
    const of = measures[name];
    // a single token has no time to the next one
    const counted = name === 'tpot' ? pairs.filter(([{ outputTokens }]) => outputTokens > 1) : pairs;
    const sides = {
      real: summarize(Float64Array.from(counted, ([request]) => of(request))),
      predicted: summarize(Float64Array.from(counted, ([, match]) => of(match))),
    };
    const each = counted.map(([request, match]) => Math.abs(relative(of(match), of(request))));
    return {
      ...sides,
      meanError: relative(sides.predicted.mean, sides.real.mean),
      p50Error: relative(sides.predicted.p50, sides.real.p50),
      p99Error: relative(sides.predicted.p99, sides.real.p99),
      eachError: summarize(Float64Array.from(each)).p50,
    };
  };
  return { ttft: compare('ttft'), tpot: compare('tpot'), e2e: compare('e2e') };
}

//  What `tierkv parity` found, as an object and as text. Figures of a software device say so.

/** Hand-offs of a pair, beside those of its prediction. */
export interface HandoffComparison {
  /** The link of the prediction, fitted to a rehearsal. */
  readonly link: HandoffFit;
  /** Real hand-offs by outcome. */
  readonly ends: Readonly<Record<string, number>>;
  readonly count: Sides<number>;
  /** Blocks and bytes that went over. */
  readonly blocks: Sides<number>;
  readonly bytes: Sides<number>;
  /** Real ones that brought blocks, in microseconds from the claim to the end, computing included. */
  readonly timesUs: Summary;
}

export interface ParityReport {
  readonly schema: 'tierkv.parity/1';
  /** Who served. */
  readonly runner: string;
  readonly adapter: { readonly name: string; readonly software: boolean };
  readonly latencyModel: string;
  /** The links of the prediction, and where they are from: a file, or a rehearsal before the run. */
  readonly links: KnownLinks;
  readonly requests: number;
  readonly exact: {
    readonly identical: boolean;
    readonly lines: number;
    readonly bytes: number;
    /** Byte of the log at which the replay differs, or null. */
    readonly firstDifference: number | null;
  };
  readonly hits: HitComparison;
  readonly transfers: Readonly<Record<string, LinkComparison>>;
  readonly latencies: Readonly<Record<LatencyName, LatencyComparison>>;
  /** Of `--pair`. */
  readonly handoffs?: HandoffComparison;
  readonly wrongBlocks: number;
  readonly interruptedSteps: number;
  readonly wallSeconds: number;
}

const right = (title: string): { title: string; align: 'right' } => ({ title, align: 'right' });

function signed(error: number): string {
  if (!Number.isFinite(error)) return '-';
  return `${error >= 0 ? '+' : '-'}${(100 * Math.abs(error)).toFixed(1)} %`;
}

function time(us: number): string {
  if (us >= 1e6) return `${(us / 1e6).toFixed(2)} s`;
  return us >= 1e4 ? `${(us / 1e3).toFixed(1)} ms` : `${(us / 1e3).toFixed(2)} ms`;
}

function hitTable({ real, predicted, byTier, points }: HitComparison): string {
  const rows = Object.entries(byTier).map(([tier, sides]) => [
    `found in ${tier}`,
    formatShare(sides.real, 1),
    formatShare(sides.predicted, 1),
    `${(100 * (sides.predicted - sides.real)).toFixed(2)} points`,
  ]);
  const all = ['hit rate', formatShare(real.rate, 1), formatShare(predicted.rate, 1)];
  return renderTable(
    [{ title: `of ${formatCount(real.lookups)} blocks` }, right('real'), right('predicted'), right('apart')],
    [...rows, [...all, `${points.toFixed(2)} points`]],
  );
}

function linkTable(transfers: ParityReport['transfers'], software: boolean): string {
  return renderTable(
    [
      { title: software ? 'transfer (software device)' : 'transfer' },
      right('real'),
      right('median'),
      right('predicted'),
      right('median'),
      right('error'),
      right('of each'),
    ],
    Object.entries(transfers).map(([link, { real, predicted, medianError, eachError }]) => [
      link,
      formatCount(real.count),
      time(real.p50),
      formatCount(predicted.count),
      time(predicted.p50),
      real.count === 0 || predicted.count === 0 ? '-' : signed(medianError),
      eachError === null ? '-' : `${(100 * eachError).toFixed(1)} %`,
    ]),
  );
}

function latencyTable(latencies: ParityReport['latencies']): string {
  return renderTable(
    [
      { title: 'of requests' },
      right('real mean'),
      right('predicted'),
      right('error'),
      right('real p99'),
      right('predicted'),
      right('error'),
      right('of each'),
    ],
    latencyNames.map((name) => {
      const { real, predicted, meanError, p99Error, eachError } = latencies[name];
      return [
        name.toUpperCase(),
        time(real.mean),
        time(predicted.mean),
        signed(meanError),
        time(real.p99),
        time(predicted.p99),
        signed(p99Error),
        `${(100 * eachError).toFixed(1)} %`,
      ];
    }),
  );
}

function handoffTable({ link, ends, count, blocks, bytes, timesUs }: HandoffComparison): string {
  const row = (name: string, { real, predicted }: Sides<number>): string[] => [
    name,
    formatCount(real),
    formatCount(predicted),
    signed(relative(predicted, real)),
  ];
  const how = Object.entries(ends)
    .map(([name, number]) => `${name} ${formatCount(number)}`)
    .join(', ');
  const table = renderTable(
    [{ title: 'handed off' }, right('real'), right('predicted'), right('apart')],
    [row('prompts', count), row('blocks', blocks), row('bytes', bytes)],
  );
  const gbps = (link.bandwidthBytesPerS / 1e9).toFixed(3);
  return (
    `${table}\nhand-offs: ${how}; half took ${time(timesUs.p50)} or less, computing included. Link of the prediction: ` +
    `${time(link.baseLatencyUs)} and ${gbps} GB/s, fitted to ${formatCount(link.handoffs)} of a rehearsal (half are off by ` +
    `${formatShare(link.error, 1)} or less)\n`
  );
}

/** The report as lines of text; the last one says whether the exact replay is identical. */
export function renderParity(report: ParityReport): string {
  const { adapter, exact, hits, transfers, latencies } = report;
  const device = `${printable(adapter.name)}${adapter.software ? ', a SOFTWARE device' : ''}`;
  const where = exact.firstDifference === null ? '' : `, first at byte ${formatCount(exact.firstDifference)}`;
  const replayed = `${formatCounted(exact.lines, 'lines')}, ${formatCounted(exact.bytes, 'bytes')}`;
  return [
    `${formatCounted(report.requests, 'requests')} on ${device}; steps by ${report.runner}, ` +
      `${report.latencyModel}; links ${printable(report.links.origin)}\n`,
    hitTable(hits),
    ...(Object.keys(transfers).length === 0 ? [] : [linkTable(transfers, adapter.software)]),
    latencyTable(latencies),
    ...(report.handoffs === undefined ? [] : [handoffTable(report.handoffs)]),
    `wrong blocks ${report.wrongBlocks}, interrupted steps ${report.interruptedSteps}\n`,
    `exact replay: ${exact.identical ? 'identical' : `DIFFERENT${where}`} (${replayed})\n`,
  ].join('\n');
}

//  Real and predicted side by side: how latencies and transfer times are distributed.

const POINTS = 100;

interface PlottedPoint {
  readonly what: string;
  readonly run: string;
  readonly ms: number;
  readonly share: number;
}

function distribution(what: string, run: string, valuesUs: readonly number[]): PlottedPoint[] {
  if (valuesUs.length === 0) return [];
  const sorted = Float64Array.from(valuesUs).sort();
  return Array.from({ length: POINTS + 1 }, (_, i) => {
    const at = Math.min(sorted.length - 1, Math.floor((i / POINTS) * sorted.length));
    return { what, run, ms: Math.max(sorted[at], 1) / 1000, share: i / POINTS };
  });
}

/** One run of the two, as it is drawn. */
export interface DrawnRun {
  readonly name: string;
  readonly requests: readonly ServedRequest[];
  readonly observed: RunObserver;
}

function pointsOf({ name, requests, observed }: DrawnRun, links: readonly string[]): PlottedPoint[] {
  return [
    ...distribution(
      'TTFT',
      name,
      requests.map(({ arrivalUs, firstTokenUs }) => firstTokenUs - arrivalUs),
    ),
    ...distribution(
      'E2E',
      name,
      requests.map(({ arrivalUs, lastTokenUs }) => lastTokenUs - arrivalUs),
    ),
    ...links.flatMap((link) =>
      distribution(
        link,
        name,
        observed.transfers.filter((transfer) => transfer.link === link).map(({ durationUs }) => durationUs),
      ),
    ),
  ];
}

export function parityChart(title: string, runs: readonly DrawnRun[]): VegaLiteSpec {
  const links = [...new Set(runs.flatMap(({ observed }) => observed.transfers.map(({ link }) => link)))];
  return {
    $schema: 'https://vega.github.io/schema/vega-lite/v6.json',
    title,
    background: 'white',
    width: 560,
    height: 320,
    data: { values: runs.flatMap((run) => pointsOf(run, links.sort())) },
    mark: { type: 'line' },
    encoding: {
      x: { field: 'ms', type: 'quantitative', scale: { type: 'log' }, title: 'time (ms)' },
      y: {
        field: 'share',
        type: 'quantitative',
        title: 'share of requests or transfers',
        axis: { format: '%' },
      },
      color: { field: 'what', type: 'nominal', title: null, sort: null },
      strokeDash: { field: 'run', type: 'nominal', title: null, sort: null },
    },
  };
}
