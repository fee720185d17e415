/** Runs a simulation and writes what came of it. */

import { metricsOutput } from '../../sim/report/index.ts';
import { printable, startProgressBar, writeText } from '../output/index.ts';
import { buildSimulation } from './build.ts';
import { metricsText } from './metricsFile.ts';
import { textOption } from './numbers.ts';
import type { Options } from './options.ts';
import { summaryText } from './summary.ts';

export function runSimulate(workload: string | undefined, options: Options): void {
  const { simulation, opened } = buildSimulation(workload, options);
  using bar = startProgressBar('requests');
  simulation.run((arrived, nowUs) => {
    const share = Number.isFinite(opened.expected) ? arrived / opened.expected : 0;
    bar.update({ share, done: arrived, note: `${(nowUs / 1e6).toFixed(0)} s simulated` });
  });
  simulation.close();
  const { table, instances } = simulation;
  const cluster = metricsOutput(table, instances, 'cluster');
  const perInstance =
    instances.length === 1 ? [] : instances.map(({ id }, i) => metricsOutput(table, instances, id, i));
  const target = textOption(options, 'metricsPath');
  if (target !== undefined) {
    writeText(target, metricsText(cluster));
    bar.say(`wrote ${printable(target)}`);
  }
  process.stdout.write(summaryText(simulation, cluster, perInstance));
}
