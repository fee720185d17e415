/** From the options of `tierkv simulate` to a simulation that is ready to run. */

import type { Conservation, Simulation, SimulationObserver } from '../../sim/cluster/index.ts';
import { PlainControl } from '../../sim/cluster/plainControl.ts';
import { type Deployment, type MakeEngine, newSimulation } from '../../sim/deployment/index.ts';
import { KeysNeeded } from '../../sim/instance/index.ts';
import { withOptionNames } from '../process/index.ts';
import { engineSetup } from './engine.ts';
import { type EngineHardware, engineHardware, oneOf } from './latency.ts';
import { real, whole } from './numbers.ts';
import type { Options } from './options.ts';
import { type OpenedSimulation, openSimulation } from './workload.ts';

/** The options behind the names that the library gives to what it checks. */
const optionNames: Readonly<Record<string, string>> = {
  tp: '--tp',
  dp: '--dp',
  model: '--model',
  GPU: '--hardware',
  blockTokens: '--block-size-in-tokens',
  memoryUtilization: '--gpu-memory-utilization',
  hbmBlocks: '--total-kv-blocks',
  'ddr.blocks': '--kv-cpu-blocks',
  maxBatchedTokens: '--max-num-batched-tokens',
  maxSequences: '--max-num-seqs',
  longPrefillTokens: '--long-prefill-token-threshold',
  replicas: '--num-instances',
  'default.replicas': '--num-instances',
};

export interface BuiltSimulation {
  readonly simulation: Simulation;
  readonly opened: OpenedSimulation;
  readonly deployment: Deployment;
  readonly machine: EngineHardware;
}

export interface BuildExtras {
  readonly observer?: SimulationObserver;
  readonly makeEngine?: MakeEngine;
  /** Default true. */
  readonly skipsKeys?: boolean;
}

/** Runs a simulation to its end, if need be a second time with the block keys that the first left out. */
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

/** @throws {TierKVError} for anything unknown or out of range, in the words of the options */
export function buildSimulation(
  trace: string | undefined,
  options: Options,
  extras: BuildExtras = {},
): BuiltSimulation {
  return withOptionNames(optionNames, () => {
    const machine = engineHardware(options);
    const { engine, limits } = engineSetup(options, machine);
    const deployment: Deployment = {
      pools: [
        {
          configId: 'default',
          role: 'monolithic',
          model: '',
          replicas: whole(options, 'numInstances', 1, 1024),
          engine,
          latency: machine.latency,
          limits,
        },
      ],
    };
    oneOf('--routing-policy', String(options.routingPolicy), ['round-robin']);
    const opened = openSimulation(trace, options);
    const simulation = newSimulation({
      deployment,
      workload: opened.workload,
      control: new PlainControl(),
      options: {
        horizonUs: opened.horizonUs,
        admissionLatencyUs: whole(options, 'admissionLatency', 0, 1e12),
        routingLatencyUs: whole(options, 'routingLatency', 0, 1e12),
        lastTokenInContext: options.asUpstream !== true,
        handoff: {
          baseLatencyUs: 1000 * real(options, 'pdTransferBaseLatency', 0, 1e9),
          bandwidthBytesPerS: 1e9 * real(options, 'pdTransferBandwidth', 1e-9, 1e9),
        },
      },
      skipsKeys: true,
      ...extras,
    });
    return { simulation, opened, deployment, machine };
  });
}
