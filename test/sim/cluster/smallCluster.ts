/** Small clusters for tests: a simple model of time, requests by hand, and every table audited at the end. */

import type { HandoffConfig } from '../../../src/sim/cluster/handoffs.ts';
import type { ForcedDecisions, SimulationObserver } from '../../../src/sim/cluster/parts.ts';
import type { ScalingSetup } from '../../../src/sim/cluster/scaling.ts';
import type { Simulation } from '../../../src/sim/cluster/simulation.ts';
import type { ControlConfig } from '../../../src/sim/control/controlPlane.ts';
import { PolicyControlPlane } from '../../../src/sim/control/plane.ts';
import { newSimulation, type PoolConfig } from '../../../src/sim/description/deployment.ts';
import type { BatchSums, LatencyModel } from '../../../src/sim/latency/latencyModel.ts';
import type { RequestStream, WorkloadRequest } from '../../../src/sim/workload/request.ts';

/** A step takes 1 ms, and 10 µs for each token. */
export const plainLatency: LatencyModel = {
  backend: 'plain',
  stepTimeUs: (batch: BatchSums) => 1000 + 10 * batch.tokens,
  explain: () => [],
  queueingTimeUs: () => 0,
  outputTokenProcessingUs: 0,
  postDecodeOverheadUs: 0,
};

export interface SmallPool {
  readonly configId?: string;
  readonly model?: string;
  readonly role?: PoolConfig['role'];
  readonly replicas?: number;
  readonly topBlocks?: number;
  readonly ddrBlocks?: number;
  readonly maxSequences?: number;
  readonly preemption?: 'restart' | 'recompute';
}

export function smallPool(options: SmallPool = {}): PoolConfig {
  const maxSequences = options.maxSequences ?? 16;
  const preemption = options.preemption ?? 'recompute';
  return {
    configId: options.configId ?? options.role ?? 'all',
    role: options.role ?? 'monolithic',
    model: options.model ?? '',
    replicas: options.replicas ?? 1,
    latency: plainLatency,
    limits: { maxModelTokens: 0, maxSequences, preemption },
    engine: {
      blockTokens: 4,
      blockBytes: 1000,
      topBlocks: options.topBlocks ?? 64,
      lowerTiers: options.ddrBlocks === undefined ? [] : [{ tier: 'ddr', blocks: options.ddrBlocks }],
      loads: { kind: 'deferred', links: {}, prefetch: false },
      computeUsPerToken: Infinity,
      eviction: { policy: 'lru' },
      offloadThreshold: 1,
      lowerCopy: 'keep',
      scheduler: { maxSequences, maxBatchedTokens: 64, preemption, publish: 'whenPlanned' },
    },
  };
}

export interface SmallRequest {
  readonly atUs: number;
  readonly prompt: number;
  readonly output: number;
  /** Requests of one stream share their prompts' tokens. */
  readonly stream?: number;
  readonly sloClass?: string;
  readonly tenant?: string;
  readonly session?: string;
  readonly deadlineUs?: number;
  readonly model?: string;
  /** Time to the first token that it asks for. */
  readonly ttftTargetUs?: number;
}

export function smallWorkload(requests: readonly SmallRequest[]): WorkloadRequest[] {
  return requests.map((request, i) => {
    const seed = BigInt(request.stream ?? 1000 + i);
    return {
      id: `request_${i}`,
      origin: {
        clientId: 'client',
        tenantId: request.tenant ?? '',
        sloClass: request.sloClass ?? '',
        model: request.model ?? '',
        adapter: '',
        sloTargetUs: request.ttftTargetUs ?? 0,
        prefixGroup: '',
      },
      arrivalUs: request.atUs,
      inputTokens: request.prompt,
      outputTokens: request.output,
      prefixTokens: 0,
      prompt: { kind: 'drawn', spans: [{ seed, position: 0, tokens: request.prompt }] },
      output: { kind: 'drawn', spans: [{ seed: BigInt(50_000 + i), position: 0, tokens: request.output }] },
      deadlineUs: request.deadlineUs ?? 0,
      sessionId: request.session ?? '',
      session: -1,
      round: 0,
      streaming: false,
      modalities: null,
      reasonRatio: 0,
      thinkTimeUs: 0,
      recordedPrefixGroup: '',
    };
  });
}

export function streamOf(requests: readonly WorkloadRequest[]): RequestStream {
  let next = 0;
  return { next: () => requests[next++] };
}

export function smallSimulation(
  pools: readonly PoolConfig[],
  requests: readonly SmallRequest[],
  control: Partial<ControlConfig> = {},
  observer: SimulationObserver = {},
  scaling: readonly ScalingSetup[] = [],
  handoff: Partial<HandoffConfig> = {},
  forced: ForcedDecisions = {},
): Simulation {
  return newSimulation({
    deployment: { pools },
    workload: { stream: streamOf(smallWorkload(requests)), sessions: undefined },
    control: new PolicyControlPlane(control, { key: 1n, blockTokens: 4, maxSequences: 16 }),
    observer,
    scaling,
    forced,
    options: {
      horizonUs: Infinity,
      admissionLatencyUs: 0,
      routingLatencyUs: 0,
      lastTokenInContext: true,
      handoff: { baseLatencyUs: 50, bandwidthBytesPerS: 1e8, ...handoff },
    },
  });
}
