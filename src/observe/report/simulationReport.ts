/** A simulation as a report: does this deployment serve this workload within its targets, and what is in the way? */

import { formatCounted } from '../../io/printing/text.ts';
import { TOP, tierNames } from '../../runtime/tier/tier.ts';
import type { BuiltSimulation } from '../../sim/build/built.ts';
import { provenanceOf } from '../../sim/build/provenance.ts';
import type { Conservation } from '../../sim/cluster/core.ts';
import { sizedTierNames } from '../../sim/links/machineTiers.ts';
import { type RequestTable, statusNames } from '../../sim/metrics/requestTable.ts';
import { classOf, meetsTargets, type TargetsByClass, targetsOf } from '../../sim/metrics/statistics.ts';
import { firstArrivalUs, type MetricsOutput, servedRates } from '../../sim/report/metricsOutput.ts';
import { cacheMetrics, tierNamesOf, transferMetrics } from '../../sim/report/tierMetrics.ts';
import {
  type DistributionsSection,
  type Figure,
  linkTitle,
  quantilesOf,
  type Report,
  type ReportSection,
  type TimelineRequest,
  tierTitle,
  written,
} from './model.ts';
import { originOf, settingIn } from './origin.ts';
import type { SimulationTimeline } from './simulationTimeline.ts';

interface SimulatedRun {
  readonly built: BuiltSimulation & { readonly conservation: Conservation };
  readonly cluster: MetricsOutput;
  readonly targets: TargetsByClass;
  readonly timeline: SimulationTimeline;
  /** The command line as it was typed. */
  readonly command: string;
  /** Warnings of the run. */
  readonly warnings: readonly string[];
}

/** Requests that wait long are the first thing to look at: a share of the time to the first token. */
const LONG_WAIT = 0.5;
/** Below it, waiting is for the step under way, which nothing shortens. */
const LONG_WAIT_US = 100_000;
const NARROW_KV = 0.95;

export function simulationReport(run: SimulatedRun): Report {
  const { built, cluster, targets, timeline, command } = run;
  const { simulation, conservation, machine } = built;
  const { table, instances } = simulation;
  const provenance = provenanceOf(built);
  const hasTargets = Object.keys(targets).length > 0;
  const attained = hasTargets ? attainment(table, targets) : null;
  const gpus = built.gpus();
  const completed = conservation.completed;
  const rate = ratesOf(table);
  const { outputTokensPerS } = servedRates(table, cluster, built.opened.spec === undefined);
  const what = `${instances.length} ${instances.length === 1 ? 'instance' : 'instances'} of ${provenance.model} on ${provenance.hardware}`;
  const served = completed === conservation.injected;
  const verdict = attained === null ? 'open' : attained.share >= 0.99 ? 'yes' : 'no';
  const load = rate === 0 ? 'that come at once' : `that come at ${written(rate, 'perS')}`;
  const all = `${formatCounted(conservation.injected, 'requests')} ${load}`;
  const answer =
    completed === 0
      ? conservation.injected === 0
        ? 'No request came before the end of the run.'
        : `No: none of ${all} is served.`
      : attained === null
        ? `${served ? 'All' : `${written(completed, 'count')} of`} ${all} are served: ` +
          `99% get their first token within ${written(cluster.ttft_p99_ms, 'ms')} and end within ${written(cluster.e2e_p99_ms, 'ms')}.`
        : `${verdict === 'yes' ? 'Yes' : 'No'}: ${written(attained.share, 'share')} of ${written(attained.count, 'count')} requests ${load} meet their targets on ` +
          `${gpus} ${gpus === 1 ? 'GPU' : 'GPUs'}.`;
  const cache = cacheMetrics(instances);
  const spreads = spreadsOf(table);
  const most = leastTargets(targets);
  const figures: Figure[] = [
    ...(attained === null
      ? []
      : [
          {
            name: 'requests that meet their targets',
            value: attained.share,
            unit: 'share' as const,
            target: { least: 0.99 },
          },
        ]),
    latencyFigure('first token, p99', cluster.ttft_p99_ms, spreads.ttft, most.ttftMs),
    latencyFigure('between tokens, p99', cluster.itl_p99_ms, undefined, most.itlMs),
    latencyFigure('whole request, p99', cluster.e2e_p99_ms, spreads.e2e, most.e2eMs),
    { name: 'output tokens', value: outputTokensPerS, unit: 'tokensPerS' },
    {
      name: 'blocks found in a cache',
      value: cache.lookups === 0 ? null : cache.hitRate,
      unit: 'share',
      note: `${written(cache.hits, 'count')} of ${written(cache.lookups, 'count')} blocks`,
    },
    { name: 'GPUs', value: gpus, unit: 'count' },
    {
      name: 'requests',
      value: conservation.injected,
      unit: 'count',
      note: `${written(completed, 'count')} completed`,
    },
  ];
  return {
    title: what,
    question: hasTargets
      ? `Does it serve this workload within its targets?`
      : 'How does it serve this workload?',
    answer,
    verdict,
    figures,
    sections: [
      latencies(table, most),
      ...classSection(table, targets),
      timelineSection(run),
      ...tierSection(run),
      ...decisionSection(run),
    ],
    next: advice(run, cluster, attained?.share ?? null),
    limits: [
      `Times of steps come from the model ${machine.latency.backend}${machine.floor ? ', held above what the hardware needs' : ''}; no GPU ran.`,
      'Figures are of one seed: other seeds give other requests. Their spread is over tenths of the run, in order of arrival.',
      ...(timeline.leftOut === 0 ? [] : [`${timeline.leftOut} events are left out of the timeline.`]),
      ...run.warnings,
    ],
    origin: originOf(command, {
      model: provenance.model,
      hardware: provenance.hardware,
      'model of time': provenance.latencyModel,
      seed: provenance.seed,
      'key of policies': provenance.key.policies,
    }),
  };
}

