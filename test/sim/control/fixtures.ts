/** Requests, instances and router states made by hand, for tests of single policies. */

import { BlockKeys } from '../../../src/runtime/keys/keyChain.ts';
import type {
  ClusterState,
  InstanceProbe,
  InstanceReport,
  InstanceSnapshot,
  PolicyWorld,
  RequestView,
} from '../../../src/sim/control/policy.ts';
import type { RouterState } from '../../../src/sim/control/routerState.ts';
import { PartitionedRandom } from '../../../src/sim/random/goRand.ts';

export const blockTokens = 16;

/** Keys of a prompt: block i is named by the first number of its group and i. */
export function keysOf(group: number, blocks: number): BlockKeys {
  const keys = new BlockKeys(Math.max(1, blocks));
  for (let i = 0; i < blocks; i++) keys.append(Uint32Array.of(group, i, group ^ 7, i * 31), 0);
  return keys;
}

/** The words of one block, as cache events carry them. */
export function keyOf(group: number, block: number): Uint32Array {
  return keysOf(group, block + 1).words.slice(block * 4, block * 4 + 4);
}

export function request(fields: Partial<RequestView> & { group?: number } = {}): RequestView {
  const promptTokens = fields.promptTokens ?? 160;
  const promptBlocks = Math.floor(promptTokens / blockTokens);
  const number = fields.number ?? 0;
  return {
    number,
    id: `request_${number}`,
    tenantId: '',
    sloClass: '',
    model: '',
    adapter: '',
    sessionId: '',
    arrivalUs: 0,
    deadlineUs: 0,
    sloTargetUs: 0,
    ...fields,
    promptTokens,
    promptBlocks,
    keys: fields.keys ?? keysOf(fields.group ?? 1, promptBlocks),
  };
}

export function instance(
  number: number,
  fields: Partial<InstanceSnapshot> & { used?: number; capacity?: number } = {},
): InstanceSnapshot {
  const { used = 0, capacity = 1000, ...rest } = fields;
  const tier = {
    capacityBlocks: capacity,
    usedBlocks: used,
    freeBlocks: capacity - used,
    utilization: used / capacity,
  };
  return {
    instance: number,
    id: `instance_${number}`,
    role: 'monolithic',
    model: '',
    configId: 'default',
    queueDepth: 0,
    batchSize: 0,
    preemptions: 0,
    kv: { tiers: [tier], cacheHitRate: 0, offloadRate: 0, reloadRate: 0 },
    recentTtftUs: 0,
    recentTpotUs: 0,
    availableCapacity: 256,
    adapters: [],
    reportedUs: 0,
    inFlight: 0,
    inFlightTokens: 0,
    ...rest,
  };
}

export function cluster(instances: readonly InstanceSnapshot[], nowUs: number = 0): ClusterState {
  return { nowUs, instances };
}

/** @param cached leading blocks by instance, for any prompt */
export function router(fields: Partial<RouterState> & { cached?: readonly number[] } = {}): RouterState {
  const { cached = [], ...rest } = fields;
  return {
    nowUs: 0,
    tenant: (tenantId) => ({
      tenantId,
      sloClass: '',
      requestCount: 0,
      activeRequests: 0,
      admitted: 0,
      rejected: 0,
      recentRate: 0,
      burstDetected: false,
      outputTokens: 0,
    }),
    tenants: [],
    global: { inFlight: 0, pending: 0, throughput: 0, requestRate: 0 },
    history: [],
    observedKv: {
      topBlocks: (_, number) => cached[number] ?? 0,
      place: (_, number) => ({ blocks: cached[number] ?? 0, byTier: [cached[number] ?? 0] }),
    },
    shadowKv: null,
    ...rest,
  };
}

export function world(key: bigint = 42n): PolicyWorld {
  return {
    blockTokens,
    maxSequences: 256,
    stream: (name) => new PartitionedRandom(key).stream(name),
  };
}

/** A probe of an instance whose report a test sets. */
export interface FakeProbe extends InstanceProbe {
  queueDepth: number;
  batchSize: number;
  usedBlocks: number;
}

export function probe(number: number, capacityBlocks: readonly number[] = [100]): FakeProbe {
  return {
    instance: number,
    id: `instance_${number}`,
    role: 'monolithic',
    model: '',
    configId: 'default',
    capacityBlocks,
    queueDepth: 0,
    batchSize: 0,
    usedBlocks: 0,
    report(into: InstanceReport): void {
      into.queueDepth = this.queueDepth;
      into.batchSize = this.batchSize;
      into.maxBatch = 256;
      into.preemptions = 0;
      into.usedBlocks = capacityBlocks.map((_, tier) => (tier === 0 ? this.usedBlocks : 0));
      into.freeBlocks = capacityBlocks.map((blocks, tier) => blocks - (tier === 0 ? this.usedBlocks : 0));
      into.hitBlocks = 0;
      into.lookupBlocks = 0;
      into.offloadedBlocks = 0;
      into.reloadedBlocks = 0;
      into.recentTtftUs = 0;
      into.recentTpotUs = 0;
      into.adapters = [];
    },
  };
}
