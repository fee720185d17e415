/** Runs a simulation and writes what came of it. */

import { resultJson, writeResults, writeText } from '../../io/files/results.ts';
import { renderSvg } from '../../io/printing/chart.ts';
import { startProgressBar } from '../../io/printing/progress.ts';
import { formatCount, formatSeconds, printable } from '../../io/printing/text.ts';
import { simulationReport } from '../../observe/report/simulationReport.ts';
import { SimulationTimeline } from '../../observe/report/simulationTimeline.ts';
import { writeReport } from '../../observe/report/writeReport.ts';
import { configError } from '../../runtime/errors.ts';
import { buildPlanned, runToEnd } from '../../sim/build/build.ts';
import type { BuiltSimulation } from '../../sim/build/built.ts';
import { goodputTargets, requireKnownTargets } from '../../sim/build/classTargets.ts';
import { refuseIdle } from '../../sim/build/needs.ts';
import {
  csvLines,
  jsonLines,
  metricsText,
  requestRecords,
  resultsText,
  simulationChart,
  summaryText,
  traceFiles,
} from '../../sim/build/output.ts';
import { planSimulation } from '../../sim/build/plan.ts';
import { provenanceOf } from '../../sim/build/provenance.ts';
import { headText, runText } from '../../sim/build/runText.ts';
import { classesOf, rateWarnings, requireRoom } from '../../sim/build/simulate.ts';
import type { Conservation } from '../../sim/cluster/core.ts';
import { observers, type SimulationObserver } from '../../sim/cluster/parts.ts';
import { type AskedSimulation, type Outputs, outputFlag } from '../../sim/description/readers.ts';
import { get } from '../../sim/description/settings.ts';
import { ChromeTrace, Decisions } from '../../sim/report/decisions.ts';
import { attainedOf, clusterMetrics, metricsOutput, servedRates } from '../../sim/report/metricsOutput.ts';
import { ScalingReport } from '../../sim/report/scaling.ts';
import { cacheMetrics, Occupancy, Spread, transferMetrics } from '../../sim/report/tierMetrics.ts';
import type { WorkloadRequest } from '../../sim/workload/request.ts';
import { numberWithin, textOption } from '../flags.ts';
import { printText, traceStem } from '../output.ts';
import { typedCommand } from '../reportOption.ts';
import { sessionsText, takenText } from '../workload/describe.ts';

/** Observers of a run for its outputs. */
class Watchers {
  readonly arrived: WorkloadRequest[] = [];
  readonly chrome: ChromeTrace | undefined;
  readonly occupancy: Occupancy | undefined;
  readonly decisions: Decisions | undefined;
  readonly scaling: ScalingReport = new ScalingReport();
  readonly spread: Spread = new Spread();
  readonly timeline: SimulationTimeline | undefined;
  readonly observer: SimulationObserver;
  built: BuiltSimulation | undefined;

  constructor(options: Outputs) {
    const all: SimulationObserver[] = [this.scaling, this.spread];
    if (options.traceOutput !== undefined) {
      all.push({ arrived: ({ workload }) => this.arrived.push(workload) });
    }
    if (options.chromeTrace !== undefined) {
      this.chrome = new ChromeTrace(
        numberWithin(options, 'chromeTraceEvents', '--chrome-trace-events', {
          min: 1,
          max: 1e8,
          whole: true,
        }) ?? CHROME_TRACE_EVENTS,
      );
      all.push(this.chrome);
    }
    if (options.plot !== undefined) {
      this.occupancy = new Occupancy(() => this.built?.simulation.instances ?? []);
      all.push(this.occupancy);
    }
    if (options.decisions !== undefined || options.summarizeTrace === true) {
      this.decisions = new Decisions(options.decisions !== undefined);
      all.push(this.decisions);
    }
    if (options.report !== undefined) {
      this.timeline = new SimulationTimeline(() => this.built?.simulation.instances ?? []);
      all.push(this.timeline);
    }
    this.observer = observers(all);
  }
}

