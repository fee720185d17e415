/** Where a result comes from: the version, the key of the simulation, and its model of time. */

import { readFileSync } from 'node:fs';
import type { BuiltSimulation } from '../built.ts';
import type { Options } from '../input/options.ts';

export interface Provenance {
  readonly tierkv: string;
  readonly seed: string;
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

export function provenanceOf({ machine, opened }: BuiltSimulation, options: Options): Provenance {
  const packageJson = readFileSync(new URL('../../../../package.json', import.meta.url), 'utf8');
  const given = Object.entries(options).filter(
    (entry): entry is [string, string | boolean] => entry[1] !== undefined && !outputs.has(entry[0]),
  );
  return {
    tierkv: (JSON.parse(packageJson) as { version: string }).version,
    seed: opened.seed.toString(),
    model: machine.model.name,
    hardware: `${machine.hardware.name} x ${machine.tp}`,
    latencyModel: machine.latency.backend,
    floor: machine.floor,
    options: Object.fromEntries(given.sort(([a], [b]) => (a < b ? -1 : 1))),
  };
}
