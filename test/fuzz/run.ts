/**
 * The fuzz campaigns at any size: `npm run campaign -- fuzz --operations 1000000 --seed 1` for the manager,
 * `npm run campaign -- fuzz pool --operations 1000000 --seed 1` for the multi-granular pool,
 * `npm run campaign -- fuzz calls --calls 10000 --seed 1` for the public API on a live runtime.
 */

import { parseArgs } from 'node:util';
import { anyCalls } from '../embed/anyCalls.ts';
import { fuzzManager } from './managerFuzz.ts';
import { fuzzPool } from './poolFuzz.ts';

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    operations: { type: 'string', default: '1000000' },
    calls: { type: 'string', default: '10000' },
    seed: { type: 'string', default: '1' },
  },
});
const seed = Number(values.seed);
if (positionals[0] === 'calls') await fuzzCalls(Number(values.calls));
else if (positionals[0] === 'pool') fuzz('pool', fuzzPool, Number(values.operations));
else fuzz('manager', fuzzManager, Number(values.operations));

function fuzz(name: string, run: typeof fuzzManager, operations: number): void {
  console.log(`${name} fuzz: ${operations} operations, seed ${seed}`);
  let shown = 0;
  const report = run(operations, seed, (done) => {
    if (done - shown < 100_000) return;
    shown = done;
    console.log(`  ${done} operations clean`);
  });
  for (const [counter, value] of Object.entries(report.counters)) {
    console.log(`  ${counter.padEnd(20)} ${value}`);
  }
  console.log(
    `clean: ${report.operations} operations in ${report.worlds} worlds, ${report.reads} reads checked, seed ${seed}`,
  );
}

async function fuzzCalls(calls: number): Promise<void> {
  console.log(`calls of a live runtime: ${calls}, seed ${seed}`);
  const { ends, devicesLost } = await anyCalls(calls, seed, (done) => {
    if (done % 1000 === 0) console.log(`  ${done} calls clean`);
  });
  for (const [end, count] of [...ends].sort()) console.log(`  ${end.padEnd(40)} ${count}`);
  console.log(`clean: ${calls} calls, ${devicesLost} devices lost, nothing held at rest, seed ${seed}`);
}
