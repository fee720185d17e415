/** Signals of the whole cluster: what the router counts, and sums over what instances report. */

import { kvUtilization, utilizationSaturation } from '../../../sim/control/admission.ts';
import { effectiveLoad, type InstanceSnapshot } from '../../../sim/control/policy.ts';
import type { RouterState } from '../../../sim/control/routerState.ts';
import { type Feature, type FeatureTable, makers } from './feature.ts';

interface RouterFacts {
  readonly router: RouterState;
}

interface ClusterFacts extends RouterFacts {
  /** Instances that could take a request. */
  readonly instances: readonly InstanceSnapshot[];
}

const ofRouter = makers<RouterFacts>();

export const routerFeatures: FeatureTable<RouterFacts> = {
  nowUs: ofRouter.int('µs', 'fresh', 'simulated time', ({ router }) => router.nowUs),
  inFlight: ofRouter.int('requests', 'fresh', 'routed and not ended', ({ router }) => router.global.inFlight),
  pending: ofRouter.int(
    'requests',
    'fresh',
    'arrived and not routed: delayed, or in the gateway queue',
    ({ router }) => router.global.pending,
  ),
  requestRate: ofRouter.float('1/s', 'fresh', 'recent arrivals', ({ router }) => router.global.requestRate),
  throughput: ofRouter.float('1/s', 'fresh', 'recent completions', ({ router }) => router.global.throughput),
  tenants: ofRouter.int('', 'fresh', 'tenants seen so far', ({ router }) => router.tenants.length),
};

type OfInstance = (instance: InstanceSnapshot) => number;
const { int, float } = makers<ClusterFacts>();

function mean(
  about: string,
  unit: string,
  freshness: 'fresh' | 'snapshot',
  of: OfInstance,
): Feature<ClusterFacts> {
  return float(unit, freshness, `mean over instances: ${about}`, ({ instances }) => {
    let sum = 0;
    for (const instance of instances) sum += of(instance);
    return instances.length === 0 ? 0 : sum / instances.length;
  });
}

function most(
  about: string,
  unit: string,
  freshness: 'fresh' | 'snapshot',
  of: OfInstance,
): Feature<ClusterFacts> {
  return float(unit, freshness, `highest of the instances: ${about}`, ({ instances }) => {
    let highest = 0;
    for (const instance of instances) highest = Math.max(highest, of(instance));
    return highest;
  });
}

const inFlight: OfInstance = (instance) => instance.inFlight;
const queueDepth: OfInstance = (instance) => instance.queueDepth;

export const clusterFeatures: FeatureTable<ClusterFacts> = {
  ...routerFeatures,
  instances: int('', 'fresh', 'instances that take requests', ({ instances }) => instances.length),
  meanInFlight: mean('requests in flight', 'requests', 'fresh', inFlight),
  maxInFlight: most('requests in flight', 'requests', 'fresh', inFlight),
  minInFlight: int('requests', 'fresh', 'lowest of the instances: requests in flight', ({ instances }) => {
    let least = instances.length === 0 ? 0 : Infinity;
    for (const instance of instances) least = Math.min(least, instance.inFlight);
    return least;
  }),
  meanQueueDepth: mean('requests that wait', 'requests', 'snapshot', queueDepth),
  maxQueueDepth: most('requests that wait', 'requests', 'snapshot', queueDepth),
  meanBatchSize: mean('requests in the batch', 'requests', 'snapshot', ({ batchSize }) => batchSize),
  meanKvUtilization: mean('share of HBM that requests hold', '0..1', 'snapshot', kvUtilization),
  maxKvUtilization: most('share of HBM that requests hold', '0..1', 'snapshot', kvUtilization),
  maxLoad: most('waiting, running and in flight', 'requests', 'snapshot', effectiveLoad),
  saturation: float(
    '',
    'snapshot',
    'mean over instances of the larger of queue / 5 and KV utilisation / 0.8; 1 is full',
    ({ router, instances }) => utilizationSaturation({ nowUs: router.nowUs, instances }, 5, 0.8),
  ),
};
