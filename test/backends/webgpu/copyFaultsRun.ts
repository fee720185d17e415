/** The campaign `copies`: `npm run campaign -- copies [--rounds 200] [--seed 1]`. Fails on anything that must be zero. */

import { parseArgs } from 'node:util';
import { copyFaults } from './copyFaults.ts';

const { values } = parseArgs({
  options: { rounds: { type: 'string', default: '200' }, seed: { type: 'string', default: '1' } },
});
const counts = await copyFaults(Number(values.seed), Number(values.rounds), (round, fault) => {
  if (round % 10 === 0) console.log(`round ${round}: ${fault}`);
});
console.log(JSON.stringify(counts));
const { wrong, unended, leftUnderWay, losses } = counts;
if (wrong + unended + leftUnderWay > 0 || losses === 0) process.exit(1);
