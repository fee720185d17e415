/** Runs a simulation and writes what came of it. */

import type { SimulationObserver } from '../../sim/cluster/index.ts';
import { clusterMetrics, metricsOutput } from '../../sim/report/index.ts';
import type { WorkloadRequest } from '../../sim/workload/index.ts';
import { printable, startProgressBar, writeResults, writeText } from '../output/index.ts';
import { type BuiltSimulation, buildSimulation, runToEnd } from './build.ts';
import { metricsText } from './metricsFile.ts';
import { textOption } from './numbers.ts';
import type { Options } from './options.ts';
import { provenanceOf } from './provenance.ts';
import { csvLines, jsonLines, requestRecords, resultsText, traceFiles } from './requestFiles.ts';
import { summaryText } from './summary.ts';
import { goodputTargets } from './targets.ts';

export function runSimulate(workload: string | undefined, options: Options): void {
  const traceOutput = textOption(options, 'traceOutput');
  let arrived: WorkloadRequest[] = [];
  using bar = startProgressBar('requests');
  const built = runToEnd(
    (skipsKeys) => {
      arrived = [];
      const observer: SimulationObserver =
        traceOutput === undefined ? {} : { arrived: ({ workload: request }) => arrived.push(request) };
      return buildSimulation(workload, options, { observer, skipsKeys });
    },
    ({ opened }) =>
      (requests, nowUs) => {
        const share = Number.isFinite(opened.expected) ? requests / opened.expected : 0;
        bar.update({ share, done: requests, note: `${(nowUs / 1e6).toFixed(0)} s simulated` });
      },
  );
  const { simulation, opened } = built;
  const { table, instances } = simulation;
  const targets = goodputTargets(options, opened.spec);
  const cluster = clusterMetrics(table, instances, targets);
  const perInstance =
    instances.length === 1 ? [] : instances.map(({ id }, i) => metricsOutput(table, instances, id, i));

  const wrote = (target: string): void => bar.say(`wrote ${printable(target)}`);
  const metricsPath = textOption(options, 'metricsPath');
  if (metricsPath !== undefined) {
    writeText(metricsPath, metricsText(cluster));
    wrote(metricsPath);
  }
  const requests = textOption(options, 'requests');
  if (requests !== undefined) {
    writeResults([{ target: requests, parts: requestLines(requests, built, options) }]);
    wrote(requests);
  }
  const results = textOption(options, 'resultsPath');
  if (results !== undefined) {
    writeText(results, resultsText(simulation));
    wrote(results);
  }
  if (traceOutput !== undefined) {
    const stem = traceOutput.replace(/\.(csv|ya?ml)$/, '');
    const { header, rows } = traceFiles(simulation, arrived, opened.spec);
    writeResults([
      { target: `${stem}.yaml`, parts: [header] },
      { target: `${stem}.csv`, parts: rows },
    ]);
    wrote(`${stem}.yaml and ${stem}.csv`);
  }
  process.stdout.write(
    summaryText({
      simulation,
      cluster,
      perInstance,
      byPriority: options.scheduler === 'priority-fcfs',
      hasTargets: Object.keys(targets).length > 0,
    }),
  );
}

/** A row a request: CSV by the file's name, else JSON lines behind one with the provenance. */
function requestLines(target: string, built: BuiltSimulation, options: Options): Iterable<string> {
  const records = requestRecords(built.simulation);
  if (target.endsWith('.csv')) return csvLines(records);
  return jsonLines(records, { provenance: provenanceOf(built, options) });
}
