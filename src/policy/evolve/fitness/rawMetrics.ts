/**
 * The raw metrics of a run: one number a name, so that search frameworks can take them as they are. Names end
 * in their unit; a part behind a dot is a class, tenant or tier.
 */

import * as is from '../../../runtime/kinds.ts';
import { checkInputs } from '../../../runtime/options.ts';
import type { SimulationObserver, StepSpan } from '../../../sim/cluster/parts.ts';
import type { ScaleChange } from '../../../sim/cluster/scaling.ts';
import type { Simulation } from '../../../sim/cluster/simulation.ts';
import type { ShadowDivergence } from '../../../sim/control/controlPlane.ts';
import { type AdmissionDecision, ownNumber, type RoutingDecision } from '../../../sim/control/policy.ts';
import type { TierReport } from '../../../sim/instance/engine.ts';
import type { SimRequest } from '../../../sim/instance/simRequest.ts';
import { type RequestTable, Status } from '../../../sim/metrics/requestTable.ts';
import {
  classOf,
  jainIndex,
  meetsTargets,
  metTargets,
  percentileMs,
  type TargetsByClass,
  wasTurnedAway,
} from '../../../sim/metrics/statistics.ts';
import { headOfLineBlocking, priorityInversions } from '../../../sim/report/decisions.ts';
import { clusterMetrics, tenantSummaries } from '../../../sim/report/metricsOutput.ts';
import { cacheMetrics, tierShares, transferMetrics } from '../../../sim/report/tierMetrics.ts';

/** Metrics of one case by name. */
export type RawMetrics = Readonly<Record<string, number>>;

/** The least time that counts for a request that did not complete, so that no policy looks fast by turning requests away. */
export const LOST_MS = 60_000;

/** The least time in milliseconds that a lost request counts as; other runs may have taken longer. */
export interface LostTimes {
  readonly ttft: number;
  readonly tpot: number;
  readonly e2e: number;
}

/** @param metrics of the run that others are compared with: a lost request of them counts no less than its slowest one */
export function lostTimesOf(metrics: RawMetrics): LostTimes {
  checkInputs({ metrics }, { metrics: is.object() });
  const least = (name: string): number => Math.max(LOST_MS, metrics[name] ?? 0);
  return { ttft: least('ttft_max_ms'), tpot: least('tpot_max_ms'), e2e: least('e2e_max_ms') };
}

/**
 * The time that a request which did not complete counts in a run: the longest of a completed one, but at least `leastMs`.
 * @param us the time of the row of a completed request
 */
export function lostMs(table: RequestTable, us: (row: number) => number, leastMs: number = LOST_MS): number {
  checkInputs(
    { table, us },
    { table: is.fields({ size: is.number(), arrivalUs: is.bytes() }), us: is.func() },
  );
  let worst = leastMs;
  for (let row = 0; row < table.size; row++) {
    if (table.status[row] === Status.COMPLETED) worst = Math.max(worst, us(row) / 1000);
  }
  return worst;
}

function sorted(values: readonly number[]): Float64Array {
  return Float64Array.from(values).sort();
}

function mean(values: readonly number[] | Float64Array): number {
  let sum = 0;
  for (const value of values) sum += value;
  return values.length === 0 ? 0 : sum / values.length;
}

/**
 * A time of the requests of a run: in microseconds, sorted, for a choice of rows. A request that did not complete has
 * `lostMs` of the whole run.
 */
class TimesOfRun {
  readonly #table: RequestTable;
  readonly #of: (row: number) => number;
  readonly #lostUs: number;

  /** @param of the time of the row of a completed request */
  constructor(table: RequestTable, leastMs: number, of: (row: number) => number) {
    this.#table = table;
    this.#of = of;
    this.#lostUs = 1000 * lostMs(table, of, leastMs);
  }