/** Events of a trace for Chrome, unless it says how many. */
const CHROME_TRACE_EVENTS = 200_000;

/** Outputs that say how another output is written, and which ones they need. */
const outputNeeds: readonly (readonly [
  name: string,
  needs: readonly string[],
  lacks: string,
  remedy: string,
])[] = [
  ['chromeTraceEvents', ['chromeTrace'], 'is given without --chrome-trace', 'Add that, or leave it out.'],
  [
    'traceLevel',
    ['decisions', 'summarizeTrace'],
    'records decisions, and nothing asks for them',
    'Add --decisions or --summarize-trace, or leave it out.',
  ],
];

/** @throws TKV_CONFIG with the first output that would do nothing */
function refuseIdleOutputs(outputs: Outputs): void {
  for (const [name, needs, lacks, remedy] of outputNeeds) {
    const isDefault = name === 'traceLevel' && outputs[name] === 'none';
    if (outputs[name] === undefined || isDefault || needs.some((each) => outputs[each] !== undefined))
      continue;
    throw configError(outputFlag(name), lacks, remedy);
  }
}

export async function runSimulate({ deployment, outputs: options }: AskedSimulation): Promise<void> {
  let watchers = new Watchers(options);
  const plan = planSimulation(deployment);
  const isDecided = options.decisions !== undefined || options.summarizeTrace === true;
  using bar = startProgressBar('requests');
  const built = runToEnd(
    (skipsKeys) => {
      watchers = new Watchers(options);
      watchers.built = buildPlanned(plan, { observer: watchers.observer, skipsKeys });
      watchers.scaling.begin(watchers.built.scaling);
      refuseIdle(plan, watchers.built.opened.spec === undefined, isDecided);
      refuseIdleOutputs(options);
      if (watchers.built.opened.spec !== undefined) requireKnownTargets(watchers.built.deployment);
      return watchers.built;
    },
    ({ opened }) =>
      (requests, nowUs) => {
        const share = Number.isFinite(opened.expected) ? requests / opened.expected : 0;
        bar.update({ share, done: requests, note: `${(nowUs / 1e6).toFixed(0)} s simulated` });
      },
  );
  const { simulation, opened } = built;
  const { table, instances } = simulation;
  if (opened.spec === undefined) {
    requireKnownTargets(built.deployment, classesOf(built));
  }
  requireRoom(built);
  const targets = goodputTargets(built.deployment, opened.spec);
  const cluster = clusterMetrics(table, instances, targets, options.metricsPath !== undefined);
  const perInstance =
    instances.length === 1 ? [] : instances.map(({ id }, i) => metricsOutput(table, instances, id, i, false));
  const served = servedRates(table, cluster, opened.spec === undefined);
  const provenance = provenanceOf(built);
  const scaling = watchers.scaling.of(simulation.nowUs);

  const files: [target: string, parts: Iterable<string>][] = [];
  const tierkv = {
    provenance,
    conservation: built.conservation,
    served,
    cache: cacheMetrics(instances),
    ...(Object.keys(targets).length === 0 ? {} : { slo: attainedOf(table, targets) }),
    transfers: transferMetrics(instances),
    ...(scaling.length === 0 ? {} : { scaling }),
  };
  const metricsPath = textOption(options, 'metricsPath');
  if (metricsPath !== undefined) files.push([metricsPath, [metricsText(cluster, tierkv)]]);
  const json = textOption(options, 'json');
  if (json !== undefined) {
    const { requests: _rows, ...metrics } = cluster;
    files.push([json, [resultJson('simulate', { metrics, instances: perInstance, ...tierkv })]]);
  }
  const requests = textOption(options, 'requests');
  if (requests !== undefined) {
    const records = requestRecords(simulation);
    files.push([
      requests,
      requests.endsWith('.csv') ? csvLines(records) : jsonLines(records, { provenance }),
    ]);
  }
  const results = textOption(options, 'resultsPath');
  if (results !== undefined) files.push([results, [resultsText(simulation)]]);
  const decided = textOption(options, 'decisions');
  if (decided !== undefined) {
    files.push([decided, jsonLines(watchers.decisions?.records ?? [], { provenance })]);
  }
  const chrome = textOption(options, 'chromeTrace');
  if (chrome !== undefined && watchers.chrome !== undefined) {
    const ids = instances.map(({ id }) => id);
    files.push([chrome, watchers.chrome.text(ids, provenance)]);
  }
  const traceOutput = textOption(options, 'traceOutput');
  if (traceOutput !== undefined) {
    const stem = traceStem('--trace-output', traceOutput);
    const { header, rows } = traceFiles(simulation, watchers.arrived, opened.spec);
    files.push([`${stem}.yaml`, [header]], [`${stem}.csv`, rows]);
  }
  const plot = textOption(options, 'plot');
  if (plot !== undefined) {
    const { samples = [], tiers = [] } = watchers.occupancy ?? {};
    const title = `${provenance.model} on ${instances.length} x ${provenance.hardware}`;
    const chart = simulationChart(title, table, samples, tiers);
    writeText(plot, await renderSvg(chart));
    bar.say(`wrote ${printable(plot)}`);
  }
  writeResults(files.map(([target, parts]) => ({ target, parts })));
  for (const [target] of files) if (target !== '-') bar.say(`wrote ${printable(target)}`);

  const scaled = new Set(built.scaling.map(({ configId }) => configId));
  const ofShared = simulation.shared?.warnings() ?? [];
  const nothing = nothingText(built);
  const warnings = [
    ...plan.notices,
    ...rateWarnings(built),
    ...(nothing === '' ? [] : [nothing]),
    ...watchers.spread.warnings(instances, scaled),
    ...ofShared,
  ];
  for (const warning of warnings) bar.say(`warning: ${printable(warning)}`);
  const { timeline } = watchers;
  if (timeline !== undefined) {
    const run = { built, cluster, targets, timeline, command: typedCommand(), warnings };
    await writeReport(simulationReport(run), String(options.report));
    if (options.report !== '-') bar.say(`wrote ${printable(String(options.report))}`);
  }

  const byPriority = built.scheduler === 'priority-fcfs';
  const decisions = options.summarizeTrace === true ? watchers.decisions?.summary : undefined;
  const hasTargets = Object.keys(targets).length > 0;
  const asUpstream = get(deployment, 'asUpstream') === true;
  const shown = {
    simulation,
    cluster,
    perInstance,
    byPriority,
    hasTargets,
    decisions,
    scaling,
    asUpstream,
    served,
  };
  printText(asUpstream ? summaryText(shown) : headText(built) + runText(shown));
  const { file = '', source } = opened;
  // what was taken of a recorded trace, or what the rate of a specification counts
  const taken = source.taken === undefined ? sessionsText(source) : takenText(file, source);
  if (taken !== '') bar.say(taken);
  const cut = cutText(built);
  if (cut !== '') bar.say(cut);
}

/** A note on a run that ended before its first request; '' where one came. */
function nothingText({ opened, conservation }: BuiltSimulation & { conservation: Conservation }): string {
  if (conservation.injected > 0) return '';
  const { horizonUs } = opened;
  const end = horizonUs < 1e5 ? `${formatCount(horizonUs)} us` : formatSeconds(horizonUs / 1e6);
  return `the run ends at ${end} (--horizon), before its first request: nothing was served. Times take units, as --horizon 10m`;
}

/** A note on requests that the end of a replay with --trace-data left unserved; '' where all had ended. */
function cutText({ opened, conservation }: BuiltSimulation & { conservation: Conservation }): string {
  const { injected, arrived, queued, running, handedOff } = conservation;
  const left = arrived + queued + running + handedOff;
  if (!opened.endsAsUpstream || left === 0) return '';
  return (
    `--trace-data ends the run at ${formatSeconds(opened.horizonUs / 1e6)}, twice the last arrival, as upstream: ` +
    `${formatCount(left)} of ${formatCount(injected)} requests had not ended, and no mean counts them. ` +
    'Name the file as an argument to serve them all, or set --horizon'
  );
}
