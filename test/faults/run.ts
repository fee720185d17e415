/**
 * The fault campaign at any size: `npm run campaign -- faults --faults 1000000 --seed 1`. Its last line is the
 * count.
 */

import { parseArgs } from 'node:util';
import { startProgressBar } from '../../src/io/printing/progress.ts';
import { kindTable, lastLine, runCampaign, silentInReport } from './campaign.ts';

const { values } = parseArgs({
  options: {
    faults: { type: 'string', default: '40000' },
    seed: { type: 'string', default: '1' },
    'no-verify': { type: 'boolean', default: false },
  },
});
const faults = Number(values.faults);
const seed = Number(values.seed);
const verify = !values['no-verify'];
console.log(
  `fault campaign: ${faults} faults, seed ${seed}${verify ? '' : ', CONTROL RUN without verification'}`,
);

const startMs = performance.now();
const bar = startProgressBar('faults');
const report = await runCampaign(faults, seed, verify, (fired) =>
  bar.update({ share: fired / faults, done: fired }),
);
bar[Symbol.dispose]();

const { accounts, failures } = report;
for (const failure of failures) console.log(`FAILED ${failure}`);
for (const violation of new Set(accounts.violations.slice(0, 1000))) console.log(`VIOLATION ${violation}`);
console.log(
  `${report.worlds} worlds, ${report.steps} steps audited, ${report.requests} requests, ` +
    `${report.reads} blocks compared, ${report.losses} devices lost, ` +
    `${Math.round((performance.now() - startMs) / 1000)} s`,
);
console.log(kindTable(report));
const quiet = silentInReport(report);
if (quiet.length > 0) console.log(`never fired or never noticed: ${quiet.join(', ')}`);
console.log(lastLine(report));
const clean = report.wrongBlocks + report.leakedSlots + failures.length + accounts.violations.length === 0;
process.exitCode = clean && quiet.length === 0 ? 0 : 1;
