/** A slice of random operations on the manager: `npm run campaign -- fuzz` makes more. */

import { expect, it } from 'vitest';
import { fuzzManager } from './managerFuzz.ts';

const operations = Number(process.env.TIERKV_FUZZ_OPERATIONS ?? 25_000);
const seed = Number(process.env.TIERKV_FUZZ_SEED ?? 20_261_120);

it(`${operations} random operations leave every table consistent and no block with foreign bytes (seed ${seed})`, () => {
  const report = fuzzManager(operations, seed);
  console.log(`manager fuzz: ${report.operations} operations, ${report.reads} reads checked, seed ${seed}`);
  for (const [counter, value] of Object.entries(report.counters)) {
    expect(value, `${counter} never happened: the fuzz does not reach it`).toBeGreaterThan(0);
  }
});