function latencyFigure(
  name: string,
  value: number,
  spread: { readonly low: number; readonly high: number } | undefined,
  most: number | undefined,
): Figure {
  return {
    name,
    // no request takes no time: 0 stands for none
    value: value === 0 ? null : value,
    unit: 'ms',
    ...(spread === undefined ? {} : { spread: { ...spread, over: 'tenths of the run' } }),
    ...(most === undefined ? {} : { target: { most } }),
  };
}

/** Arrivals a second; 0 where all come at once. */
function ratesOf(table: RequestTable): number {
  if (table.size < 2) return 0;
  let last = 0;
  for (let row = 0; row < table.size; row++) last = Math.max(last, table.arrivalUs[row]);
  const lengthS = (last - firstArrivalUs(table)) / 1e6;
  return lengthS === 0 ? 0 : (table.size - 1) / lengthS;
}

/** The tightest target over the classes, in milliseconds. */
function leastTargets(targets: TargetsByClass): { ttftMs?: number; itlMs?: number; e2eMs?: number } {
  const least = (of: 'ttftUs' | 'itlUs' | 'e2eUs'): number | undefined => {
    const known = Object.values(targets).flatMap((each) => (each[of] === undefined ? [] : [each[of] / 1000]));
    return known.length === 0 ? undefined : Math.min(...known);
  };
  const [ttftMs, itlMs, e2eMs] = [least('ttftUs'), least('itlUs'), least('e2eUs')];
  return {
    ...(ttftMs === undefined ? {} : { ttftMs }),
    ...(itlMs === undefined ? {} : { itlMs }),
    ...(e2eMs === undefined ? {} : { e2eMs }),
  };
}

function attainment(table: RequestTable, targets: TargetsByClass): { count: number; share: number } {
  let count = 0;
  let good = 0;
  for (let row = 0; row < table.size; row++) {
    if (targetsOf(table, row, targets) === undefined) continue;
    count++;
    if (meetsTargets(table, row, targets)) good++;
  }
  return { count, share: count === 0 ? 0 : good / count };
}

/** The 99th percentile of each tenth of the run: the lowest and the highest. */
function spreadsOf(table: RequestTable): {
  readonly ttft: { readonly low: number; readonly high: number } | undefined;
  readonly e2e: { readonly low: number; readonly high: number } | undefined;
} {
  const parts = 10;
  const of = (column: Float64Array): { low: number; high: number } | undefined => {
    if (table.size < 10 * parts) return undefined;
    const order = Array.from({ length: table.size }, (_, row) => row);
    order.sort((a, b) => table.arrivalUs[a] - table.arrivalUs[b]);
    const tails: number[] = [];
    for (let part = 0; part < parts; part++) {
      const from = Math.floor((part * table.size) / parts);
      const to = Math.floor(((part + 1) * table.size) / parts);
      const values = order.slice(from, to).flatMap((row) => (column[row] < 0 ? [] : [column[row]]));
      const [tail] = quantilesOf(Float64Array.from(values), 100).slice(99);
      if (tail !== undefined) tails.push(tail / 1000);
    }
    return tails.length === 0 ? undefined : { low: Math.min(...tails), high: Math.max(...tails) };
  };
  return { ttft: of(table.firstTokenUs), e2e: of(table.e2eUs) };
}

