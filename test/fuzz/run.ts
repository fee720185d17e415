/**
 * The fuzz campaigns at any size: `npm run test:fuzz -- --operations 1000000 --seed 1`, and with `--pool` that
 * of the multi-granular pool.
 */

import { parseArgs } from 'node:util';
import { fuzzManager } from './managerFuzz.ts';
import { fuzzPool } from './poolFuzz.ts';

const { values } = parseArgs({
  options: {
    operations: { type: 'string', default: '1000000' },
    seed: { type: 'string', default: '1' },
    pool: { type: 'boolean', default: false },
  },
});
const operations = Number(values.operations);
const seed = Number(values.seed);
const fuzz = values.pool ? fuzzPool : fuzzManager;
console.log(`${values.pool ? 'pool' : 'manager'} fuzz: ${operations} operations, seed ${seed}`);
const report = fuzz(operations, seed, (done) => {
  if (done % 100_000 === 0) console.log(`  ${done} operations clean`);
});
for (const [name, value] of Object.entries(report.counters)) console.log(`  ${name.padEnd(16)} ${value}`);
console.log(
  `clean: ${report.operations} operations in ${report.worlds} worlds, ${report.reads} reads checked, seed ${seed}`,
);
