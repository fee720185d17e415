/** Where a result comes from: the version, the key of the simulation, its model of time, and the settings that acted. */

import { packageVersion } from '../../packageFiles.ts';
import type { SimulationKey } from '../cluster/parts.ts';
import { deployedPaths, knobs, type Path, paths, type SettledAt } from '../description/knobs.ts';
import { get } from '../description/settings.ts';
import type { BuiltPool, BuiltSimulation } from './built.ts';
import { type DeploymentRun, hasEffect } from './needs.ts';

/** Values by path; seeds are texts. */
type Settled = Readonly<{ [P in Path]?: Exclude<SettledAt<P>, bigint> | string }>;

/** The key with its seeds as text, since JSON has no integers of 64 bits. */
type KeyText = { readonly [K in keyof SimulationKey]: string };

export interface Provenance {
  readonly tierkv: string;
  /** Seed of the requests: of the command line, else of the specification. */
  readonly seed: string;
  readonly key: KeyText;
  readonly model: string;
  readonly hardware: string;
  readonly latencyModel: string;
  readonly floor: boolean;
  /** Every setting that had an effect, by its path, with its given or default value. */
  readonly settings: Settled;
  /** Each pool of a deployment file. Model, hardware and latency model above are those of the first. */
  readonly pools?: readonly PoolProvenance[];
}

/** A pool of a deployment file, as it ran. */
interface PoolProvenance {
  readonly name: string;
  readonly role: string;
  readonly replicas: number;
  readonly model: string;
  readonly hardware: string;
  readonly latencyModel: string;
  readonly floor: boolean;
  readonly settings: Settled;
}

/** The settings that had an effect, in order of their paths. */
function acting(paths: readonly Path[], run: DeploymentRun, isRecorded: boolean): Settled {
  const settled: Record<string, unknown> = {};
  for (const path of paths.toSorted()) {
    const value: unknown = get(run.deployment, path);
    if (value === undefined || !hasEffect(path, run, isRecorded)) continue;
    // JSON has no integers of 64 bits
    settled[path] = typeof value === 'bigint' ? value.toString() : value;
  }
  return settled as Settled;
}

const ofPools = paths.filter(
  (path) => path === 'model' || ['model', 'engine'].includes(knobs[path].in ?? ''),
);

function poolOf(
  { name, machine, config, deployment }: BuiltPool,
  run: DeploymentRun,
  isRecorded: boolean,
): PoolProvenance {
  return {
    name,
    role: config.role,
    replicas: config.replicas,
    model: machine.model.name,
    hardware: `${machine.hardware.name} x ${machine.tp}`,
    latencyModel: machine.latency.backend,
    floor: machine.floor,
    settings: acting(ofPools, { ...run, deployment, pools: [config] }, isRecorded),
  };
}

export function provenanceOf(built: BuiltSimulation): Provenance {
  const { machine, opened, simulation, deployment, pools } = built;
  const { key } = simulation;
  const run: DeploymentRun = {
    control: built.control,
    pools: built.fleet.pools,
    scaling: built.planned,
    deployment,
  };
  const isRecorded = opened.spec === undefined;
  // beside a deployment file, settings that describe one cannot be given: what is there of them is defaults
  const own = pools === undefined ? paths : paths.filter((path) => !deployedPaths.has(path));
  return {
    tierkv: packageVersion(),
    seed: key.workloadSeed.toString(),
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
    settings: acting(own, run, isRecorded),
    ...(pools === undefined ? {} : { pools: pools.map((pool) => poolOf(pool, run, isRecorded)) }),
  };
}