  sorted(rows: readonly number[]): Float64Array {
    const { status } = this.#table;
    return sorted(rows.map((row) => (status[row] === Status.COMPLETED ? this.#of(row) : this.#lostUs)));
  }
}

/** The times that requests are judged by. */
interface RunTimes {
  readonly ttft: TimesOfRun;
  readonly tpot: TimesOfRun;
  readonly e2e: TimesOfRun;
}

function timesOf(table: RequestTable, least: LostTimes): RunTimes {
  return {
    ttft: new TimesOfRun(table, least.ttft, (row) => table.firstTokenUs[row]),
    tpot: new TimesOfRun(table, least.tpot, (row) => table.meanGapUs(row)),
    e2e: new TimesOfRun(table, least.e2e, (row) => table.e2eUs[row]),
  };
}

/** Standard deviation over mean; 0 for none. */
function variation(values: readonly number[]): number {
  const average = mean(values);
  const square = mean(values.map((value) => (value - average) * (value - average)));
  return average === 0 ? 0 : Math.sqrt(square) / average;
}

/** Rows of requests by what a function says of them, in the order of the names. */
function rowsBy(table: RequestTable, nameOf: (row: number) => string): [name: string, rows: number[]][] {
  const rows = new Map<string, number[]>();
  for (let row = 0; row < table.size; row++) {
    const name = nameOf(row);
    const list = rows.get(name);
    if (list === undefined) rows.set(name, [row]);
    else list.push(row);
  }
  return [...rows].sort(([a], [b]) => (a < b ? -1 : 1));
}

function byClass(table: RequestTable, times: RunTimes): Record<string, number> {
  const metrics: Record<string, number> = {};
  for (const [name, list] of rowsBy(table, (row) => classOf(table, row))) {
    for (const what of ['ttft', 'tpot', 'e2e'] as const) {
      const us = times[what].sorted(list);
      metrics[`${what}_mean_ms.${name}`] = mean(us) / 1000;
      metrics[`${what}_p50_ms.${name}`] = percentileMs(us, 50);
      metrics[`${what}_p95_ms.${name}`] = percentileMs(us, 95);
      metrics[`${what}_p99_ms.${name}`] = percentileMs(us, 99);
    }
  }
  return metrics;
}

function byTenant(table: RequestTable, times: RunTimes, durationS: number): Record<string, number> {
  const metrics: Record<string, number> = {};
  const { tenants, jain } = tenantSummaries(table);
  // without tenants nothing can be shared unevenly; where no tenant got a token, nothing is shared
  metrics.jain_index = tenants.length === 0 ? 1 : jain;
  for (const { name, tokens } of tenants) {
    metrics[`tenant_tokens_per_s.${name}`] = durationS > 0 ? tokens / durationS : 0;
  }
  for (const [name, rows] of rowsBy(table, (row) => table.originOf(row).tenantId)) {
    if (name === '') continue;
    const e2e = times.e2e.sorted(rows);
    const ttft = times.ttft.sorted(rows);
    metrics[`tenant_ttft_p99_ms.${name}`] = percentileMs(ttft, 99);
    metrics[`tenant_e2e_mean_ms.${name}`] = mean(e2e) / 1000;
    metrics[`tenant_e2e_p99_ms.${name}`] = percentileMs(e2e, 99);
  }
  return metrics;
}

/**
 * @param simulation after `close`
 * @param least what a request that did not complete counts at least; default a minute in each time
 */
export function rawMetrics(
  simulation: Simulation,
  watch: RunWatch,
  targets: TargetsByClass,
  least: LostTimes = lostTimesOf({}),
): RawMetrics {
  checkInputs(
    { simulation, watch, targets, least },
    {
      simulation: is.fields({ snapshot: is.func() }),
      watch: is.fields({ admitted: is.number(), rejected: is.number() }),
      targets: is.object(),
      least: is.fields({ ttft: is.number(), tpot: is.number(), e2e: is.number() }),
    },
  );
  const { table, instances } = simulation;
  const upstream = clusterMetrics(table, instances, {}, false);
  const durationS = upstream.vllm_estimated_duration_s;
  const perS = (count: number): number => (durationS > 0 ? count / durationS : 0);
  const share = (count: number): number => (table.size === 0 ? 0 : count / table.size);
  const rows = Array.from({ length: table.size }, (_, row) => row);
  const completed = rows.filter((row) => table.status[row] === Status.COMPLETED).length;
  const times = timesOf(table, least);
  const [e2e, ttft, tpot] = [times.e2e.sorted(rows), times.ttft.sorted(rows), times.tpot.sorted(rows)];
  const attainment = attainmentOf(table, targets);
  const transfers = transferMetrics(instances);
  const { lookups, hitRate } = cacheMetrics(instances);
  const turnedAway = rows.filter((row) => wasTurnedAway(table, row)).length;
  // an instance that got nothing counts too; prefill instances get theirs beside the target
  const sent = instances
    .filter(({ role }) => role !== 'prefill')
    .map(({ number }) => watch.sent[number] ?? 0);
  const [utilization, mostUtilization] = [watch.meanUtilization(), watch.mostUtilization()];
  const meanReplicas = watch.meanReplicas(durationS * 1e6);
  const p50 = percentileMs(e2e, 50);
  return {
    // the figure of the router-search experiment
    latency_ms: (mean(e2e) / 1000 + percentileMs(e2e, 95)) / 2,
    requests: table.size,
    completed,
    completion_rate: share(completed),
    duration_s: durationS,
    ttft_mean_ms: mean(ttft) / 1000,
    ttft_p50_ms: percentileMs(ttft, 50),
    ttft_p95_ms: percentileMs(ttft, 95),
    ttft_p99_ms: percentileMs(ttft, 99),
    ttft_max_ms: percentileMs(ttft, 100),
    tpot_mean_ms: mean(tpot) / 1000,
    tpot_p99_ms: percentileMs(tpot, 99),
    tpot_max_ms: percentileMs(tpot, 100),
    e2e_mean_ms: mean(e2e) / 1000,
    e2e_p50_ms: p50,
    e2e_p95_ms: percentileMs(e2e, 95),
    e2e_p99_ms: percentileMs(e2e, 99),
    e2e_max_ms: percentileMs(e2e, 100),
    requests_per_s: upstream.responses_per_sec,
    tokens_per_s: upstream.tokens_per_sec,
    slo_attainment: attainment.overall,
    class_weighted_attainment: attainment.weighted,
    ...byTenant(table, times, durationS),
    cache_hit_rate: hitRate,
    kv_transfer_blocks_per_s: perS(transfers.sent + transfers.reloads),
    thrashed_reloads: transfers.thrashed,
    preemption_rate: share(upstream.preemption_count),
    admission_rate: share(watch.admitted),
    reject_rate: share(turnedAway),
    delays: watch.delayed,
    load_cv: variation(sent),
    load_jain: jainIndex(sent),
    divergence_rate: watch.routed === 0 ? 0 : watch.divergences / watch.routed,
    scale_events: watch.scaleEvents,
    mean_replicas: meanReplicas,
    scale_efficiency: meanReplicas === 0 ? 0 : attainment.overall / meanReplicas,
    priority_inversions: priorityInversions(table),
    head_of_line_instances: headOfLineBlocking(instances),
    tail_blowup: p50 === 0 ? 0 : percentileMs(e2e, 99) / p50,
    ...Object.fromEntries(
      transfers.tiers.flatMap(({ tier, hits }): [string, number][] => [
        [`hit_rate.${tier}`, lookups === 0 ? 0 : hits / lookups],
        [`kv_utilization.${tier}`, utilization.get(tier) ?? 0],
        [`kv_utilization_max.${tier}`, mostUtilization.get(tier) ?? 0],
      ]),
    ),
    ...Object.fromEntries(
      Object.entries(watch.meanReplicasByConfig(durationS * 1e6)).map(([config, count]) => [
        `mean_replicas.${config}`,
        count,
      ]),
    ),
    ...byClass(table, times),
    ...Object.fromEntries(
      Object.entries({ ...attainment.byClass, ...attainment.byTarget }).map(([name, value]) => [
        `slo_attainment.${name}`,
        value,
      ]),
    ),
  };
}

// Which requests met the targets of their class. Requests that were turned away did not.

/** Weights of the published admission experiment; other classes count 1. */
const classWeights: Readonly<Record<string, number>> = { critical: 4, standard: 2, sheddable: 1, batch: 0.5 };
/** Classes whose rejected requests are not held against a policy there. */
const sheddable = ['sheddable', 'batch', 'background'];

interface Attainment {
  /** Over all requests of classes with targets; without any, the share of requests that completed. */
  readonly overall: number;
  readonly byClass: Readonly<Record<string, number>>;
  /** Attainment of each target alone: `critical.ttft`. */
  readonly byTarget: Readonly<Record<string, number>>;
  /** Mean by class weight, without rejected requests of sheddable classes; without targets as `overall`. */
  readonly weighted: number;
}

export function attainmentOf(table: RequestTable, targets: TargetsByClass): Attainment {
  checkInputs(
    { table, targets },
    { table: is.fields({ size: is.number(), arrivalUs: is.bytes() }), targets: is.object() },
  );
  const counts = new Map<string, { all: number; met: number; kept: number }>();
  const single = new Map<string, number>();
  let completed = 0;
  for (let row = 0; row < table.size; row++) {
    if (table.status[row] === Status.COMPLETED) completed++;
    const name = classOf(table, row);
    if (!Object.hasOwn(targets, name)) continue;
    const count = counts.get(name) ?? { all: 0, met: 0, kept: 0 };
    counts.set(name, count);
    count.all++;
    if (meetsTargets(table, row, targets)) count.met++;
    for (const [target, isMet] of Object.entries(metTargets(table, row, targets))) {
      const key = `${name}.${target}`;
      single.set(key, (single.get(key) ?? 0) + Number(isMet));
    }
    if (table.status[row] !== Status.REJECTED || !sheddable.includes(name)) count.kept++;
  }
  let all = 0;
  let met = 0;
  let weights = 0;
  let weighted = 0;
  const byClass = new Map<string, number>();
  const byTarget: Record<string, number> = {};
  for (const [name, count] of [...counts].sort(([a], [b]) => (a < b ? -1 : 1))) {
    all += count.all;
    met += count.met;
    byClass.set(name, count.met / count.all);
    for (const target of ['ttft', 'tpot', 'e2e']) {
      const key = `${name}.${target}`;
      const alone = single.get(key);
      if (alone !== undefined) byTarget[key] = alone / count.all;
    }
    const weight = ownNumber(classWeights, name) ?? 1;
    weights += weight;
    weighted += weight * (count.kept === 0 ? 1 : count.met / count.kept);
  }
  const served = table.size === 0 ? 1 : completed / table.size;
  return {
    overall: all === 0 ? served : met / all,
    byClass: Object.fromEntries(byClass),
    byTarget,
    weighted: weights === 0 ? served : weighted / weights,
  };
}

// Figures of a run beside the request table: decisions, fill of tiers, numbers of replicas.

/** Reports of all instances, by tier. */
type ReadTiers = () => readonly (readonly TierReport[])[];

/** How often tiers are looked at, in simulated time. */
const SAMPLE_US = 100_000;

export class RunWatch implements SimulationObserver {
  admitted = 0;
  rejected = 0;
  delayed = 0;
  routed = 0;
  divergences = 0;
  scaleEvents = 0;
  /** Requests sent to each instance, by its number. */
  readonly sent: number[] = [];
  /** Sum over the samples of each tier's share in use. */
  readonly #usedSums = new Map<string, number>();
  readonly #usedMost = new Map<string, number>();
  #samples = 0;
  #nextUs = 0;
  /** How many replicas there were, and from when on. */
  readonly #replicas: Period[] = [];
  readonly #byConfig = new Map<string, Period[]>();
  readonly #tiers: ReadTiers;

  constructor(tiers: ReadTiers) {
    this.#tiers = tiers;
  }

  /**
   * @param replicas that run before the first event, of all configurations
   * @param byConfig those of each
   */
  begin(replicas: number, byConfig: ReadonlyMap<string, number> = new Map()): void {
    this.#replicas.push({ sinceUs: 0, count: replicas });
    for (const [config, count] of byConfig) this.#byConfig.set(config, [{ sinceUs: 0, count }]);
  }

  admission(_request: SimRequest, { verdict }: AdmissionDecision): void {
    if (verdict === 'admit') this.admitted++;
    else if (verdict === 'reject') this.rejected++;
    else this.delayed++;
  }

  routing(_request: SimRequest, decision: RoutingDecision | null): void {
    if (decision === null) return;
    this.routed++;
    const { target } = decision;
    while (this.sent.length <= target) this.sent.push(0);
    this.sent[target]++;
  }

  diverged(_divergence: ShadowDivergence): void {
    this.divergences++;
  }

  scaled({ configId, previousCount, newCount, timeUs }: ScaleChange): void {
    this.scaleEvents++;
    const { count } = this.#replicas[this.#replicas.length - 1];
    // both are of one configuration, and there may be others
    this.#replicas.push({ sinceUs: timeUs, count: count + newCount - previousCount });
    const own = this.#byConfig.get(configId) ?? [{ sinceUs: 0, count: previousCount }];
    own.push({ sinceUs: timeUs, count: newCount });
    this.#byConfig.set(configId, own);
  }

  step({ startUs }: StepSpan): void {
    if (startUs < this.#nextUs) return;
    this.#nextUs = startUs + SAMPLE_US;
    this.#samples++;
    for (const [tier, share] of tierShares(this.#tiers())) {
      this.#usedSums.set(tier, (this.#usedSums.get(tier) ?? 0) + share);
      this.#usedMost.set(tier, Math.max(this.#usedMost.get(tier) ?? 0, share));
    }
  }

  /** Mean share in use of each tier. */
  meanUtilization(): ReadonlyMap<string, number> {
    return new Map([...this.#usedSums].map(([tier, sum]) => [tier, sum / Math.max(1, this.#samples)]));
  }

  /** Largest share in use of each tier. */
  mostUtilization(): ReadonlyMap<string, number> {
    return this.#usedMost;
  }

  /** Over the time until `endUs`; what changes later does not count. */
  meanReplicas(endUs: number): number {
    return meanOver(this.#replicas, endUs);
  }

  /** The same of each configuration, in the order of their names. */
  meanReplicasByConfig(endUs: number): Record<string, number> {
    const all = [...this.#byConfig].sort(([a], [b]) => (a < b ? -1 : 1));
    return Object.fromEntries(all.map(([config, periods]) => [config, meanOver(periods, endUs)]));
  }
}

/** The number of replicas from a time on. */
interface Period {
  readonly sinceUs: number;
  readonly count: number;
}

function meanOver(periods: readonly Period[], endUs: number): number {
  if (endUs <= 0) return periods[0].count;
  const sum = periods.reduce((total, { sinceUs, count }, i) => {
    const untilUs = Math.min(endUs, periods[i + 1]?.sinceUs ?? endUs);
    return total + count * Math.max(0, untilUs - sinceUs);
  }, 0);
  return sum / endUs;
}