function values(table: RequestTable, of: (row: number) => number): Float64Array {
  const known: number[] = [];
  for (let row = 0; row < table.size; row++) {
    const value = of(row);
    if (value >= 0) known.push(value / 1000);
  }
  return Float64Array.from(known);
}

function latencies(
  table: RequestTable,
  most: { readonly ttftMs?: number; readonly itlMs?: number; readonly e2eMs?: number },
): DistributionsSection {
  const of = (name: string, all: Float64Array, target: number | undefined) => ({
    name,
    quantiles: quantilesOf(all),
    count: all.length,
    ...(target === undefined ? {} : { target: { most: target, share: 0.99 } }),
  });
  return {
    kind: 'distributions',
    title: 'How long requests take',
    note: 'The share of requests that took at most so long. A dashed line is a target, its mark the share that has to meet it.',
    unit: 'ms',
    series: [
      of(
        'first token',
        values(table, (row) => table.firstTokenUs[row]),
        most.ttftMs,
      ),
      of(
        'between tokens',
        // an answer of one token has none
        values(table, (row) =>
          table.e2eUs[row] < 0 || table.generatedTokens[row] < 2 ? -1 : table.meanGapUs(row),
        ),
        most.itlMs,
      ),
      of(
        'whole request',
        values(table, (row) => table.e2eUs[row]),
        most.e2eMs,
      ),
    ].filter(({ count }) => count > 0),
  };
}

function classSection(table: RequestTable, targets: TargetsByClass): ReportSection[] {
  const classes = new Map<string, number[]>();
  for (let row = 0; row < table.size; row++) {
    const name = classOf(table, row);
    classes.set(name, [...(classes.get(name) ?? []), row]);
    if (classes.size > 50) return [];
  }
  if (classes.size < 2) return [];
  const tail = (rows: readonly number[], column: Float64Array): number | null => {
    const known = Float64Array.from(rows.flatMap((row) => (column[row] < 0 ? [] : [column[row] / 1000])));
    return known.length === 0 ? null : quantilesOf(known, 100)[99];
  };
  return [
    {
      kind: 'table',
      title: 'By class of request',
      columns: [
        { title: 'class' },
        { title: 'requests', unit: 'count' },
        { title: 'first token, p99', unit: 'ms' },
        { title: 'whole request, p99', unit: 'ms' },
        { title: 'meet their targets', unit: 'share' },
      ],
      rows: [...classes].map(([name, rows]) => {
        const good = rows.filter((row) => meetsTargets(table, row, targets)).length;
        return [
          name,
          rows.length,
          tail(rows, table.firstTokenUs),
          tail(rows, table.e2eUs),
          Object.hasOwn(targets, name) ? good / rows.length : null,
        ];
      }),
    },
  ];
}

function timelineSection({ built: { simulation }, timeline }: SimulatedRun): ReportSection {
  const { table, instances } = simulation;
  const requests: TimelineRequest[] = [];
  const after = (row: number, delayUs: number): number | null =>
    delayUs < 0 ? null : (table.arrivalUs[row] + delayUs) / 1e6;
  for (let row = 0; row < table.size; row++) {
    const number = table.instance[row];
    requests.push({
      id: table.idOf(row),
      arrivalS: table.arrivalUs[row] / 1e6,
      joinedS: after(row, table.schedulingDelayUs[row]),
      firstTokenS: after(row, table.firstTokenUs[row]),
      endS: after(row, table.e2eUs[row]),
      where: number < 0 ? 'no instance' : instances[number].id,
      promptTokens: table.promptTokens[row],
      outputTokens: table.generatedTokens[row],
      status: statusNames[table.status[row]],
      ...(table.preemptions[row] === 0 ? {} : { note: `gave its blocks up ${table.preemptions[row]} times` }),
    });
  }
  return {
    kind: 'timeline',
    title: 'What happened when',
    note: 'Drag over a chart to zoom, double-click for the whole run. A click on a request zooms to it.',
    lanes: timeline.lanes(
      tierNamesOf(instances),
      instances.map(({ id }) => id),
    ),
    events: timeline.events,
    requests,
    requestsInAll: table.size,
  };
}

