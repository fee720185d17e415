/** Runs a simulation and writes what came of it. */

import { observers, type SimulationObserver } from '../../sim/cluster/index.ts';
import {
  ChromeTrace,
  clusterMetrics,
  Decisions,
  metricsOutput,
  Occupancy,
  ScalingReport,
  transferMetrics,
} from '../../sim/report/index.ts';
import type { WorkloadRequest } from '../../sim/workload/index.ts';
import {
  printable,
  printText,
  renderSvg,
  startProgressBar,
  traceStem,
  writeResults,
  writeText,
} from '../output/index.ts';
import { buildSimulation, runToEnd } from './build.ts';
import type { BuiltSimulation } from './built.ts';
import { textOption, whole } from './input/numbers.ts';
import type { Options } from './input/options.ts';
import { goodputTargets } from './input/targets.ts';
import { metricsText } from './output/metricsFile.ts';
import { simulationChart } from './output/plot.ts';
import { provenanceOf } from './output/provenance.ts';
import { csvLines, jsonLines, requestRecords, resultsText, traceFiles } from './output/requestFiles.ts';
import { summaryText } from './output/summary.ts';

/** What watches a run for its outputs. */
class Watchers {
  readonly arrived: WorkloadRequest[] = [];
  readonly chrome: ChromeTrace | undefined;
  readonly occupancy: Occupancy | undefined;
  readonly decisions: Decisions | undefined;
  readonly scaling: ScalingReport = new ScalingReport();
  readonly observer: SimulationObserver;
  built: BuiltSimulation | undefined;

  constructor(options: Options) {
    const all: SimulationObserver[] = [this.scaling];
    if (options.traceOutput !== undefined) {
      all.push({ arrived: ({ workload }) => this.arrived.push(workload) });
    }
    if (options.chromeTrace !== undefined) {
      this.chrome = new ChromeTrace(whole(options, 'chromeTraceEvents', 1, 1e8));
      all.push(this.chrome);
    }
    if (options.plot !== undefined) {
      const tiers = (): ReturnType<BuiltSimulation['simulation']['instances'][0]['engine']['tiers']>[] =>
        (this.built?.simulation.instances ?? []).map(({ engine }) => engine.tiers());
      this.occupancy = new Occupancy(tiers);
      all.push(this.occupancy);
    }
    if (options.decisions !== undefined || options.summarizeTrace === true) {
      this.decisions = new Decisions(options.decisions !== undefined);
      all.push(this.decisions);
    }
    this.observer = observers(all);
  }
}

export async function runSimulate(workload: string | undefined, options: Options): Promise<void> {
  let watchers = new Watchers(options);
  using bar = startProgressBar('requests');
  const built = runToEnd(
    (skipsKeys) => {
      watchers = new Watchers(options);
      watchers.built = buildSimulation(workload, options, { observer: watchers.observer, skipsKeys });
      watchers.scaling.begin(watchers.built.scaling);
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
  const targets = goodputTargets(built.options, opened.spec);
  const cluster = clusterMetrics(table, instances, targets, options.metricsPath !== undefined);
  const perInstance =
    instances.length === 1 ? [] : instances.map(({ id }, i) => metricsOutput(table, instances, id, i, false));
  const provenance = provenanceOf(built, options);
  const scaling = watchers.scaling.of(simulation.nowUs);

  const files: [target: string, parts: Iterable<string>][] = [];
  const metricsPath = textOption(options, 'metricsPath');
  if (metricsPath !== undefined) {
    const { conservation } = built;
    const scaled = scaling.length === 0 ? {} : { scaling };
    const tierkv = { provenance, conservation, transfers: transferMetrics(instances), ...scaled };
    files.push([metricsPath, [metricsText(cluster, tierkv)]]);
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
    const tiers = instances[0].engine.traffic().tiers.map(({ tier }) => tier);
    const title = `${provenance.model} on ${instances.length} x ${provenance.hardware}`;
    const chart = simulationChart(title, table, watchers.occupancy?.samples ?? [], tiers);
    writeText(plot, await renderSvg(chart));
    bar.say(`wrote ${printable(plot)}`);
  }
  writeResults(files.map(([target, parts]) => ({ target, parts })));
  for (const [target] of files) bar.say(`wrote ${printable(target)}`);

  const byPriority = built.scheduler === 'priority-fcfs';
  const decisions = options.summarizeTrace === true ? watchers.decisions?.summary : undefined;
  const hasTargets = Object.keys(targets).length > 0;
  const shown = { simulation, cluster, perInstance, byPriority, hasTargets, decisions, scaling };
  printText(summaryText(shown));
}
