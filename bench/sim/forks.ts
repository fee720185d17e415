/**
 * What a snapshot of a running simulation costs, and a fork of it: milliseconds of CPU (the median of some)
 * and bytes of the snapshot's plain data. Half of the requests have arrived by then.
 *
 *     node bench/sim/forks.ts [--requests 2000] [--json]
 */

import { parseArgs } from 'node:util';
import { serialize } from 'node:v8';
import { buildPlanned } from '../../src/sim/build/build.ts';
import { planSimulation } from '../../src/sim/build/plan.ts';
import { Simulation } from '../../src/sim/cluster/simulation.ts';
import { askedBy, readWords } from '../../src/sim/description/readers.ts';

const { values } = parseArgs({
  options: { requests: { type: 'string', default: '2000' }, json: { type: 'boolean', default: false } },
});

const cases: readonly [string, string][] = [
  ['1 instance', '--rate 20'],
  ['1 instance, hazard, 3 tiers', '--rate 20 --eviction hazard --kv-cpu-blocks 20000'],
  ['8 instances', '--rate 160 --num-instances 8 --routing-policy weighted'],
];
const ROUNDS = 15;

function medianMs(run: () => unknown): number {
  const all = Array.from({ length: ROUNDS }, () => {
    const { user, system } = process.cpuUsage();
    run();
    const after = process.cpuUsage();
    return (after.user - user + after.system - system) / 1000;
  });
  return all.sort((a, b) => a - b)[ROUNDS >> 1];
}

const rows = cases.map(([name, args]) => {
  const all = `--model qwen3-14b --workload chatbot --num-requests ${values.requests} ${args}`;
  const { deployment } = askedBy(readWords(all.split(' ')));
  const { simulation } = buildPlanned(planSimulation(deployment), { skipsKeys: false });
  simulation.runUntil(({ table }) => table.size >= Number(values.requests) / 2);
  const taken = simulation.snapshot();
  const { table, instances } = simulation;
  return {
    case: name,
    open: simulation.unfinished().length,
    rows: table.size,
    blocks:
      instances.length * instances[0].engine.tiers().reduce((sum, tier) => sum + tier.capacityBlocks, 0),
    snapshotMs: medianMs(() => simulation.snapshot()),
    forkMs: medianMs(() => Simulation.fork(taken)),
    mib: serialize(taken.data).length / 2 ** 20,
  };
});

if (values.json) console.log(JSON.stringify(rows, null, 2));
else console.table(rows);
