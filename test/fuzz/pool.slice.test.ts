/** A slice of random operations on a multi-granular pool: `npm run campaign -- fuzz pool` makes more. */

import { expect, it } from 'vitest';
import { fuzzPool } from './poolFuzz.ts';

const operations = Number(process.env.TIERKV_FUZZ_OPERATIONS ?? 6_000);
const seed = Number(process.env.TIERKV_FUZZ_SEED ?? 20_261_124);
/** What has to happen in any run of this length for it to mean something. */
const needed = [
  'allocated 0',
  'allocated 1',
  'allocated 2',
  'allocated 3',
  'shared',
  'forked',
  'truncated',
  'deallocated',
  'moved',
  'evicted',
  'lost',
  'TKV_FULL',
];

it(`${operations} random operations on a pool leave every box with its own bytes (seed ${seed})`, () => {
  const report = fuzzPool(operations, seed);
  console.log(`pool fuzz: ${report.operations} operations, ${report.reads} reads compared, seed ${seed}`);
  for (const name of needed) {
    expect(report.counters[name] ?? 0, `${name} never happened: the fuzz does not reach it`).toBeGreaterThan(
      0,
    );
  }
});
