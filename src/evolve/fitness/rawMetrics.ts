/**
 * The raw metrics of a run: one number a name, so that search frameworks can take them as they are. Names end
 * in their unit; a part behind a dot is a class, tenant or tier.
 */

import type { Simulation } from '../../sim/cluster/index.ts';
import {
  jainIndex,
  percentileMs,
  type RequestTable,
  Status,
  wasTurnedAway,
} from '../../sim/metrics/index.ts';
import {
  cacheMetrics,
  clusterMetrics,
  headOfLineBlocking,
  priorityInversions,
  type TargetsByClass,
  tenantSummaries,
  transferMetrics,
} from '../../sim/report/index.ts';
import { attainmentOf, classOf } from './attainment.ts';
import type { RunWatch } from './runWatch.ts';

export type RawMetrics = Readonly<Record<string, number>>;

/** What a request that did not complete counts in `latency_ms`. */
export const LOST_MS = 60_000;

function sorted(values: readonly number[]): Float64Array {
  return Float64Array.from(values).sort();
}

function mean(values: readonly number[] | Float64Array): number {
  let sum = 0;
  for (const value of values) sum += value;
  return values.length === 0 ? 0 : sum / values.length;
}

/**
 * E2E mean / 2 + E2E P95 / 2 in milliseconds, the figure of the router-search experiment. Requests that did
 * not complete count a minute, so that turning requests away is no way to be fast.
 */
function latencyMs(table: RequestTable): number {
  const us = new Float64Array(table.size);
  for (let row = 0; row < table.size; row++) {
    us[row] = table.status[row] === Status.COMPLETED ? table.e2eUs[row] : 1000 * LOST_MS;
  }
  us.sort();
  return (mean(us) / 1000 + percentileMs(us, 95)) / 2;
}

/** Standard deviation over mean; 0 for none. */
function variation(values: readonly number[]): number {
  const average = mean(values);
  const square = mean(values.map((value) => (value - average) * (value - average)));
  return average === 0 ? 0 : Math.sqrt(square) / average;
}

/** Rows of completed requests by what a function says of them, in the order of the names. */
function completedBy(table: RequestTable, nameOf: (row: number) => string): [name: string, rows: number[]][] {
  const rows = new Map<string, number[]>();
  for (let row = 0; row < table.size; row++) {
    if (table.status[row] !== Status.COMPLETED) continue;
    const name = nameOf(row);
    const list = rows.get(name);
    if (list === undefined) rows.set(name, [row]);
    else list.push(row);
  }
  return [...rows].sort(([a], [b]) => (a < b ? -1 : 1));
}

function byClass(table: RequestTable): Record<string, number> {
  const metrics: Record<string, number> = {};
  for (const [name, list] of completedBy(table, (row) => classOf(table, row))) {
    for (const [what, of] of [
      ['ttft', (row: number) => table.firstTokenUs[row]],
      ['tpot', (row: number) => table.meanGapUs(row)],
      ['e2e', (row: number) => table.e2eUs[row]],
    ] as const) {
      const us = sorted(list.map(of));
      metrics[`${what}_mean_ms.${name}`] = mean(us) / 1000;
      metrics[`${what}_p50_ms.${name}`] = percentileMs(us, 50);
      metrics[`${what}_p95_ms.${name}`] = percentileMs(us, 95);
      metrics[`${what}_p99_ms.${name}`] = percentileMs(us, 99);
    }
  }
  return metrics;
}

function byTenant(table: RequestTable, durationS: number): Record<string, number> {
  const metrics: Record<string, number> = {};
  const { tenants, jain } = tenantSummaries(table);
  // without a token for any tenant there is nothing that could be shared unevenly
  metrics.jain_index = tenants.some(({ tokens }) => tokens > 0) ? jain : 1;
  for (const { name, tokens } of tenants) {
    metrics[`tenant_tokens_per_s.${name}`] = durationS > 0 ? tokens / durationS : 0;
  }
  for (const [name, rows] of completedBy(table, (row) => table.originOf(row).tenantId)) {
    if (name === '') continue;
    const e2e = sorted(rows.map((row) => table.e2eUs[row]));
    metrics[`tenant_ttft_p99_ms.${name}`] = percentileMs(
      sorted(rows.map((row) => table.firstTokenUs[row])),
      99,
    );
    metrics[`tenant_e2e_mean_ms.${name}`] = mean(e2e) / 1000;
    metrics[`tenant_e2e_p99_ms.${name}`] = percentileMs(e2e, 99);
  }
  return metrics;
}

