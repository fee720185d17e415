/** `simulate`: one call from a description to the result of its simulation. */

import path from 'node:path';
import { withGivenFiles } from '../../io/files/givenFiles.ts';
import { formatCount } from '../../io/printing/text.ts';
import { plainOrderNames } from '../../runtime/batching/config.ts';
import { TierKVError } from '../../runtime/errors.ts';
import { evictionPolicyNames } from '../../runtime/eviction/registry.ts';
import * as is from '../../runtime/kinds.ts';
import { type Kinds, optionTable } from '../../runtime/options.ts';
import type { Conservation } from '../cluster/core.ts';
import { admissionPolicies } from '../control/admission.ts';
import { routingPolicies } from '../control/routing/routing.ts';
import type { DeploymentSpec, Path } from '../description/knobs.ts';
import { fromFields } from '../description/readers.ts';
import { get, nameOf } from '../description/settings.ts';
import { clusterMetrics, type MetricsOutput, metricsOutput } from '../report/metricsOutput.ts';
import { type CacheMetrics, cacheMetrics, Occupancy, type OccupancySample } from '../report/tierMetrics.ts';
import { buildPlanned, runToEnd } from './build.ts';
import type { BuiltSimulation } from './built.ts';
import { goodputTargets, requireKnownTargets } from './classTargets.ts';
import { dataFileNames } from './dataFiles.ts';
import { refuseIdle } from './needs.ts';
import { latenciesOf } from './output.ts';
import { planSimulation } from './plan.ts';
import { rateNotice } from './presetSettings.ts';

/** Metrics of a simulated run, as a whole and by instance. */
export interface SimulationResult {
  /** Metrics of the whole run, as `tierkv simulate` prints them. */
  readonly metrics: MetricsOutput;
  /** Metrics of each instance. */
  readonly instances: readonly MetricsOutput[];
  /** Number of requests in each state at the end. */
  readonly conservation: Conservation;
  /** GPUs of all instances. */
  readonly gpus: number;
  /** Warnings about settings without effect, a sentence each. */
  readonly warnings: readonly string[];
  /** Data for charts; only with the option `detail`. */
  readonly detail?: SimulationDetail;
}

/** Data for charts of a run. Times are in microseconds. */
interface SimulationDetail {
  /** One value for each request that has it, in the order of arrival. */
  readonly latencies: ReturnType<typeof latenciesOf>;
  /** Names of the tiers, HBM first. */
  readonly tiers: readonly string[];
  /** Use of the tiers and hits in them, over time. */
  readonly samples: readonly OccupancySample[];
  readonly cache: CacheMetrics;
}

/** Options of `simulate` beside the description. */
export interface SimulateOptions {
  /** Texts of files that the description names, by name. They are taken in place of files on disk. */
  readonly files?: Readonly<Record<string, string>>;
  /** Whether the result has `detail`. Default false. */
  readonly detail?: boolean;
}

const simulateOptions = optionTable({
  files: is.optional(is.object(), {}),
  detail: is.optional(is.flag(), false),
} satisfies Kinds<SimulateOptions>);

/**
 * Simulates a deployment under its workload, on virtual time: the same description gives the same result.
 * @throws {TierKVError} TKV_CONFIG with the field at fault; TKV_CAPACITY where no request has room
 */
export function simulate(spec: DeploymentSpec, options: SimulateOptions = {}): SimulationResult {
  is.object().read(spec, 'spec');
  const { files, detail } = simulateOptions.read(options);
  for (const text of Object.values(files)) is.text().read(text, 'files');
  // names in a deployment file are looked up as absolute paths
  const whole = Object.entries(files).map(([name, text]) => [path.resolve(name), text] as const);
  return withGivenFiles({ ...files, ...Object.fromEntries(whole) }, () => run(spec, detail));
}

