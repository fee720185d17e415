/** Damaged states at any number: `npm run campaign -- states --states 2000 --seed 1`. */

import { parseArgs } from 'node:util';
import { damagedStates } from './damagedStates.ts';

const { values } = parseArgs({
  options: { states: { type: 'string', default: '2000' }, seed: { type: 'string', default: '1' } },
});
const [states, seed] = [Number(values.states), Number(values.seed)];
const peakMib = (): number => process.resourceUsage().maxRSS / 1024;
let [slowestMs, slowest, lastMs] = [0, 0, performance.now()];
const { refused, equal, wrong, largestBytes } = damagedStates(states, seed, (done) => {
  const tookMs = performance.now() - lastMs;
  if (tookMs > slowestMs) [slowestMs, slowest] = [tookMs, done - 1];
  if (done % 200 === 0) console.log(`  ${done} states`);
  lastMs = performance.now();
});
for (const line of wrong) console.log(`WRONG ${line}`);
const largestMib = (largestBytes / 2 ** 20).toFixed(1);
console.log(
  `${states} damaged states, seed ${seed}: ${refused} refused, ${equal} equal, ${wrong.length} wrong; ` +
    `the slowest, state ${slowest}, took ${slowestMs.toFixed(0)} ms; the most that one allocated is ${largestMib} MiB, peak ${peakMib().toFixed(0)} MiB`,
);
process.exit(wrong.length === 0 && largestBytes < 64 * 2 ** 20 ? 0 : 1);