/** @param simulation after `close` */
export function rawMetrics(simulation: Simulation, watch: RunWatch, targets: TargetsByClass): RawMetrics {
  const { table, instances } = simulation;
  const upstream = clusterMetrics(table, instances, {}, false);
  const durationS = upstream.vllm_estimated_duration_s;
  const perS = (count: number): number => (durationS > 0 ? count / durationS : 0);
  const share = (count: number): number => (table.size === 0 ? 0 : count / table.size);
  const completedRows = Array.from({ length: table.size }, (_, row) => row).filter(
    (row) => table.status[row] === Status.COMPLETED,
  );
  const e2e = sorted(completedRows.map((row) => table.e2eUs[row]));
  const ttft = sorted(completedRows.map((row) => table.firstTokenUs[row]));
  const tpot = sorted(completedRows.map((row) => table.meanGapUs(row)));
  const attainment = attainmentOf(table, targets);
  const transfers = transferMetrics(instances);
  const { lookups, hitRate } = cacheMetrics(instances);
  const turnedAway = Array.from({ length: table.size }, (_, row) => wasTurnedAway(table, row));
  // an instance that got nothing counts too; prefill instances get theirs beside the target
  const sent = instances
    .filter(({ role }) => role !== 'prefill')
    .map(({ number }) => watch.sent[number] ?? 0);
  const utilization = watch.meanUtilization();
  const meanReplicas = watch.meanReplicas(durationS * 1e6);
  const p50 = percentileMs(e2e, 50);
  return {
    latency_ms: latencyMs(table),
    requests: table.size,
    completed: completedRows.length,
    completion_rate: share(completedRows.length),
    duration_s: durationS,
    ttft_mean_ms: upstream.ttft_mean_ms,
    ttft_p50_ms: percentileMs(ttft, 50),
    ttft_p95_ms: upstream.ttft_p95_ms,
    ttft_p99_ms: upstream.ttft_p99_ms,
    tpot_mean_ms: mean(tpot) / 1000,
    tpot_p99_ms: percentileMs(tpot, 99),
    e2e_mean_ms: upstream.e2e_mean_ms,
    e2e_p50_ms: p50,
    e2e_p95_ms: upstream.e2e_p95_ms,
    e2e_p99_ms: upstream.e2e_p99_ms,
    requests_per_s: upstream.responses_per_sec,
    tokens_per_s: upstream.tokens_per_sec,
    slo_attainment: attainment.overall,
    class_weighted_attainment: attainment.weighted,
    ...byTenant(table, durationS),
    cache_hit_rate: hitRate,
    kv_transfer_blocks_per_s: perS(transfers.offloads + transfers.reloads),
    thrashed_reloads: transfers.thrashed,
    preemption_rate: share(upstream.preemption_count),
    admission_rate: share(watch.admitted),
    reject_rate: share(turnedAway.filter(Boolean).length),
    delays: watch.delayed,
    load_cv: variation(sent),
    load_jain: jainIndex(sent),
    divergence_rate: watch.routed === 0 ? 0 : watch.divergences / watch.routed,
    scale_events: watch.scaleEvents,
    mean_replicas: meanReplicas,
    scale_efficiency: meanReplicas === 0 ? 0 : attainment.overall / meanReplicas,
    priority_inversions: priorityInversions(table),
    head_of_line_instances: headOfLineBlocking(instances),
    tail_blowup: p50 === 0 ? 0 : upstream.e2e_p99_ms / p50,
    ...Object.fromEntries(
      transfers.tiers.flatMap(({ tier, hits }, i): [string, number][] => [
        [`hit_rate.${tier}`, lookups === 0 ? 0 : hits / lookups],
        [`kv_utilization.${tier}`, utilization[i] ?? 0],
        [`kv_utilization_max.${tier}`, watch.mostUtilization()[i] ?? 0],
      ]),
    ),
    ...Object.fromEntries(
      Object.entries(watch.meanReplicasByConfig(durationS * 1e6)).map(([config, count]) => [
        `mean_replicas.${config}`,
        count,
      ]),
    ),
    ...byClass(table),
    ...Object.fromEntries(
      Object.entries({ ...attainment.byClass, ...attainment.byTarget }).map(([name, value]) => [
        `slo_attainment.${name}`,
        value,
      ]),
    ),
  };
}