function run(spec: DeploymentSpec, detail: boolean): SimulationResult {
  const plan = planSimulation(fromFields(spec));
  refuseIdle(plan, plan.workload.kind === 'trace');
  const { deployment } = plan;
  let occupancy: Occupancy | undefined;
  const built = runToEnd((skipsKeys) => {
    let begun: BuiltSimulation | undefined;
    occupancy = detail ? new Occupancy(() => begun?.simulation.instances ?? []) : undefined;
    begun = buildPlanned(plan, { skipsKeys, ...(occupancy === undefined ? {} : { observer: occupancy }) });
    return begun;
  });
  requireKnownTargets(deployment, built.opened.spec === undefined ? classesOf(built) : []);
  requireRoom(built);
  const { table, instances } = built.simulation;
  return {
    metrics: clusterMetrics(table, instances, goodputTargets(deployment, built.opened.spec), false),
    instances: instances.map(({ id }, i) => metricsOutput(table, instances, id, i, false)),
    conservation: built.conservation,
    gpus: built.gpus(),
    warnings: [...plan.notices, ...rateWarnings(built)],
    ...(occupancy === undefined ? {} : { detail: detailOf(built, occupancy) }),
  };
}

function detailOf({ simulation }: BuiltSimulation, { samples, tiers }: Occupancy): SimulationDetail {
  const cache = cacheMetrics(simulation.instances);
  return { latencies: latenciesOf(simulation.table), tiers, samples, cache };
}

/** Names that a description may use: what comes with the package, and the policies that need no parameters. */
export function simulationChoices(): Readonly<
  Record<'models' | 'hardware' | 'routing' | 'admission' | 'scheduler' | 'eviction', readonly string[]>
> {
  return {
    models: dataFileNames('models'),
    hardware: dataFileNames('hardware'),
    routing: routingPolicies.names,
    admission: admissionPolicies.names,
    scheduler: plainOrderNames,
    eviction: evictionPolicyNames,
  };
}

/** A warning where a run of conversations did not reach its rate. */
export function rateWarnings({ simulation: { table }, deployment }: BuiltSimulation): string[] {
  let lastUs = 0;
  for (let row = 0; row < table.size; row++) lastUs = Math.max(lastUs, table.arrivalUs[row]);
  const rate = get(deployment, 'workload.rate');
  const preset = get(deployment, 'workload.preset');
  const notice = rateNotice(preset, rate, table.size, lastUs / 1e6, (path) => nameOf(deployment, path));
  return notice === undefined ? [] : [notice];
}

/** Classes of the requests that a run had. */
export function classesOf({ simulation: { table } }: BuiltSimulation): Set<string> {
  const classes = new Set<string>();
  for (let row = 0; row < table.size; row++) classes.add(table.originOf(row).sloClass);
  return classes;
}

/** Refuses a deployment on which no request of the workload has room. */
export function requireRoom({
  fleet,
  deployment,
  pools,
  conservation,
}: BuiltSimulation & { conservation: Conservation }): void {
  const { injected, unservable } = conservation;
  if (injected === 0 || unservable < injected) return;
  const sizes = fleet.pools.map(({ engine: { topBlocks, blockTokens } }) => {
    return `${formatCount(topBlocks)} blocks of ${formatCount(blockTokens)} tokens`;
  });
  // in a deployment file the pool has the settings
  const said = pools?.[0].deployment ?? deployment;
  const name = (path: Path): string => nameOf(said, path);
  const each =
    injected === 1 ? 'the one request does not fit' : `none of ${formatCount(injected)} requests fits`;
  const needs = injected === 1 ? 'it needs more, or is' : 'each request needs more, or is';
  throw new TierKVError(
    'TKV_CAPACITY',
    `${each}: an instance has ${sizes.join(', or ')}, and ${needs} longer than the model takes. Give more KV blocks ` +
      `(${name('engine.kvBlocks')}) or a larger ${name('engine.maxModelTokens')}, or serve shorter prompts.`,
    { field: name('engine.kvBlocks') },
  );
}
