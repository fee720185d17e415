/** The save campaign at any size: `npm run campaign -- save --runs 200 --seed 1`. */

import { parseArgs } from 'node:util';
import { saveCampaign } from './campaign.ts';
import type { DiskFault, SaveControl } from './life.ts';

const { values } = parseArgs({
  options: {
    runs: { type: 'string', default: '200' },
    seed: { type: 'string', default: '1' },
    control: { type: 'string' },
    fault: { type: 'string' },
  },
});
const runs = Number(values.runs);
const seed = Number(values.seed);
console.log(`save campaign: ${runs} lives, seed ${seed}`);
const report = await saveCampaign(runs, {
  seed,
  devices: true,
  control: values.control as SaveControl | undefined,
  fault: values.fault as DiskFault | undefined,
  progress: ({ runs: done, faults }) => {
    if (done % 20 === 0) console.log(`  ${done} lives, ${faults.length} faults`);
  },
});
for (const [fault, count] of report.byFault) console.log(`  ${String(count).padStart(5)}  ${fault}`);
console.log(
  `lives ${report.runs}, killed ${report.killed}, saves that left blocks ${report.refused}, blocks called durable ${report.durable}`,
);
for (const fault of report.faults.slice(0, 20)) console.log(`  fault: ${fault}`);
console.log(`faults ${report.faults.length}`);
process.exitCode = report.faults.length === 0 ? 0 : 1;
