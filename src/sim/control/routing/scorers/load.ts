/** Scorers that go by how loaded an instance is. None of them remembers anything. */

import { kvUtilization } from '../../admission/index.ts';
import { effectiveLoad, type InstanceSnapshot } from '../../instances.ts';
import { noMemory } from '../../policy.ts';
import type { RoutingContext } from '../routingPolicy.ts';
import { minMax, type Scorer } from './scorer.ts';

type Values = (context: RoutingContext, out: Float64Array) => void;

function stateless(name: string, score: Values): Scorer {
  return { name, readsCaches: false, score, ...noMemory };
}

function ofReports(name: string, score: Values): Scorer {
  return { ...stateless(name, score), readsReportsAlone: true };
}

function each(value: (instance: InstanceSnapshot) => number): Values {
  return ({ candidates }, out) => {
    for (let i = 0; i < candidates.length; i++) out[i] = value(candidates[i]);
  };
}

/** The least gets 1 and the most 0, all equal 1. */
function leastIsBest(value: (instance: InstanceSnapshot) => number): Values {
  const values = each(value);
  return (context, out) => {
    values(context, out);
    minMax(out, context.candidates.length, true);
  };
}

/** (max - q) / (max - min) over queue depths. */
export const queueDepth = (): Scorer =>
  ofReports(
    'queue-depth',
    leastIsBest(({ queueDepth }) => queueDepth),
  );
/** The same over batch sizes. */
export const runningRequests = (): Scorer =>
  ofReports(
    'running-requests',
    leastIsBest(({ batchSize }) => batchSize),
  );
/** The same over 4 x queued + running, the cost of vLLM's data-parallel balancer. */
export const vllmDp = (): Scorer =>
  ofReports(
    'vllm-dp',
    leastIsBest(({ queueDepth, batchSize }) => 4 * queueDepth + batchSize),
  );
/** 1 - KV utilisation. */
export const kvUtilizationScorer = (): Scorer =>
  ofReports(
    'kv-utilization',
    each((instance) => 1 - kvUtilization(instance)),
  );
/** 1 / (1 + load), with the load of queued, running and in flight. */
export const loadBalance = (): Scorer =>
  stateless(
    'load-balance',
    each((instance) => 1 / (1 + effectiveLoad(instance))),
  );

/** None in flight 1, else (max - f) / max: all equally busy get 0. */
export const activeRequests = (): Scorer =>
  stateless('active-requests', ({ candidates }, out) => {
    let most = 0;
    for (const { inFlight } of candidates) most = Math.max(most, inFlight);
    for (let i = 0; i < candidates.length; i++) {
      const { inFlight } = candidates[i];
      out[i] = inFlight === 0 ? 1 : (most - inFlight) / most;
    }
  });

const QUEUE_LIMIT = 128;
/** An empty queue 0.5, else 0.5 x (1 - min(q, 128) / 128). */
export const loadAware = (): Scorer =>
  ofReports(
    'load-aware',
    each(({ queueDepth }) =>
      queueDepth === 0 ? 0.5 : 0.5 * (1 - Math.min(queueDepth, QUEUE_LIMIT) / QUEUE_LIMIT),
    ),
  );

const TOKEN_LIMIT = 4_194_304;
/** 1 - min(1, tokens / 4194304), with the uncached prompt tokens that had no first token yet. */
export const tokenLoad = (): Scorer =>
  stateless(
    'token-load',
    each(({ inFlightTokens }) => 1 - Math.min(1, inFlightTokens / TOKEN_LIMIT)),
  );

/** Resident 1, else 0, scaled; 1 for all where the request has no adapter or all are alike. */
export const loraAffinity = (): Scorer =>
  stateless('lora-affinity', ({ request, candidates }, out) => {
    for (let i = 0; i < candidates.length; i++) {
      out[i] = request.adapter !== '' && candidates[i].adapters.includes(request.adapter) ? 1 : 0;
    }
    minMax(out, candidates.length, false);
  });
