/**
 * Random clusters over everything that a deployment and its control plane can be made of: tiers, evictions,
 * loads, roles, policies, gateway, shadows, autoscaling, sessions. The same seed gives the same cluster.
 */

import { evictionPolicyNames } from '../../../src/runtime/index.ts';
import { type HandoffConfig, handoffGranularities } from '../../../src/sim/cluster/handoffs.ts';
import { keyOfSeed, type SimulationKey, type SimulationObserver } from '../../../src/sim/cluster/parts.ts';
import type { ScalingSetup } from '../../../src/sim/cluster/scaling.ts';
import { admissionPolicies } from '../../../src/sim/control/admission.ts';
import type { ControlConfig } from '../../../src/sim/control/controlPlane.ts';
import { prefillDecodeDeciders } from '../../../src/sim/control/disaggregation.ts';
import { PolicyControlPlane } from '../../../src/sim/control/plane.ts';
import { priorityPolicies } from '../../../src/sim/control/priority.ts';
import { shadowNames } from '../../../src/sim/control/routerState.ts';
import { routingPolicies } from '../../../src/sim/control/routing/routing.ts';
import { AutoScaler, noTriggers, Replicas } from '../../../src/sim/control/scaling/autoScaler.ts';
import { scalingPolicies } from '../../../src/sim/control/scaling/registry.ts';
import type { PoolConfig, SimulationSetup } from '../../../src/sim/description/deployment.ts';
import { PartitionedRandom } from '../../../src/sim/random/goRand.ts';
import { distributionSpec } from '../../../src/sim/workload/presets.ts';
import { generateWorkload } from '../../../src/sim/workload/workload.ts';
import { SeededRandom } from '../../../src/testing/index.ts';
import { plainLatency, type SmallRequest, smallWorkload, streamOf } from './smallCluster.ts';

const BLOCK_TOKENS = 4;
const MAX_SEQUENCES = 16;
/** Slower than steps, so that transfers are under way at most moments. */
const slowLink = { baseLatencyUs: 200, bandwidthBytesPerS: 1e6 };

export function pick<T>(random: SeededRandom, from: readonly T[]): T {
  return from[random.below(from.length)];
}

export function engineOf(random: SeededRandom): Pick<PoolConfig, 'engine' | 'limits'> {
  const tiers = random.below(3);
  const lowerTiers = [
    { tier: 'ddr' as const, blocks: 8 + random.below(60) },
    { tier: 'nvme' as const, blocks: 16 + random.below(200) },
  ].slice(0, tiers);
  const maxSequences = 1 + random.below(MAX_SEQUENCES);
  const preemption = pick(random, ['restart', 'recompute', ...(tiers > 0 ? ['offload'] : [])]);
  const links = { hbmToDdr: slowLink, ddrToHbm: slowLink, ddrToNvme: slowLink, nvmeToHbm: slowLink };
  return {
    limits: { maxModelTokens: 0, maxSequences, preemption: preemption as 'restart' },
    engine: {
      blockTokens: BLOCK_TOKENS,
      blockBytes: 1000,
      topBlocks: 24 + random.below(40),
      lowerTiers,
      loads:
        random.below(3) === 0
          ? { kind: 'billed', baseUs: 20, usPerBlock: 7 }
          : { kind: 'deferred', links, prefetch: random.chance(0.5) },
      computeUsPerToken: random.chance(0.5) ? Infinity : 100,
      eviction: { policy: pick(random, evictionPolicyNames) },
      offloadThreshold: random.chance(0.5) ? 1 : 0.6,
      lowerCopy: pick(random, ['keep', 'move'] as const),
      scheduler: {
        maxSequences,
        maxBatchedTokens: 16 + random.below(60),
        longPrefillTokens: random.chance(0.3) ? 8 : 0,
        queueOrder: pick(random, ['fcfs', 'priority-fcfs', 'sjf']),
        victimRule: pick(random, ['fcfs', 'priority']),
        preemption,
        publish: pick(random, ['whenComputed', 'whenPlanned']),
      },
    },
  };
}

export function requestsOf(random: SeededRandom): SmallRequest[] {
  let atUs = 0;
  return Array.from({ length: 20 + random.below(60) }, () => {
    atUs += random.below(4000);
    return {
      atUs,
      prompt: 1 + random.below(60),
      output: 1 + random.below(30),
      stream: random.below(6),
      tenant: pick(random, ['', 'a', 'b']),
      sloClass: pick(random, ['critical', 'standard', 'batch', 'sheddable', '']),
      ...(random.below(5) === 0 ? { deadlineUs: atUs + 1 + random.below(60_000) } : {}),
    };
  });
}

