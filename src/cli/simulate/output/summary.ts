/** What a simulation prints: upstream's sections, each only where it has something to say. */

import type { Simulation } from '../../../sim/cluster/index.ts';
import { conservationOf } from '../../../sim/cluster/index.ts';
import { type RequestTable, Status, type Summary } from '../../../sim/metrics/index.ts';
import {
  cacheMetrics,
  classSummaries,
  type DecisionSummary,
  headOfLineBlocking,
  type MetricsOutput,
  priorityInversions,
  type ScalingOf,
  sessionSummary,
  tenantSummaries,
  transferMetrics,
} from '../../../sim/report/index.ts';
import { formatBytes, printable } from '../../output/index.ts';
import { jsonText } from './metricsFile.ts';

export interface SummaryInput {
  readonly simulation: Simulation;
  readonly cluster: MetricsOutput;
  readonly perInstance: readonly MetricsOutput[];
  /** Whether classes were scheduled by priority: only then upstream counts inversions. */
  readonly byPriority: boolean;
  readonly hasTargets: boolean;
  /** Whether ratios are printed that upstream forms otherwise, as upstream forms them. */
  readonly asUpstream: boolean;
  /** Where a summary of the decisions was asked for. */
  readonly decisions: DecisionSummary | undefined;
  /** Of each pool that scales. */
  readonly scaling: readonly ScalingOf[];
}

function metricsSection(metrics: MetricsOutput): string {
  const { requests: _rows, cache_hit_rate: _rate, ...shown } = metrics;
  return `=== Simulation Metrics ===\n${jsonText(shown)}\n`;
}

/** Requests that admission rejected, by SLO class; those without one are `standard`, as upstream has it. */
function shedByClass(table: RequestTable): [string, number][] {
  const byClass = new Map<string, number>();
  for (let row = 0; row < table.size; row++) {
    if (table.status[row] !== Status.REJECTED) continue;
    const { sloClass } = table.originOf(row);
    const name = sloClass || 'standard';
    byClass.set(name, (byClass.get(name) ?? 0) + 1);
  }
  return [...byClass].sort(([a], [b]) => (a < b ? -1 : 1));
}

function anomalySection({ simulation, cluster, byPriority, asUpstream }: SummaryInput): string {
  const { table, instances } = simulation;
  const counts = conservationOf(table);
  const shed = shedByClass(table).map(([name, count]): [string, number] => [`  Shed (${name})`, count]);
  const rows: [string, number][] = [
    ['Priority Inversions', byPriority ? priorityInversions(table) : 0],
    ['HOL Blocking Events', headOfLineBlocking(instances)],
    ['Rejected Requests (Admission)', counts.rejected],
    ...shed,
    ['Rejected Requests (Routing)', counts.unroutable],
    ['Dropped Unservable', cluster.dropped_unservable],
    ['Timed Out Requests', cluster.timed_out_requests],
    ['Length-Capped Requests', cluster.length_capped_requests],
  ];
  const ours: [string, number][] = [
    ['Shed by Gateway Queue', counts.shed],
    ['Expired in Gateway Queue', counts.expired],
    ['Lost with Their Instance', counts.lost],
    ['Not Yet with an Instance', counts.arrived],
  ];
  if (!asUpstream) rows.push(...ours.filter(([, count]) => count > 0));
  if (rows.every(([, count]) => count === 0)) return '';
  const lines = rows.map(([name, count]) => `${printable(name)}: ${count}\n`);
  return `=== Anomaly Counters ===\n${lines.join('')}`;
}

function kvSection({ simulation: { instances }, cluster, asUpstream }: SummaryInput): string {
  const { completed_requests: completed, preemption_count: preemptions } = cluster;
  const { hitRate, thrashingRate: thrashing } = asUpstream
    ? meansOf(instances, cluster)
    : cacheMetrics(instances);
  if (preemptions === 0 && hitRate === 0 && thrashing === 0) return '';
  const rate = completed === 0 ? 0 : preemptions / completed;
  return (
    '=== KV Cache Metrics ===\n' +
    `Preemption Rate: ${rate.toFixed(4)}\n` +
    `Cache Hit Rate: ${hitRate.toFixed(4)}\n` +
    `KV Thrashing Rate: ${thrashing.toFixed(4)}\n`
  );
}

/** Upstream's figures of a cluster: plain means over the instances, an idle one as 0. */
function meansOf(
  instances: SummaryInput['simulation']['instances'],
  cluster: MetricsOutput,
): { readonly hitRate: number; readonly thrashingRate: number } {
  const thrashing = instances.reduce((sum, { engine }) => sum + engine.counters.thrashing, 0);
  return { hitRate: cluster.cache_hit_rate, thrashingRate: thrashing / instances.length };
}

