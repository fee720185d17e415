/**
 * The text that `tierkv simulate` prints for people. The first lines say what was simulated: model, GPU, parallelism, workload, memory,
 * model of time, and what that leaves out. Upstream's text, which stands in `output.ts`, is printed where a run is as upstream.
 */

import {
  formatBytes,
  formatCount,
  formatSeconds,
  formatShare,
  printable,
  renderTable,
} from '../../io/printing/text.ts';
import { TOP, tierNames } from '../../runtime/tier/tier.ts';
import { get } from '../description/settings.ts';
import { type RequestTable, ValueCounts } from '../metrics/requestTable.ts';
import { countedMeanMs, countedPercentileMs, summarize } from '../metrics/statistics.ts';
import type { MetricsOutput, ServedRates } from '../report/metricsOutput.ts';
import { cacheMetrics, transferMetrics } from '../report/tierMetrics.ts';
import type { BuiltSimulation } from './built.ts';
import type { EngineHardware } from './engineSettings.ts';
import { type SummaryInput, sectionsText, sharedLine } from './output.ts';

interface RunTextInput extends SummaryInput {
  readonly served: ServedRates;
}

function gpusText({ hardware, tp, dp }: EngineHardware): string {
  const shape = [...(tp > 1 ? [`tp ${tp}`] : []), ...(dp > 1 ? [`dp ${dp}`] : [])];
  return `${tp * dp} x ${hardware.name}${shape.length === 0 ? '' : ` (${shape.join(', ')})`}`;
}

const instancesText = (count: number): string =>
  count === 1 ? '1 instance' : `${formatCount(count)} instances`;

function poolLines({ fleet, pools, machine }: BuiltSimulation): string[] {
  return fleet.pools.flatMap(({ configId, role, replicas, engine }, i) => {
    const of = pools?.[i].machine ?? machine;
    const name = pools === undefined ? '' : `pool ${configId}: `;
    const does = role === 'monolithic' ? '' : ` for ${role}`;
    const size = (blocks: number): string =>
      `${formatCount(blocks)} blocks (${formatBytes(blocks * engine.blockBytes * of.tp)})`;
    const tiers = [{ tier: tierNames[TOP], blocks: engine.topBlocks }, ...engine.lowerTiers];
    const kv = tiers.map(({ tier, blocks }) => `${tier} ${size(blocks)}`);
    return [
      `${name}${of.model.name} on ${gpusText(of)}, ${instancesText(replicas)}${does}`,
      `KV of an instance: ${kv.join(', ')} of ${engine.blockTokens} tokens${tiers.length === 1 ? ', no tier below' : ''}`,
    ];
  });
}

function workloadLine({ opened, deployment }: BuiltSimulation): string {
  const { spec, file } = opened;
  const name =
    file ??
    get(deployment, 'workload.preset') ??
    (spec?.clients.length === 1 ? 'one client' : 'of the deployment');
  if (spec === undefined) return `workload: ${name}, as recorded`;
  const talks = spec.clients.flatMap(({ reasoning }) =>
    reasoning?.multiTurn?.singleSession === false ? [reasoning.multiTurn.maxRounds] : [],
  );
  // the rate counts single requests of other clients too
  const isMixed = talks.length > 0 && talks.length < spec.clients.length + spec.cohorts.length;
  const others = isMixed ? 'single requests and ' : '';
  const begin =
    talks.length === 0 ? '' : ` ${others}conversations of up to ${Math.max(...talks)} rounds begin`;
  const perS = Number(spec.aggregateRate.toFixed(3));
  const rate = spec.aggregateRate > 0 ? `, ${perS}${begin} a second` : '';
  const users = spec.clients.reduce((sum, { concurrency }) => sum + concurrency, 0);
  const loop = users === 0 ? '' : `, ${formatCount(users)} users in closed loop`;
  const sessions = opened.workload.sessions?.seeds.length;
  const least = opened.expected === Infinity ? '' : `, at most ${formatCount(opened.expected)} requests`;
  const kind = isMixed ? 'conversations ' : '';
  const most = sessions === undefined ? least : `, ${formatCount(sessions)} ${kind}in all`;
  return `workload: ${name}${rate}${loop}${most}, seed ${spec.seed}`;
}

