/**
 * What the simulator costs on one thread: the chatbot preset at 20 requests a second on one instance, all
 * events and metrics, each size in a process of its own. Wall time is from the process's start to the end of
 * the metrics; CPU time is the process's own, which other programs on the machine disturb less.
 *
 *     node bench/sim/simulate.ts [--requests 10000,50000] [--keys] [--json]
 *
 * --keys keeps block keys, which a workload without shared tokens leaves out.
 */

import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';

interface Row {
  readonly requests: number;
  readonly steps: number;
  readonly events: number;
  readonly wallS: number;
  readonly cpuS: number;
  readonly peakMiB: number;
}

const { values } = parseArgs({
  options: {
    requests: { type: 'string', default: '10000,50000' },
    keys: { type: 'boolean', default: false },
    json: { type: 'boolean', default: false },
    one: { type: 'string' },
  },
});

async function measure(requests: number): Promise<Row> {
  const { buildPlanned, runToEnd } = await import('../../src/sim/build/build.ts');
  const { planSimulation } = await import('../../src/sim/build/plan.ts');
  const { askedBy, readWords } = await import('../../src/sim/description/readers.ts');
  const { clusterMetrics } = await import('../../src/sim/report/metricsOutput.ts');
  const args = `--model qwen3-14b --workload chatbot --rate 20 --num-requests ${requests}`.split(' ');
  const { deployment } = askedBy(readWords(args));
  const { simulation } = runToEnd((skipsKeys) =>
    buildPlanned(planSimulation(deployment), { skipsKeys: skipsKeys && !values.keys }),
  );
  clusterMetrics(simulation.table, simulation.instances, {}, false);
  const { user, system } = process.cpuUsage();
  return {
    requests,
    steps: simulation.instances[0].times.steps,
    events: simulation.events,
    wallS: performance.now() / 1000,
    cpuS: (user + system) / 1e6,
    peakMiB: process.resourceUsage().maxRSS / 1024,
  };
}

if (values.one !== undefined) {
  console.log(JSON.stringify(await measure(Number(values.one))));
} else {
  const rows = values.requests.split(',').map((requests) => {
    const args = [fileURLToPath(import.meta.url), '--one', requests, ...(values.keys ? ['--keys'] : [])];
    return JSON.parse(spawnSync(process.execPath, args, { encoding: 'utf8' }).stdout) as Row;
  });
  if (values.json) console.log(JSON.stringify(rows, null, 2));
  else {
    console.log('  requests     steps   wall s  requests/s    CPU s  requests/CPU s   peak MiB');
    for (const { requests, steps, wallS, cpuS, peakMiB } of rows) {
      const cells = [
        String(requests).padStart(10),
        String(steps).padStart(9),
        wallS.toFixed(2).padStart(8),
        (requests / wallS).toFixed(0).padStart(11),
        cpuS.toFixed(2).padStart(8),
        (requests / cpuS).toFixed(0).padStart(15),
        peakMiB.toFixed(0).padStart(10),
      ];
      console.log(cells.join(' '));
    }
  }
}