function tierSection({ built: { simulation } }: SimulatedRun): ReportSection[] {
  const { tiers, links } = transferMetrics(simulation.instances);
  const { lookups, misses } = cacheMetrics(simulation.instances);
  if (lookups === 0) return [];
  return [
    {
      kind: 'table',
      title: 'Where prompts were found',
      note: `Blocks that requests came to hold, over all instances: ${written(misses, 'count')} of ${written(lookups, 'count')} were computed.`,
      columns: [
        { title: 'tier' },
        { title: 'blocks', unit: 'count' },
        { title: 'found there', unit: 'share' },
        { title: 'evicted', unit: 'count' },
        { title: 'written', unit: 'bytes' },
        { title: 'read', unit: 'bytes' },
      ],
      rows: tiers.map((tier) => [
        tierTitle(tier.tier),
        tier.capacityBlocks,
        tier.hits / lookups,
        tier.evictions,
        tier.writtenBytes,
        tier.readBytes,
      ]),
    },
    ...(links.length === 0
      ? []
      : [
          {
            kind: 'table' as const,
            title: 'What the links carried',
            columns: [
              { title: 'link' },
              { title: 'bytes', unit: 'bytes' as const },
              { title: 'busy', unit: 's' as const },
            ],
            rows: links.map(({ link, bytes, busyUs }) => [linkTitle(link), bytes, busyUs / 1e6]),
          },
        ]),
  ];
}

function decisionSection({ built: { simulation }, timeline }: SimulatedRun): ReportSection[] {
  if (timeline.routed === 0 || simulation.instances.length < 2) return [];
  const name = (instance: number): string => simulation.instances[instance]?.id ?? String(instance);
  const regrets = [...timeline.regrets].sort((a, b) => b.regret - a.regret);
  if (regrets.length === 0) {
    return [
      {
        kind: 'text',
        title: 'Decisions',
        paragraphs: [
          `All ${written(timeline.routed, 'count')} requests went to the instance with the best score.`,
        ],
      },
    ];
  }
  return [
    {
      kind: 'table',
      title: 'Routing decisions with the largest regret',
      note: `Regret is the best score less the chosen one's. ${written(timeline.worse, 'count')} of ${written(timeline.routed, 'count')} requests did not go to the best score.`,
      columns: [
        { title: 'request' },
        { title: 'at', unit: 's' },
        { title: 'went to' },
        { title: 'best score' },
        { title: 'regret', unit: 'plain' },
      ],
      rows: regrets.map(({ request, s, chosen, best, regret }) => [
        request,
        s,
        name(chosen),
        name(best),
        regret,
      ]),
    },
  ];
}

/** Advice on the bottlenecks, the most likely first. */
function advice(
  { built, timeline, command }: SimulatedRun,
  cluster: MetricsOutput,
  share: number | null,
): string[] {
  const { table, instances } = built.simulation;
  const lines: string[] = [];
  const { conservation } = built;
  if (conservation.unservable > 0) {
    lines.push(
      `${conservation.unservable} requests can never fit: more KV blocks, or a longer model length.`,
    );
  }
  let waited = 0;
  let first = 0;
  for (let row = 0; row < table.size; row++) {
    if (table.firstTokenUs[row] <= 0) continue;
    first += table.firstTokenUs[row];
    waited += Math.max(0, table.schedulingDelayUs[row]);
  }
  const isLong = waited / Math.max(1, table.size) > LONG_WAIT_US && (share === null || share < 0.99);
  if (isLong && waited / first > LONG_WAIT) {
    const part = written(waited / first, 'share');
    lines.push(
      `${part} of the time to the first token is waiting for a place in a batch: more instances, or a lower rate.`,
    );
  }
  if (cluster.preemption_count > 0) {
    lines.push(
      `${cluster.preemption_count} times a request gave its blocks up: more KV blocks, fewer sequences at a time, or a lower tier.`,
    );
  }
  const { tiers } = transferMetrics(instances);
  if (timeline.mostOf(`tier ${tierNames[TOP]}`) > NARROW_KV && cluster.preemption_count === 0) {
    lines.push('GPU memory for KV was full at times: more KV blocks, or fewer sequences at a time.');
  }
  const evicted = tiers.reduce((sum, tier) => sum + tier.evictions, 0);
  if (evicted > 0 && tiers.length === 1) {
    lines.push(
      `${written(evicted, 'count')} cached blocks were evicted: a tier below GPU memory would have kept some of them (${settingIn(command, sizedTierNames[0])}).`,
    );
  }
  if (timeline.thrashedSteps > 0) {
    lines.push(
      `${timeline.thrashedSteps} steps waited for blocks that had just gone down: the tier above is too small for what runs.`,
    );
  }
  if (share !== null && share >= 0.99) {
    lines.push(
      'All targets are met: try fewer GPUs or a higher rate with tierkv sweep to find where that ends.',
    );
  }
  if (lines.length === 0)
    lines.push('Nothing stands out. Run it with other seeds and a higher rate before you rely on it.');
  return lines;
}
