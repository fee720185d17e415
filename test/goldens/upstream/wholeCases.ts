/** Upstream's whole cases: the command line of each as ours, and its metrics to compare with. */

import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { gunzipSync } from 'node:zlib';
import { buildPlanned, runToEnd } from '../../../src/sim/build/build.ts';
import type { BuildExtras, BuiltSimulation } from '../../../src/sim/build/built.ts';
import { goodputTargets } from '../../../src/sim/build/classTargets.ts';
import { planSimulation } from '../../../src/sim/build/plan.ts';
import { askedBy, type Outputs, readWords } from '../../../src/sim/description/readers.ts';
import { clusterMetrics, type MetricsOutput } from '../../../src/sim/report/metricsOutput.ts';

export interface WholeCase {
  readonly name: string;
  /** Arguments behind `run` or `replay`, and `--as-upstream`, since upstream's defaults hold. */
  readonly args: readonly string[];
  readonly metrics: MetricsOutput;
}

/** A folder of goldens: cases, and the data that their command lines name. */
export function loadCase(root: URL, name: string): WholeCase | undefined {
  const folder = new URL(`cases/${name}/`, root);
  if (!existsSync(folder)) return undefined;
  const words = readFileSync(new URL('cmd.txt', folder), 'utf8').trim().split(/\s+/);
  const plain = new URL('metrics.json', folder);
  const text = existsSync(plain)
    ? readFileSync(plain, 'utf8')
    : gunzipSync(readFileSync(new URL('metrics.json.gz', folder))).toString('utf8');
  const args = [...words.slice(2).map((word) => fileArgument(root, word)), '--as-upstream'];
  return { name, args, metrics: JSON.parse(text) };
}

/** Paths of a command line are relative to the folder of data. */
function fileArgument(root: URL, word: string): string {
  if (!/\.ya?ml$|\.csv$|\.json$/.test(word)) return word;
  return path.resolve(fileURLToPath(new URL('data/', root)), word);
}

export function simulated(
  args: readonly string[],
  extras: BuildExtras = {},
): BuiltSimulation & { readonly outputs: Outputs } {
  const { deployment, outputs } = askedBy(readWords(args));
  const built = runToEnd((skipsKeys) => buildPlanned(planSimulation(deployment), { skipsKeys, ...extras }));
  built.simulation.checkIntegrity();
  return { ...built, outputs };
}

export function run(args: readonly string[], extras: BuildExtras = {}): MetricsOutput {
  const { simulation, deployment, opened } = simulated(args, extras);
  const { table, instances } = simulation;
  return clusterMetrics(table, instances, goodputTargets(deployment, opened.spec));
}

/** Fields of upstream's metrics that differ from ours, and how many requests do; nothing when all agree. */
export function differences(ours: MetricsOutput, theirs: MetricsOutput): string[] {
  const found: string[] = [];
  const mine = ours as unknown as Record<string, unknown>;
  for (const [field, value] of Object.entries(theirs)) {
    if (field === 'requests' || JSON.stringify(value) === JSON.stringify(mine[field])) continue;
    found.push(`${field}: ${JSON.stringify(mine[field])} is not ${JSON.stringify(value)}`);
  }
  const rows = [...theirs.requests].sort(
    (a, b) => a.arrived_at - b.arrived_at || (a.requestID < b.requestID ? -1 : 1),
  );
  const wrong = rows.filter((row, i) => JSON.stringify(row) !== JSON.stringify(ours.requests[i]));
  if (wrong.length > 0 || rows.length !== ours.requests.length) {
    found.push(`${wrong.length} of ${rows.length} requests, the first ${wrong[0]?.requestID}`);
  }
  return found;
}
