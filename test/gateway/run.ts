/**
 * The gateway before four example servers at full size: `npm run campaign -- gateway --requests 2000 --seed 1`. It fails
 * for a wrong answer, for a request that was lost, for a log that is decided otherwise, and for a hit rate that the
 * simulator did not predict within five points. Then, before servers that answer at once, what the gateway adds to a
 * request, and whether its heap stays flat.
 */

import { parseArgs } from 'node:util';
import { fleetRun } from './campaign.ts';
import { addedLatency, heapUnderLoad } from './weight.ts';

const { values } = parseArgs({
  options: {
    requests: { type: 'string', default: '2000' },
    clients: { type: 'string', default: '64' },
    seed: { type: 'string', default: '1' },
    load: { type: 'string', default: '60000' },
  },
});
const report = await fleetRun({
  requests: Number(values.requests),
  clients: Number(values.clients),
  seed: Number(values.seed),
  hbmMib: [3, 4, 5, 6],
  groups: 40,
  say: (line) => console.log(line),
});
console.log(JSON.stringify(report, null, 1));
const { measured, predicted } = report.hitRates.prefixAware;
const problems: string[] = [];
if (report.wrong > 0) problems.push(`${report.wrong} wrong answers`);
if (report.lost > 0) problems.push(`${report.lost} lost requests`);
if (report.differences > 0) problems.push(`${report.differences} decisions came out otherwise`);
const gains = [
  measured - report.hitRates.roundRobin.measured,
  predicted - report.hitRates.roundRobin.predicted,
];
console.log(
  `gain over round robin: measured ${(100 * gains[0]).toFixed(1)} points, predicted ${(100 * gains[1]).toFixed(1)}`,
);
if (Math.abs(gains[0] - gains[1]) > 0.05)
  problems.push('the gain is not what was predicted, within 5 points');
console.log(`added latency: ${JSON.stringify(await addedLatency(2000))}`);
const heap = await heapUnderLoad(Number(values.load), 64);
console.log(`heap: ${JSON.stringify(heap)}`);
for (const problem of problems) console.error(problem);
process.exitCode = problems.length === 0 ? 0 : 1;
