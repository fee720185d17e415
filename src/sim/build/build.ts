/** Builds the simulation of a plan, and runs it to its end. */

import type { Conservation } from '../cluster/core.ts';
import { controlReadsKeys } from '../control/plane.ts';
import { type Fleet, newSimulation, type PoolConfig } from '../description/deployment.ts';
import type { FieldPaths } from '../description/settings.ts';
import { get, nothingSaid, saidOfSettings } from '../description/settings.ts';
import { KeysNeeded } from '../instance/simRequest.ts';
import {
  type BuildExtras,
  type BuiltPool,
  type BuiltSimulation,
  controlPlane,
  makeScaling,
  simulationKey,
  withPolicies,
} from './built.ts';
import { goodputTargets } from './classTargets.ts';
import { type EngineHardware, engineField, type PlannedMachine, withLatency } from './engineSettings.ts';
import type { SimulationPlan } from './plan.ts';
import { openPlanned } from './workloadSettings.ts';

/** Runs a simulation to its end. It may run a second time, with the block keys that the first run left out. */
export function runToEnd(
  build: (skipsKeys: boolean) => BuiltSimulation,
  progress: (built: BuiltSimulation) => (requests: number, nowUs: number) => void = () => () => {},
): BuiltSimulation & { readonly conservation: Conservation } {
  for (let skipsKeys = true; ; skipsKeys = false) {
    const built = build(skipsKeys);
    try {
      built.simulation.run(progress(built));
      return { ...built, conservation: built.simulation.close() };
    } catch (error) {
      if (!(error instanceof KeysNeeded) || !skipsKeys) throw error;
    }
  }
}

/** Settings behind the fields that the cluster checks. */
const clusterField: FieldPaths = (field) => {
  if (field === 'replicas' || field === 'default.replicas') return 'pools.total';
  return engineField(field);
};

/** @throws {TierKVError} about a setting, in the words of the one who wrote it */
export function buildPlanned(plan: SimulationPlan, extras: BuildExtras = {}): BuiltSimulation {
  const build = (): BuiltSimulation => assemble(plan, extras);
  return plan.source === 'settings' ? saidOfSettings(plan.deployment, clusterField, build) : build();
}

function assemble(plan: SimulationPlan, extras: BuildExtras): BuiltSimulation {
  const { bundle: bound, adjust, ...parts } = extras;
  const { control, deployment, gateway, admissionLatencyUs, routingLatencyUs, handoff } = plan;
  const machines = new Map<PlannedMachine, EngineHardware>();
  const machineOf = (planned: PlannedMachine): EngineHardware => {
    const machine = machines.get(planned) ?? withLatency(planned);
    machines.set(planned, machine);
    return machine;
  };
  const pools = plan.pools.map((planned) => {
    const { machine: plain, deployment: own = nothingSaid, ...rest } = planned;
    const machine = machineOf(plain);
    const plainConfig: PoolConfig = { ...rest, latency: machine.latency };
    const engine = bound === undefined ? rest.engine : withPolicies(rest.engine, bound);
    return { name: rest.configId, machine, deployment: own, plainConfig, config: { ...plainConfig, engine } };
  });
  const fleet: Fleet = { pools: pools.map(({ config }) => config) };
  const [{ engine }] = fleet.pools;
  const opened = openPlanned(plan.workload, deployment, adjust);
  const ofBundle = bound?.policyId ?? null;
  const policies =
    plan.source === 'file'
      ? [plan.named, ofBundle]
      : [control, engine.scheduler, engine.eviction, plan.named, ofBundle];
  const key = simulationKey(deployment, opened, policies);
  const targets = goodputTargets(deployment, opened.spec);
  const scaling = plan.scaling.map((planned) => makeScaling(planned, key, targets, bound?.scaling));
  const maxSequences = Math.max(...fleet.pools.map(({ limits }) => limits.maxSequences));
  const makeEngine = extras.makeEngine ?? bound?.makeEngine;
  const simulation = newSimulation({
    key,
    deployment: fleet,
    workload: opened.workload,
    control: controlPlane(control, key, engine.blockTokens, maxSequences, bound),
    options: {
      horizonUs: opened.horizonUs,
      admissionLatencyUs,
      routingLatencyUs,
      lastTokenInContext: get(deployment, 'asUpstream') !== true,
      handoff,
      ...(gateway === null ? {} : { gateway }),
    },
    scaling,
    ...parts,
    ...(makeEngine === undefined ? {} : { makeEngine }),
    skipsKeys: (extras.skipsKeys ?? true) && bound === undefined && !controlReadsKeys(control),
  });
  return {
    simulation,
    opened,
    fleet,
    machine: pools[0].machine,
    scaling,
    scheduler: engine.scheduler.queueOrder ?? 'fcfs',
    deployment,
    control,
    planned: plan.scaling,
    ...(plan.source === 'settings'
      ? {}
      : {
          pools: pools.map(
            (pool): BuiltPool => ({
              name: pool.name,
              machine: pool.machine,
              deployment: pool.deployment,
              config: pool.plainConfig,
            }),
          ),
        }),
    gpus: () =>
      simulation.instances.reduce((sum, { configId }) => {
        const pool = pools.find(({ name }) => name === configId);
        return sum + (pool === undefined ? 0 : pool.machine.tp * pool.machine.dp);
      }, 0),
  };
}
