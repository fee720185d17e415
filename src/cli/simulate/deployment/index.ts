/**
 * `--deployment FILE`: models, pools, control plane, autoscaling, workload and targets in one YAML file, read
 * strictly. What the command line says of the workload, the seed and the targets goes before the file.
 */

import { invariant } from '../../../runtime/errors.ts';
import { type HandoffConfig, handoffGranularities } from '../../../sim/cluster/index.ts';
import { type Deployment, newSimulation } from '../../../sim/deployment/index.ts';
import { readYaml, type SpecNode } from '../../../sim/workload/spec/reader.ts';
import { readText } from '../../input/index.ts';
import { type BuildExtras, type BuiltSimulation, controlPlane, readsNoKeys, withPolicies } from '../built.ts';
import { textOption } from '../input/numbers.ts';
import type { Options } from '../input/options.ts';
import { goodputTargets } from '../input/targets.ts';
import { openSimulation } from '../input/workload.ts';
import { simulationKey } from '../key.ts';
import { readControl } from './control.ts';
import { type DeployedPool, readPools } from './pools.ts';
import { readScaling } from './scaling.ts';
import { applySettings } from './settings.ts';
import { type DeployedWorkload, readTargets, readWorkload } from './workload.ts';

const VERSIONS = ['1'] as const;

/** @throws {TierKVError} naming file, line and key, or the option */
export function buildDeployed(
  trace: string | undefined,
  options: Options,
  extras: BuildExtras = {},
): BuiltSimulation {
  const file = textOption(options, 'deployment');
  invariant(file !== undefined, 'a deployment was asked for');
  const text = applySettings(readText(file), file, textOption(options, 'set'));
  const root = readYaml(text, file);
  root.choice('version', VERSIONS);
  const { bundle: bound, adjust, ...parts } = extras;
  const pools = readPools(root, options);
  const deployed = readControl(root);
  const workload = readWorkload(root, file);
  const handoff = readHandoff(root);
  const said = { ...readTargets(root), ...readRun(root), ...defined(options) };
  const { opened, options: served } = openDeployed(trace, said, workload, adjust);
  const key = simulationKey(said, opened, [text, bound?.policyId ?? null]);
  const targets = goodputTargets(said, opened.spec);
  const own = bound?.scaling;
  const scaling = readScaling(root, pools, { key, targets, ...(own === undefined ? {} : { own }) });
  root.close();
  const deployment: Deployment = {
    pools: pools.map(({ config }) => {
      return bound === undefined ? config : { ...config, engine: withPolicies(config.engine, bound) };
    }),
  };
  const { blockTokens } = pools[0].config.engine;
  const maxSequences = Math.max(...pools.map(({ config }) => config.limits.maxSequences));
  const { control, gateway, admissionLatencyUs, routingLatencyUs } = deployed;
  const makeEngine = extras.makeEngine ?? bound?.makeEngine;
  const simulation = newSimulation({
    key,
    deployment,
    workload: opened.workload,
    control: controlPlane(control, key, blockTokens, maxSequences, bound),
    options: {
      horizonUs: opened.horizonUs,
      admissionLatencyUs,
      routingLatencyUs,
      lastTokenInContext: options.asUpstream !== true,
      handoff,
      ...(gateway === null ? {} : { gateway }),
    },
    scaling,
    ...parts,
    ...(makeEngine === undefined ? {} : { makeEngine }),
    skipsKeys: (extras.skipsKeys ?? true) && bound === undefined && readsNoKeys(control),
  });
  const gpusOf = ({ machine }: DeployedPool): number => machine.tp * machine.dp;
  return {
    simulation,
    opened,
    deployment,
    machine: pools[0].machine,
    scaling,
    scheduler: pools[0].config.engine.scheduler.queueOrder ?? 'fcfs',
    options: served,
    pools,
    gpus: () =>
      simulation.instances.reduce((sum, { configId }) => {
        const pool = pools.find(({ name }) => name === configId);
        return sum + (pool === undefined ? 0 : gpusOf(pool));
      }, 0),
  };
}

/** Options that were given or have a default. */
function defined(options: Options): Options {
  return Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined));
}

/** What a command line names goes before what the file has. */
function openDeployed(
  trace: string | undefined,
  options: Options,
  { options: inFile, spec }: DeployedWorkload,
  adjust: BuildExtras['adjust'],
): { readonly opened: ReturnType<typeof openSimulation>; readonly options: Options } {
  const names = [trace, options.workload, options.workloadSpec, options.traceData];
  const isNamed = names.some((name) => name !== undefined);
  const all = isNamed ? options : { ...inFile, ...options };
  return { opened: openSimulation(trace, all, adjust, isNamed ? undefined : spec), options: all };
}

function readRun(root: SpecNode): Options {
  const options: Record<string, string> = {};
  if (root.has('seed')) options.seed = root.int64('seed', 0n).toString();
  if (root.has('horizon_us')) options.horizon = root.text('horizon_us');
  return options;
}

function readHandoff(root: SpecNode): HandoffConfig {
  const node = root.section('handoff');
  const handoff = {
    baseLatencyUs: node?.number('base_latency_us', { min: 0, max: 1e12 }, 50) ?? 50,
    bandwidthBytesPerS: 1e9 * (node?.number('bandwidth_gb_per_s', { above: 0, max: 1e9 }, 25) ?? 25),
    granularity: node?.choice('granularity', handoffGranularities, 'request') ?? 'request',
    pipelined: node?.flag('pipelined') ?? false,
  };
  if (node !== undefined && handoff.pipelined && handoff.granularity === 'request') {
    const problem = 'has nothing to send before the prompt is done with granularity request';
    throw node.error('pipelined', problem, 'Use chunk, block or stream');
  }
  node?.close();
  return handoff;
}
