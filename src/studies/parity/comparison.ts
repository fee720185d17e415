/**
 * Two runs side by side: what each found, how long transfers and requests took, how far they are apart; as an object and as
 * a chart.
 */

import type { MachineLoad } from '../../io/machineLoad.ts';
import type { VegaLiteSpec } from '../../io/printing/chart.ts';
import type { ManagerConfig } from '../../runtime/index.ts';
import { tierName } from '../../runtime/tier/tier.ts';
import type { HandoffFit } from '../../sim/fitting/handoffFit.ts';
import type { LinkProfiles } from '../../sim/links/modeledDriver.ts';
import { type Summary, summarize } from '../../sim/metrics/statistics.ts';
import { type KnownLinks, priceTransfers } from './links.ts';
import type { ObservedTransfer, RunObserver } from './observer.ts';
import type { ServedRequest } from './traffic.ts';

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
type LatencyName = (typeof latencyNames)[number];

interface LatencyComparison extends Sides<Summary> {
  readonly meanError: number;
  readonly p50Error: number;
  readonly p99Error: number;
  /** Half of the requests are off by no more than this. */
  readonly eachError: number;
}

export const relative = (predicted: number, real: number): number =>
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

// Results of a parity run.

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
  /** Hand-offs of a run of a pair. */
  readonly handoffs?: HandoffComparison;
  readonly wrongBlocks: number;
  readonly interruptedSteps: number;
  /** The machine while the requests were served for real. */
  readonly machine: MachineLoad;
  readonly wallSeconds: number;
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
interface DrawnRun {
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