/** Only with tiers below GPU memory: what upstream does not print. */
function tierSection({ simulation }: SummaryInput): string {
  const { tiers, links, offloads, reloads, thrashed, stepTransferUs } = transferMetrics(simulation.instances);
  if (tiers.length < 2) return '';
  const rows = tiers.map(
    ({ tier, capacityBlocks, hits, evictions, readBytes }) =>
      `  ${tier}: blocks=${capacityBlocks}, hits=${hits}, evictions=${evictions}, ` +
      `read=${formatBytes(readBytes)}\n`,
  );
  const carried = links.map(
    ({ link, bytes, busyUs }) => `  ${link}: ${formatBytes(bytes)}, busy ${(busyUs / 1e6).toFixed(3)} s\n`,
  );
  const { lookups, misses } = cacheMetrics(simulation.instances);
  return (
    `=== KV Tiers ===\n${rows.join('')}  misses=${misses} of ${lookups} lookups\n${carried.join('')}` +
    `  offloads=${offloads}, reloads=${reloads}, thrashed=${thrashed}, ` +
    `billed to steps ${(stepTransferUs / 1e6).toFixed(3)} s\n`
  );
}

function handoffSection({ simulation }: SummaryInput): string {
  const { completed, delayed, bytes, transfers, waitedUs, transferUs, longestQueue } =
    simulation.handoffs.counters;
  if (completed === 0) return '';
  const mean = (us: number): string => (us / completed / 1000).toFixed(3);
  const parts = transfers === completed ? '' : ` in ${transfers} transfers`;
  return (
    `=== PD Metrics ===\nDisaggregated Requests: ${completed}\n` +
    `Delayed by Decode KV: ${delayed} (mean wait ${mean(waitedUs)} ms, longest queue ${longestQueue})\n` +
    `KV Transfers: ${formatBytes(bytes)}${parts}, mean ${mean(transferUs)} ms\n`
  );
}

function scalingSection({ scaling }: SummaryInput): string {
  if (scaling.length === 0) return '';
  const lines = scaling.map(
    ({ configId, policy, minReplicas, maxReplicas, ups, downs, ...of }) =>
      `  ${printable(configId)}: ${policy}, ${minReplicas} to ${maxReplicas} replicas, ` +
      `up ${ups} and down ${downs} times, ${of.fewest} to ${of.most} at a time, ` +
      `mean ${of.meanReplicas.toFixed(2)}; ` +
      `${of.added} came, ${of.gone} went\n`,
  );
  return `=== Autoscaling ===\n${lines.join('')}`;
}

function classSection({ simulation, hasTargets }: SummaryInput): string {
  const classes = classSummaries(simulation.table);
  if (classes.length < 2 && !(hasTargets && classes.length > 0)) return '';
  const line = (name: string, { mean, p99, count }: Summary): string =>
    `    ${name} mean=${mean.toFixed(2)} p99=${p99.toFixed(2)} (n=${count})\n`;
  const text = classes.map(
    ({ name, ttft, itl, e2e }) =>
      `  ${printable(name)}:\n${line('TTFT:', ttft)}${line('ITL: ', itl)}${line('E2E: ', e2e)}`,
  );
  return `=== Per-SLO Metrics ===\n${text.join('')}`;
}

function tenantSection({ simulation, asUpstream }: SummaryInput): string {
  const { tenants, jain } = tenantSummaries(simulation.table, asUpstream);
  if (tenants.length === 0) return '';
  const text = tenants.map(
    ({ name, requests, tokens }) => `  ${printable(name)}: requests=${requests}, tokens=${tokens}\n`,
  );
  return `=== Per-Tenant Metrics ===\n${text.join('')}  Jain Fairness Index: ${jain.toFixed(4)}\n`;
}

function sessionSection({ simulation }: SummaryInput): string {
  const summary = sessionSummary(simulation.table);
  if (summary === undefined) return '';
  const ms = (us: number): string => (us / 1000).toFixed(2);
  const line = (name: string, { mean, p50, p95, p99, count }: Summary): string =>
    `  ${name} mean=${ms(mean)} p50=${ms(p50)} p95=${ms(p95)} p99=${ms(p99)} ms (n=${count})\n`;
  return (
    `=== Session Metrics ===\n  Sessions: ${summary.sessions}\n` +
    line('TTFT cold (round 0):', summary.cold) +
    line('TTFT warm (round≥1):', summary.warm) +
    line('Session duration:   ', summary.duration)
  );
}

function decisionSection({ simulation, decisions }: SummaryInput): string {
  if (decisions === undefined) return '';
  const { admitted, rejected, targets, meanRegret, maxRegret, divergences } = decisions;
  const lines = [...targets]
    .map(([instance, count]): [string, number] => [simulation.instances[instance].id, count])
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([id, count]) => `  ${id}: ${count}\n`);
  return (
    `=== Trace Summary ===\nTotal Decisions: ${admitted + rejected}\n` +
    `  Admitted: ${admitted}\n  Rejected: ${rejected}\nUnique Targets: ${targets.size}\n` +
    `Target Distribution:\n${lines.join('')}` +
    `Mean Regret: ${meanRegret.toFixed(6)}\nMax Regret: ${maxRegret.toFixed(6)}\n` +
    (divergences > 0 ? `Shadow Divergences: ${divergences}\n` : '')
  );
}

export function summaryText(input: SummaryInput): string {
  const { cluster, perInstance } = input;
  const sections = [
    anomalySection,
    kvSection,
    classSection,
    tenantSection,
    sessionSection,
    handoffSection,
    scalingSection,
    decisionSection,
    tierSection,
  ];
  const metrics = [...perInstance, cluster].map(metricsSection).join('');
  return metrics + sections.map((section) => section(input)).join('');
}
