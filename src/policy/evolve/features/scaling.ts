/** Signals of a deployment configuration, for its autoscaler. */

import type { AutoScaleContext } from '../../../sim/control/scaling/autoScalePolicy.ts';
import { type FeatureTable, makers } from './feature.ts';

const { int, float } = makers<AutoScaleContext>();

/** Longer than any run, for "never": programs have no infinity of whole numbers. */
const NEVER_US = 1e15;

export const scalingFeatures: FeatureTable<AutoScaleContext> = {
  nowUs: int('µs', 'fresh', 'simulated time', ({ nowUs }) => nowUs),
  currentReplicas: int('', 'fresh', 'ready and on their way', ({ currentReplicas }) => currentReplicas),
  readyReplicas: int('', 'fresh', 'that take requests', ({ readyReplicas }) => readyReplicas),
  pendingReplicas: int('', 'fresh', 'provisioned or loaded now', ({ pendingReplicas }) => pendingReplicas),
  minReplicas: int('', 'constant', 'least that there may be', ({ minReplicas }) => minReplicas),
  maxReplicas: int('', 'constant', 'most that there may be', ({ maxReplicas }) => maxReplicas),
  pendingRequests: int('requests', 'fresh', 'in the gateway queue', ({ pendingRequests }) => pendingRequests),
  sinceLastScaleUs: int('µs', 'fresh', 'since the last change, 10^15 before any', ({ sinceLastScaleUs }) =>
    Math.min(NEVER_US, sinceLastScaleUs),
  ),
  concurrency: float(
    'requests',
    'fresh',
    'in flight over all replicas',
    ({ loadHistory }) => loadHistory.at(-1)?.concurrency ?? 0,
  ),
  avgQueueDepth: float('requests', 'snapshot', 'mean over replicas', ({ metrics }) => metrics.avgQueueDepth),
  avgUtilization: float('0..1', 'snapshot', 'KV utilisation, mean', ({ metrics }) => metrics.avgUtilization),
  requestRate: float('1/s', 'fresh', 'arrivals', ({ metrics }) => metrics.requestRate),
  avgPromptTokens: float('tokens', 'fresh', 'of a request', ({ metrics }) => metrics.avgPromptTokens),
  avgOutputTokens: float('tokens', 'fresh', 'of a request', ({ metrics }) => metrics.avgOutputTokens),
  avgLatencyUs: float('µs', 'fresh', 'mean end to end', ({ metrics }) => metrics.avgLatencyUs),
  p99LatencyUs: float('µs', 'fresh', 'end to end, 99th percentile', ({ metrics }) => metrics.p99LatencyUs),
  avgTtftUs: float('µs', 'fresh', 'mean time to the first token', ({ metrics }) => metrics.avgTtftUs),
  avgTpotUs: float('µs', 'fresh', 'mean time between tokens', ({ metrics }) => metrics.avgTpotUs),
};
