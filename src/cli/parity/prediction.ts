/**
 * The second half of parity: the simulator serves the same traffic on the same configuration, free. It knows
 * the links as they were measured and the times of steps as the runner gives them, and nothing of the run.
 */

import { defaultEviction, type ManagerConfig, type SchedulerHead } from '../../runtime/index.ts';
import { resolveConfig } from '../../runtime/manager/config.ts';
import { PolicyControlPlane } from '../../sim/control/index.ts';
import { newSimulation } from '../../sim/deployment/index.ts';
import type { LinkProfiles } from '../../sim/driver/index.ts';
import { type EngineConfig, type LowerTier, SchedulerEngine } from '../../sim/instance/index.ts';
import type { LatencyModel } from '../../sim/latency/index.ts';
import { Status } from '../../sim/metrics/index.ts';
import type { KnownLinks } from './links.ts';
import { RunObserver } from './observer.ts';
import type { ServedRequest } from './serving/runner.ts';
import { requestKey, type Traffic } from './serving/traffic.ts';

export interface Prediction {
  readonly requests: readonly ServedRequest[];
  readonly observed: RunObserver;
}

export interface Recorded {
  readonly config: ManagerConfig;
  readonly scheduler: SchedulerHead;
}

function engineOf({ config, scheduler }: Recorded, links: LinkProfiles): EngineConfig {
  const blockBytes = config.unitBytes[scheduler.sizeClass];
  const blocks = (bytes: number): number => Math.floor(bytes / blockBytes);
  const lowerTiers = (['ddr', 'nvme', 'remote'] as const).flatMap((tier): LowerTier[] => {
    const size = config[tier];
    return size === undefined ? [] : [{ tier, blocks: blocks(size.capacityBytes) }];
  });
  return {
    blockTokens: scheduler.blockTokens,
    blockBytes,
    hbmBlocks: blocks(config.hbm.capacityBytes),
    lowerTiers,
    loads: { kind: 'deferred', links, prefetch: false },
    computeUsPerToken: Infinity, // the runtime loads whatever is there
    eviction: config.eviction ?? defaultEviction,
    offloadThreshold: config.offloadThreshold ?? 1,
    lowerCopy: config.lowerCopy ?? 'keep',
    scheduler,
    manager: config,
  };
}

/** @returns every request, in order of arrival */
export function predict(
  recorded: Recorded,
  traffic: Traffic,
  latency: LatencyModel,
  { profiles, stepOverheadUs }: KnownLinks,
): Prediction {
  const { config, scheduler } = recorded;
  const observed = new RunObserver(resolveConfig(config).tiers.map(({ tier }) => tier));
  const { maxModelTokens, maxSequences, preemption, blockTokens } = scheduler;
  const simulation = newSimulation({
    deployment: {
      pools: [
        {
          configId: 'parity',
          role: 'monolithic',
          model: '',
          replicas: 1,
          engine: engineOf(recorded, profiles),
          latency: stepsOnly(latency, stepOverheadUs),
          limits: { maxModelTokens, maxSequences, preemption },
        },
      ],
    },
    workload: traffic.open(),
    control: new PolicyControlPlane({}, { key: 0n, blockTokens, maxSequences }),
    options: {
      horizonUs: Infinity,
      admissionLatencyUs: 0,
      routingLatencyUs: 0,
      lastTokenInContext: true,
      handoff: { baseLatencyUs: 0, bandwidthBytesPerS: 1e9 },
    },
    makeEngine: ({ engine }, timeline, woken) => new SchedulerEngine(engine, timeline, woken, observed),
  });
  simulation.run();
  simulation.close();
  const { table } = simulation;
  const requests: ServedRequest[] = [];
  for (let row = 0; row < table.size; row++) {
    if (table.status[row] !== Status.COMPLETED) continue;
    const arrivalUs = table.arrivalUs[row];
    requests.push({
      key: requestKey(table.idOf(row), table.sessionOf(row), table.round[row]),
      arrivalUs,
      firstTokenUs: arrivalUs + table.firstTokenUs[row],
      lastTokenUs: arrivalUs + table.e2eUs[row],
      outputTokens: table.generatedTokens[row],
    });
  }
  return { requests, observed };
}

/** The runner measures from the scheduler's door: what lies before and behind it is none of its times. */
function stepsOnly(latency: LatencyModel, overheadUs: number): LatencyModel {
  return {
    backend: latency.backend,
    stepTimeUs: (batch) => latency.stepTimeUs(batch) + overheadUs,
    explain: (batch) => latency.explain(batch),
    queueingTimeUs: () => 0,
    outputTokenProcessingUs: 0,
    postDecodeOverheadUs: 0,
  };
}
