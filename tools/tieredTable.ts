/**
 * Makes the table of docs/guide/simulate.md on loads of host memory from `examples/deployments/tiered.yaml`, as that file and
 * the simulator are now: `node tools/tieredTable.ts`. A test holds the page to it.
 */

import { readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { simulate } from '../src/sim/build/simulate.ts';

const root = new URL('../', import.meta.url);
export const tieredPage: string = fileURLToPath(new URL('docs/guide/simulate.md', root));
const heading = '| host memory at | when-faster | always | without tiers |';

/** A shorter run with less memory than the file has, so that blocks go down and come back. */
const pressed = [
  'pools[0].replicas=2',
  'pools[0].engine.total_kv_blocks=2500',
  'workload.spec.aggregate_rate=4',
  'workload.spec.num_requests=250',
];

/** Mean time to the first token in seconds. */
function meanTtftS(...settings: readonly string[]): string {
  const file = fileURLToPath(new URL('examples/deployments/tiered.yaml', root));
  const { metrics } = simulate({ file, set: [...pressed, ...settings] });
  return (metrics.ttft_mean_ms / 1000).toFixed(1);
}

/** @param rates of host memory in GB/s, a row each */
export function tieredTable(rates: readonly number[] = [25, 1, 0.2]): string {
  const none = meanTtftS('pools[0].tiers=null', 'pools[0].engine.kv_load=null');
  const rows = rates.map((gbPerS) => {
    const link = `{baseLatencyUs: 10, bandwidthBytesPerS: ${gbPerS * 1e9}}`;
    const links = `pools[0].tiers.links={hbmToDdr: ${link}, ddrToHbm: ${link}}`;
    const [faster, always] = ['when-faster', 'always'].map((load) =>
      meanTtftS(links, `pools[0].engine.kv_load=${load}`),
    );
    return `| ${gbPerS} GB/s | ${faster} | ${always} | ${none} |`;
  });
  return [heading, '|---|---:|---:|---:|', ...rows].join('\n');
}

/** The table as the page has it. */
export function printedTable(page: string): string {
  const from = page.indexOf(heading);
  return page.slice(from, page.indexOf('\n\n', from));
}

if (import.meta.main) {
  const page = readFileSync(tieredPage, 'utf8');
  writeFileSync(tieredPage, page.replace(printedTable(page), tieredTable()));
}