/** A line about the model of time: the source of its coefficients, and whether the hardware bounds it. */
export function stepsLine({ latency, hardware, floor, standsIn, coefficients }: EngineHardware): string {
  const least = floor ? 'no step shorter than the hardware needs' : 'WITHOUT the physical floor';
  if (coefficients.backend === 'kernels') {
    const { source } = coefficients.values.tables;
    const { borrowed = [] } = latency;
    const stand = borrowed.length === 0 ? '' : `. Not measured, and what stands in: ${borrowed.join('; ')}`;
    return `steps: kernels measured on ${coefficients.gpu} (${source}), ${least}${stand}`;
  }
  if (!('gpu' in coefficients)) return `steps: ${latency.backend}, ${least}`;
  const why = standsIn
    ? `, since nothing measured on ${hardware.name} is shipped: its own peaks, memory and links at the shares of ` +
      `${coefficients.gpu}. Calibrate by tierkv latency fit`
    : '';
  return `steps: ${coefficients.backend} on ${coefficients.gpu}, ${least}${why}`;
}

/** Effects that no model of time here has; time before the engine is in some. */
const leftOut = (machines: readonly EngineHardware[]): string => {
  const isHostIn = machines.every(({ coefficients }) => coefficients.backend === 'kernels');
  const before = isHostIn ? 'the network' : 'time before the engine (network, HTTP, tokenising)';
  return `left out: ${before} and ${isHostIn ? 'time ' : ''}after ${isHostIn ? 'the engine' : 'it'}, failures, and other load on the machines`;
};

/** First lines of the text: what was simulated. */
export function headText(built: BuiltSimulation): string {
  const machines = built.pools?.map(({ machine }) => machine) ?? [built.machine];
  const lines = [
    ...poolLines(built),
    workloadLine(built),
    ...new Set(machines.map(stepsLine)),
    leftOut(machines),
  ];
  return `${lines.map(printable).join('\n')}\n`;
}

function rowValues(table: RequestTable, pick: (row: number) => number): Float64Array {
  const values = Array.from({ length: table.size }, (_, row) => pick(row));
  return Float64Array.from(values.filter((value) => value >= 0));
}

function latencyTable({ simulation: { table, instances } }: SummaryInput): string {
  const gaps = new ValueCounts();
  for (const { times } of instances) gaps.addAll(times.gaps);
  const row = (name: string, pick: (at: number) => number): string[] => {
    const { count, mean, p50, p90, p95, p99 } = summarize(rowValues(table, pick));
    return [name, ...[mean, p50, p90, p95, p99].map((us) => (count === 0 ? '-' : (us / 1000).toFixed(1)))];
  };
  const isDone = (at: number): boolean => table.e2eUs[at] >= 0;
  const between = [50, 90, 95, 99].map((share) => countedPercentileMs(gaps, share));
  const gapCells = [countedMeanMs(gaps), ...between].map((ms) => (gaps.count === 0 ? '-' : ms.toFixed(2)));
  return renderTable(
    ['time in ms', 'mean', 'p50', 'p90', 'p95', 'p99'].map((title, i) => ({
      title,
      align: i === 0 ? ('left' as const) : ('right' as const),
    })),
    [
      row('first token (TTFT)', (at) => table.firstTokenUs[at]),
      row('a token after another, mean of a request (TPOT)', (at) =>
        isDone(at) && table.generatedTokens[at] > 1 ? table.meanGapUs(at) : -1,
      ),
      ['a token after another (ITL)', ...gapCells],
      row('whole request (E2E)', (at) => table.e2eUs[at]),
      row('until it joins a batch', (at) => table.schedulingDelayUs[at]),
    ],
  );
}

function countsText(
  metrics: MetricsOutput,
  { simulation: { instances, table }, served }: RunTextInput,
): string {
  const { lookups, hits } = cacheMetrics(instances);
  const left = metrics.still_queued + metrics.still_running;
  const parts = [
    `${formatCount(metrics.completed_requests)} of ${formatCount(table.size)} requests completed in ` +
      `${served.lengthS.toFixed(1)} s${served.fromS > 0 ? ` from ${formatSeconds(served.fromS)} on` : ''}`,
    ...(left === 0 ? [] : [`${formatCount(left)} had not ended`]),
    `${served.requestsPerS.toFixed(2)} requests and ${formatCount(Math.round(served.outputTokensPerS))} output tokens a second`,
    `${formatShare(hits, lookups)} of the blocks found`,
    `${formatCount(metrics.preemption_count)} preemptions`,
  ];
  return `${parts.join('; ')}\n`;
}

const right = (title: string): { title: string; align: 'right' } => ({ title, align: 'right' });

