/**
 * A metric, the source that it is read from, and the ways to read a series a tier. A tier is named as everywhere else:
 * `hbm`, `ddr`, `nvme`, ...
 */

import { described, TierKVError } from '../../runtime/errors.ts';
import type { KVManager } from '../../runtime/index.ts';

import type { CacheMeasures, TierMeasures } from './cacheMeasures.ts';
import type { ValueHistogram } from './histogram.ts';
import type { RequestMeasures } from './requestMeasures.ts';

/** The runtime and the records that metrics are read from. */
export interface Watched {
  readonly manager: KVManager;
  readonly cache: CacheMeasures;
  readonly requests: RequestMeasures;
  /** Tokens of a full block. */
  readonly blockTokens: number;
  /** Bytes of a full block. */
  readonly blockBytes: number;
  /** Tenants that are told apart. */
  readonly tenantsMost: number;
  /** The scheduler's queues; undefined without one. */
  scheduler(): { readonly running: number; readonly waiting: number } | undefined;
  readonly devicesLost: number;
  readonly devicePresent: boolean;
  /** Requests without room. */
  readonly waitingForRoom: number;
  /** The shared tier's name, the state of its breaker, and how often the breaker opened; undefined without a shared tier. */
  breaker():
    | { readonly tier: string; readonly state: 'closed' | 'onTrial' | 'open'; readonly openings: number }
    | undefined;
  /** Owners by the names of their tenants. */
  owners(): ReadonlyMap<string, number>;
}

export interface MetricSample {
  readonly labels: Readonly<Record<string, string>>;
  readonly value: number | ValueHistogram;
}

type MetricKind = 'counter' | 'gauge' | 'histogram';

/** @typeParam Of what it is read of */
export interface Metric<Of = Watched> {
  /** The name in Prometheus. */
  readonly name: string;
  readonly kind: MetricKind;
  /** One sentence, with its unit. */
  readonly help: string;
  /** Labels of each sample, beside those of the exporter. */
  readonly labels: readonly string[];
  /** The unit in OpenTelemetry: `s`, `By`, `1`, `{block}`. */
  readonly unit: string;
  read(of: Of): readonly MetricSample[];
}

export type ReadMetric<Of = Watched> = (of: Of) => readonly MetricSample[];

/** A metric of one runtime or gateway. */
export type MeasuredMetric = Omit<Metric, 'read'> & { read(): readonly MetricSample[] };

/** A source of metrics for exporters. */
export interface MetricSource {
  readonly measured: readonly MeasuredMetric[];
}

/** @throws TKV_INPUT naming `field`, for a runtime in place of its watch too */
export function requireWatched(source: MetricSource, field: string): void {
  if (Array.isArray((source as Partial<MetricSource> | null | undefined)?.measured)) return;
  const problem = `${field} must be a watch or a gateway, and it is ${described(source)}`;
  throw new TierKVError('TKV_INPUT', `${problem}. Pass watchRuntime(kv), or a gateway.`, { field });
}

export function measuredOf<Of>(list: readonly Metric<Of>[], of: Of): readonly MeasuredMetric[] {
  return list.map((each) => ({ ...each, read: () => each.read(of) }));
}

// Ways to read.

/** Values of each tier, the fastest first. */
export type TierReader = (tier: TierMeasures, position: number, watched: Watched) => number | ValueHistogram;

export function metric<Of = Watched>(
  kind: MetricKind,
  name: string,
  unit: string,
  labels: readonly string[],
  help: string,
  read: ReadMetric<Of>,
): Metric<Of> {
  return { name, kind, help, labels, unit, read };
}

/** A metric of one sample. */
export function single<Of = Watched>(
  kind: MetricKind,
  name: string,
  unit: string,
  help: string,
  read: (of: Of) => number | ValueHistogram,
): Metric<Of> {
  return metric<Of>(kind, name, unit, [], help, (of) => [{ labels: {}, value: read(of) }]);
}

export const tier: readonly string[] = ['tier'];

/** A metric of a sample a tier, from the tier at position `from` on. */
export function perTier(
  kind: MetricKind,
  name: string,
  unit: string,
  help: string,
  read: TierReader,
  from = 0,
): Metric {
  return metric(kind, name, unit, tier, help, (watched) =>
    watched.cache.tiers
      .map((each, position) => ({ labels: { tier: each.tier }, value: read(each, position, watched) }))
      .slice(from),
  );
}
