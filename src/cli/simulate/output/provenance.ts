/** Where a result comes from: the version, the key of the simulation, and its model of time. */

import { readFileSync } from 'node:fs';
import type { SimulationKey } from '../../../sim/cluster/index.ts';
import type { BuiltSimulation } from '../built.ts';
import type { Options } from '../input/options.ts';

/** The key with its seeds as text, since JSON has no integers of 64 bits. */
export type KeyText = { readonly [K in keyof SimulationKey]: string };

export interface Provenance {
  readonly tierkv: string;
  readonly seed: string;
  readonly key: KeyText;
  readonly model: string;
  readonly hardware: string;
  readonly latencyModel: string;
  readonly floor: boolean;
  /** Every option that was given or has a default. */
  readonly options: Readonly<Record<string, string | boolean>>;
}

/** Options that say where results go, and so decide nothing. */
const outputs: ReadonlySet<string> = new Set([
  'metricsPath',
  'requests',
  'resultsPath',
  'traceOutput',
  'decisions',
  'summarizeTrace',
  'traceLevel',
  'chromeTrace',
  'chromeTraceEvents',
  'plot',
  'log',
]);

export function provenanceOf({ machine, opened, simulation }: BuiltSimulation, options: Options): Provenance {
  const { key } = simulation;
  const packageJson = readFileSync(new URL('../../../../package.json', import.meta.url), 'utf8');
  const given = Object.entries(options).filter(
    (entry): entry is [string, string | boolean] => entry[1] !== undefined && !outputs.has(entry[0]),
  );
  return {
    tierkv: (JSON.parse(packageJson) as { version: string }).version,
    seed: opened.seed.toString(),
    key: {
      policies: key.policies,
      workloadSeed: key.workloadSeed.toString(),
      simulationSeed: key.simulationSeed.toString(),
      jitterSeed: key.jitterSeed.toString(),
    },
    model: machine.model.name,
    hardware: `${machine.hardware.name} x ${machine.tp}`,
    latencyModel: machine.latency.backend,
    floor: machine.floor,
    options: Object.fromEntries(given.sort(([a], [b]) => (a < b ? -1 : 1))),
  };
}
