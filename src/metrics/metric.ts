/**
 * What a metric is, what it is read of, and the ways to read a series a tier. A tier is named as everywhere else: `hbm`,
 * `ddr`, `nvme`, ...
 */

import type { KVManager } from '../runtime/index.ts';
import type { CacheMeasures, TierMeasures } from './cacheMeasures.ts';
import type { ValueHistogram } from './histogram.ts';
import type { RequestMeasures } from './requestMeasures.ts';

/** What the metrics are read of. */
export interface Watched {
  readonly manager: KVManager;
  readonly cache: CacheMeasures;
  readonly requests: RequestMeasures;
  /** Tokens of a full block. */
  readonly blockTokens: number;
  /** Tenants that are told apart. */
  readonly tenantsMost: number;
  /** The scheduler's queues; undefined without one. */
  scheduler(): { readonly running: number; readonly waiting: number } | undefined;
  /** Health of the runtime as it is now. */
  health(): {
    readonly devicesLost: number;
    readonly devicePresent: boolean;
    readonly waitingForRoom: number;
    /** Of the tier that runtimes share: what its breaker does, and how often it opened. */
    readonly breaker?: { readonly state: 'closed' | 'onTrial' | 'open'; readonly openings: number };
  };
  /** Owners by the names of their tenants. */
  owners(): ReadonlyMap<string, number>;
}

export interface MetricSample {
  readonly labels: Readonly<Record<string, string>>;
  readonly value: number | ValueHistogram;
}

export type MetricKind = 'counter' | 'gauge' | 'histogram';

export interface Metric {
  /** As Prometheus has it. */
  readonly name: string;
  readonly kind: MetricKind;
  /** One sentence, with its unit. */
  readonly help: string;
  /** Of each sample, beside the labels of the exporter. */
  readonly labels: readonly string[];
  /** As OpenTelemetry has it: `s`, `By`, `1`, `{block}`. */
  readonly unit: string;
  read(watched: Watched): readonly MetricSample[];
}

export type ReadMetric = (watched: Watched) => readonly MetricSample[];

// Ways to read.

export const alone = (value: number | ValueHistogram): readonly MetricSample[] => [{ labels: {}, value }];

/** A sample a tier. */
export function byTier(
  read: (tier: TierMeasures, position: number, watched: Watched) => number | ValueHistogram,
): ReadMetric {
  return (watched) =>
    watched.cache.tiers.map((tier, position) => ({
      labels: { tier: tier.tier },
      value: read(tier, position, watched),
    }));
}

/** A sample a tier but the fastest. */
export function byLowerTier(read: Parameters<typeof byTier>[0]): ReadMetric {
  return (watched) => byTier(read)(watched).slice(1);
}

export function metric(
  kind: MetricKind,
  name: string,
  unit: string,
  labels: readonly string[],
  help: string,
  read: ReadMetric,
): Metric {
  return { name, kind, help, labels, unit, read };
}

export const tier: readonly string[] = ['tier'];
