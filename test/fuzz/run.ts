/** The fuzz campaign at any size: `npm run test:fuzz -- --operations 1000000 --seed 1`. */

import { parseArgs } from 'node:util';
import { fuzzManager } from './managerFuzz.ts';

const { values } = parseArgs({
  options: { operations: { type: 'string', default: '1000000' }, seed: { type: 'string', default: '1' } },
});
const operations = Number(values.operations);
const seed = Number(values.seed);
console.log(`manager fuzz: ${operations} operations, seed ${seed}`);
const report = fuzzManager(operations, seed, (done) => {
  if (done % 100_000 === 0) console.log(`  ${done} operations clean`);
});
for (const [name, value] of Object.entries(report.counters)) console.log(`  ${name.padEnd(16)} ${value}`);
console.log(
  `clean: ${report.operations} operations in ${report.worlds} worlds, ${report.reads} reads checked, seed ${seed}`,
);
