/**
 * Campaigns at full size, by name: `npm run campaign -- faults --faults 1000000 --seed 1`. Options behind the name
 * are the campaign's own; without a name, the names are listed.
 */

import { join } from 'node:path';
import { runAttached } from './attachedProcess.ts';

/** What Node runs for each name, from the project's folder. */
export const campaigns: Readonly<Record<string, readonly string[]>> = {
  faults: ['test/faults/run.ts'],
  modelcheck: ['test/modelcheck/run.ts'],
  fuzz: ['test/fuzz/run.ts'],
  states: ['test/runtime/snapshot/run.ts'],
  inputs: ['test/fuzz-inputs/run.ts'],
  crash: ['test/crash/run.ts'],
  copies: ['test/backends/webgpu/copyFaultsRun.ts'],
  save: ['test/embed/saving/run.ts'],
  sandbox: ['test/sim/sandbox/attacks/run.ts'],
  remote: ['test/backends/remote/run.ts'],
  pair: ['test/handoff/run.ts'],
  shared: ['test/embed/remote/run.ts'],
  truth: ['test/fullRun.ts', 'test/cli/replay/groundTruth.test.ts'],
  full: ['test/fullRun.ts'],
  soak: ['test/soak/run.ts'],
  server: ['test/server-load/run.ts'],
  strangers: ['test/server-load/strangers.ts'],
  gateway: ['test/gateway/run.ts'],
  stubborn: ['test/gateway/stubbornRun.ts'],
  loads: ['test/sim/tier/run.ts'],
  observed: ['test/cli/observe/run.ts'],
  kernels: ['test/compute/run.ts'],
  bits: ['test/fullRun.ts', 'test/examples/server', 'test/compute', '-t', 'bit-identical'],
  transformers: ['test/adapters/run.ts'],
  tabs: ['test/browser/run.ts'],
  coverage: ['test/lineCoverage/run.ts', '--least', '90'],
};

if (import.meta.main) {
  const [name, ...options] = process.argv.slice(2);
  const program = Object.hasOwn(campaigns, name) ? campaigns[name] : undefined;
  if (program === undefined) {
    console.error(
      `Usage: npm run campaign -- NAME [options], with one of: ${Object.keys(campaigns).join(', ')}`,
    );
    process.exit(2);
  }
  process.exit(await runAttached([...program, ...options], { cwd: join(import.meta.dirname, '..') }));
}
