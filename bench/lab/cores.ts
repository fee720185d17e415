/**
 * What a virtual machine's host does to its cores, while something else is measured: how far apart they are,
 * and how much of their time it took ("steal" in /proc/stat, Linux only). Two figures explain many odd
 * results of pipelines: a cache line that takes three times as long, or more than a twentieth of the time
 * stolen.
 *
 *     node bench/lab/cores.ts [--seconds 30] [--every-ms 250]
 */

import fs from 'node:fs';
import { availableParallelism } from 'node:os';
import { setTimeout as pause } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { CoreDistance } from './coreDistance.ts';

const { values: options } = parseArgs({
  options: { seconds: { type: 'string', default: '30' }, 'every-ms': { type: 'string', default: '250' } },
});
const TICK_MS = 10;
const STEAL_FIELD = 8;

/** Since the machine started, of all its cores together; 0 where it is not counted. */
function stolenMs(): number {
  try {
    const [cores] = fs.readFileSync('/proc/stat', 'latin1').split('\n', 1);
    return TICK_MS * Number(cores.trim().split(/\s+/)[STEAL_FIELD] ?? 0);
  } catch {
    return 0;
  }
}

await using cores = new CoreDistance();
const looks: number[] = [];
const untilMs = performance.now() + Number(options.seconds) * 1000;
console.log('  there and back ns   stolen of all cores');
for (let [stolen, atMs] = [stolenMs(), performance.now()]; atMs < untilMs; ) {
  await pause(Number(options['every-ms']));
  const [nowStolen, nowMs] = [stolenMs(), performance.now()];
  const share = (nowStolen - stolen) / ((nowMs - atMs) * availableParallelism());
  const ns = cores.lookNs();
  if (ns > 0) looks.push(ns);
  console.log(`${ns.toFixed(0).padStart(19)}   ${(100 * share).toFixed(1).padStart(17)} %`);
  [stolen, atMs] = [nowStolen, nowMs];
}
looks.sort((a, b) => a - b);
console.log(
  looks.length === 0
    ? 'no second core was to be had'
    : `median of ${looks.length} looks: ${looks[looks.length >> 1].toFixed(0)} ns`,
);
