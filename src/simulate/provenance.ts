/** Where a result comes from: the version, the key of the simulation, its model of time, and the options that acted. */

import { packageVersion } from '../packageFiles.ts';
import type { SimulationKey } from '../sim/cluster/parts.ts';
import type { EngineConfig } from '../sim/instance/engine.ts';
import type { BuiltPool, BuiltSimulation } from './built.ts';
import { deployedNames, type OptionValues } from './optionTable.ts';

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
  /** Every option that had an effect, with its given or default value. */
  readonly options: Readonly<Record<string, string | boolean>>;
  /** Of a deployment file: each pool. Model, hardware and latency model above are those of the first. */
  readonly pools?: readonly PoolProvenance[];
}

/** Options that name outputs, and so change no result. */
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
  'report',
  'log',
]);

/** A pool of a deployment file, as it ran. */
interface PoolProvenance {
  readonly name: string;
  readonly role: string;
  readonly replicas: number;
  readonly model: string;
  readonly hardware: string;
  readonly latencyModel: string;
  readonly floor: boolean;
  readonly options: Readonly<Record<string, string | boolean>>;
}

/** Facts of a run that decide whether an option had an effect. */
interface Acting {
  readonly engines: readonly EngineConfig[];
  readonly hasRoles: boolean;
  readonly hasGateway: boolean;
  readonly isGenerated: boolean;
}

const hasTiers = ({ engines }: Acting): boolean => engines.some(({ lowerTiers }) => lowerTiers.length > 0);

/** Options with a default that need another part of the run to have an effect. */
const conditions: readonly (readonly [
  names: readonly string[],
  acts: (on: Acting, all: OptionValues) => boolean,
])[] = [
  [['kvLoad', 'kvOffloadThreshold'], hasTiers],
  [
    ['kvCpuBlocks', 'kvTransferBandwidth', 'kvTransferBaseLatency'],
    (on) => hasTiers(on) && on.engines.some(({ loads }) => loads.kind === 'billed'),
  ],
  [['gpuMemoryUtilization'], (_on, { totalKvBlocks }) => totalKvBlocks === undefined],
  [['pdTransferBandwidth', 'pdTransferBaseLatency', 'pdTransferGranularity'], ({ hasRoles }) => hasRoles],
  [['prefillInstances', 'decodeInstances', 'prefillDecodeInstances'], ({ hasRoles }) => hasRoles],
  [
    ['maxGatewayQueueDepth', 'perBandCapacity', 'requestTtl', 'dispatchTickInterval'],
    ({ hasGateway }) => hasGateway,
  ],
  [['sessionMode'], ({ isGenerated }) => !isGenerated],
];

/** The options that had an effect, in order of their names. */
function acting(options: OptionValues, on: Acting): Record<string, string | boolean> {
  const idle = new Set(conditions.flatMap(([names, acts]) => (acts(on, options) ? [] : names)));
  const used = Object.entries(options).filter(
    (entry): entry is [string, string | boolean] => entry[1] !== undefined && !idle.has(entry[0]),
  );
  return Object.fromEntries(used.sort(([a], [b]) => (a < b ? -1 : 1)));
}

function poolOf({ name, machine, config, options }: BuiltPool, on: Acting): PoolProvenance {
  return {
    name,
    role: config.role,
    replicas: config.replicas,
    model: machine.model.name,
    hardware: `${machine.hardware.name} x ${machine.tp}`,
    latencyModel: machine.latency.backend,
    floor: machine.floor,
    options: acting(options, { ...on, engines: [config.engine] }),
  };
}

export function provenanceOf({
  machine,
  opened,
  simulation,
  options,
  pools,
  deployment,
}: BuiltSimulation): Provenance {
  const { key } = simulation;
  const on: Acting = {
    engines: deployment.pools.map(({ engine }) => engine),
    hasRoles: deployment.pools.some(({ role }) => role !== 'monolithic'),
    hasGateway: simulation.control.gateway !== null,
    isGenerated: opened.spec !== undefined,
  };
  // beside a deployment file, options that describe one cannot be given: what is there of them is defaults
  const foreign = pools === undefined ? outputs : new Set([...outputs, ...deployedNames]);
  const own = Object.fromEntries(Object.entries(options).filter(([name]) => !foreign.has(name)));
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
    options: acting(own, on),
    ...(pools === undefined ? {} : { pools: pools.map((pool) => poolOf(pool, on)) }),
  };
}