/** How many requests met the targets of their class. */
function targetTable({ cluster, served: { lengthS } }: RunTextInput): string {
  const { per_class: classes, slo_attainment: met = 0, goodput_rps: rate = 0 } = cluster;
  if (classes === undefined) return '';
  // upstream's rates count from 0
  const longer = lengthS > 0 ? cluster.vllm_estimated_duration_s / lengthS : 0;
  const goodput = rate * longer;
  const percent = (share: number): string => `${(100 * share).toFixed(1)} %`;
  const rows = Object.entries(classes).map(([name, of]) => {
    const dimensions = Object.entries(of.slo_attainment_by_dim).map(
      ([what, share]) => `${what} ${percent(share)}`,
    );
    return [
      name,
      formatCount(of.count),
      percent(of.slo_attainment),
      dimensions.join(', '),
      (of.goodput_rps * longer).toFixed(2),
    ];
  });
  const table = renderTable(
    [{ title: 'class' }, right('requests'), right('met'), { title: 'of them' }, right('good a second')],
    rows,
  );
  return `${table}${percent(met)} of the requests met their targets; goodput ${goodput.toFixed(2)} requests a second\n`;
}

/** Most instances that have a row each. */
const INSTANCES_MAX = 32;

function instanceTable({ perInstance: all, simulation: { instances }, served }: RunTextInput): string {
  if (all.length < 2) return '';
  const rows = all.slice(0, INSTANCES_MAX).map((of, i) => [
    instances[i].role === 'monolithic' ? of.instance_id : `${of.instance_id} (${instances[i].role})`,
    // a request that is handed off counts where it ends
    ...[of.injected_requests, of.completed_requests].map((count) =>
      instances[i].role === 'prefill' && count === 0 ? '-' : formatCount(count),
    ),
    formatCount(of.preemption_count),
    served.lengthS > 0
      ? `${((100 * instances[i].counters.busyUs) / 1e6 / served.lengthS).toFixed(0)} %`
      : '-',
    // a time of 0 means that no request was measured
    ...[of.ttft_mean_ms, of.ttft_p99_ms, of.e2e_mean_ms, of.e2e_p99_ms].map((ms) =>
      ms === 0 ? '-' : ms.toFixed(1),
    ),
    of.injected_requests === 0 && of.cache_hit_rate === 0 ? '-' : `${(100 * of.cache_hit_rate).toFixed(1)} %`,
  ]);
  const table = renderTable(
    [
      { title: 'instance' },
      ...['requests', 'completed', 'preempted', 'busy', 'TTFT ms', 'p99', 'E2E ms', 'p99', 'found'].map(
        right,
      ),
    ],
    rows,
  );
  const more = all.length - INSTANCES_MAX;
  return `${table}${more > 0 ? `and ${instancesText(more)} more, all of which the result as JSON has\n` : ''}`;
}

function tierTable({ simulation: { instances, shared } }: SummaryInput): string {
  const { tiers, links, sent, reloads, thrashed, stepTransferUs } = transferMetrics(instances);
  if (tiers.length < 2) return '';
  const { lookups, misses } = cacheMetrics(instances);
  const table = renderTable(
    [
      { title: 'tier' },
      right('blocks'),
      right('found'),
      right('of lookups'),
      right('evictions'),
      right('read'),
    ],
    [
      ...tiers.map(({ tier, capacityBlocks, hits, evictions, readBytes }) => [
        ...[tier, formatCount(capacityBlocks), formatCount(hits), formatShare(hits, lookups)],
        ...[formatCount(evictions), formatBytes(readBytes)],
      ]),
      ['computed', '', formatCount(misses), formatShare(misses, lookups), '', ''],
    ],
  );
  const carried = links
    .filter(({ bytes }) => bytes > 0)
    .map(({ link, bytes, busyUs }) => `${link} ${formatBytes(bytes)}, busy ${(busyUs / 1e6).toFixed(1)} s`);
  const billed = stepTransferUs === 0 ? '' : `; billed to steps ${(stepTransferUs / 1e6).toFixed(3)} s`;
  return (
    `${table}${sharedLine(shared)}${carried.length === 0 ? '' : `links: ${carried.join('; ')}\n`}` +
    `${formatCount(sent)} blocks sent down, ${formatCount(reloads)} loaded to the top tier, ${formatCount(thrashed)} of them soon after they had left it${billed}\n`
  );
}

/** Times, counts and tiers of a run, with warnings and hints. */
export function runText(input: RunTextInput): string {
  const { cluster } = input;
  const parts = [
    latencyTable(input),
    countsText(cluster, input),
    targetTable(input),
    instanceTable(input),
    tierTable(input),
    sectionsText(input),
  ];
  return parts.join('');
}