/** An autoscaler for the pool with the given replicas at first, between 1 and 4. */
export function scalingOf(
  random: SeededRandom,
  { configId, replicas }: Pick<PoolConfig, 'configId' | 'replicas'>,
  key: SimulationKey,
): ScalingSetup {
  const world = {
    blockTokens: BLOCK_TOKENS,
    maxSequences: MAX_SEQUENCES,
    stream: (name: string) => new PartitionedRandom(key.jitterSeed).stream(`${name} ${configId}`),
  };
  const delay = (): { meanUs: number; stddevUs: number } => ({
    meanUs: random.below(8000),
    stddevUs: random.below(3000),
  });
  const actuation = {
    decisionDelay: delay(),
    provisioningDelay: delay(),
    modelLoadTime: delay(),
    warmup: { durationUs: 20_000, curve: 'linear', initialPenaltyFactor: 2 },
    drain: { mode: pick(random, ['immediate', 'wait', 'redirect'] as const), drainTimeoutUs: 30_000 },
  } as const;
  const policy = pick(random, scalingPolicies.names);
  const tight = { hpa: { target: 2 }, kpa: { target: 2 }, apa: { target: 2 } }[policy] ?? {};
  const scaler = new AutoScaler(
    {
      policy: { policy, ...tight },
      mode: 'periodic',
      pollIntervalUs: 5000 + random.below(10_000),
      minReplicas: 1,
      maxReplicas: 4,
      upWindowUs: 0,
      downWindowUs: random.below(2) * 10_000,
      triggers: noTriggers,
    },
    world,
  );
  const bounds = { min: 1, max: 4 };
  return {
    configId,
    scaler,
    replicas: new Replicas(actuation, bounds, replicas, world),
    capacityTokens: 200,
  };
}

export function controlOf(random: SeededRandom, isPair: boolean): Partial<ControlConfig> {
  const rarely = admissionPolicies.names.filter((name) => name !== 'reject-all');
  return {
    admission: { policy: pick(random, rarely) },
    priority: { policy: pick(random, priorityPolicies.names) },
    routing: { policy: pick(random, routingPolicies.names) },
    ...(isPair && random.chance(0.5)
      ? { prefillRouting: { policy: pick(random, routingPolicies.names) } }
      : {}),
    decider: { policy: isPair ? pick(random, prefillDecodeDeciders.names) : 'never' },
    gateway:
      random.below(3) > 0
        ? null
        : {
            policy: 'banded',
            detector: 'concurrency',
            maxConcurrency: 4,
            maxDepth: 12,
            fairness: pick(random, ['global-strict', 'round-robin', 'program-aware']),
            halfLifeUs: 20_000,
          },
    signals: { snapshotIntervalUs: random.below(3) * 1000, cacheSignalUs: random.below(3) * 1000 },
    shadow: {
      model: pick(random, shadowNames),
      blocks: random.below(2) * 40,
      eventDelayUs: random.below(2) * 3000,
      speculativeTtlUs: 5000,
    },
    topK: 2,
  };
}

export function handoffOf(random: SeededRandom): HandoffConfig {
  const granularity = pick(random, handoffGranularities);
  return {
    baseLatencyUs: 50,
    bandwidthBytesPerS: pick(random, [1e7, 2e6]),
    granularity,
    pipelined: granularity !== 'request' && random.chance(0.7),
  };
}

/** @param observer watches the run; @returns a setup of its own for each call */
export function randomSetup(seed: number, observer: SimulationObserver = {}): SimulationSetup {
  const random = new SeededRandom(seed);
  const key = keyOfSeed(BigInt(seed), 'random');
  const isPair = random.below(3) === 0;
  const pool = (role: PoolConfig['role'], replicas: number): PoolConfig => ({
    configId: role,
    role,
    model: '',
    replicas,
    latency: plainLatency,
    ...engineOf(random),
  });
  const replicas = 1 + random.below(3);
  const pools = isPair
    ? [pool('prefill', 1 + random.below(2)), pool('decode', 1 + random.below(2))]
    : [pool('monolithic', replicas)];
  const scaling = !isPair && random.chance(0.4) ? scalingOf(random, pools[0], key) : undefined;
  const requests = requestsOf(random);
  const spec = distributionSpec({
    seed: BigInt(seed),
    concurrency: 6,
    numRequests: 60,
    thinkTimeMs: 2,
    prompt: { mean: 30, stdDev: 10, min: 2, max: 60 },
    output: { mean: 12, stdDev: 6, min: 1, max: 30 },
  });
  const closed = random.below(4) === 0 ? generateWorkload(spec) : undefined;
  return {
    key,
    deployment: { pools },
    workload: { stream: closed?.stream() ?? streamOf(smallWorkload(requests)), sessions: closed?.sessions },
    control: new PolicyControlPlane(controlOf(random, isPair), {
      key: key.simulationSeed,
      blockTokens: BLOCK_TOKENS,
      maxSequences: MAX_SEQUENCES,
    }),
    observer,
    scaling: scaling === undefined ? [] : [scaling],
    options: {
      horizonUs: random.below(8) === 0 ? 60_000 : Infinity,
      admissionLatencyUs: random.below(2) * 300,
      routingLatencyUs: random.below(2) * 300,
      lastTokenInContext: true,
      gateway: { tickUs: 500, ttlUs: random.below(2) * 20_000 },
      handoff: handoffOf(random),
    },
  };
}
