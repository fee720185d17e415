/** Metrics of a deployment that serves nothing, for tests to fill in what they ask about. */

import type { DeploymentMetrics } from '../../../src/sim/control/scaling/autoScalePolicy.ts';

export const idleMetrics: DeploymentMetrics = {
  avgQueueDepth: 0,
  avgUtilization: 0,
  requestRate: 0,
  avgPromptTokens: 0,
  avgOutputTokens: 0,
  sloAttainment: {},
  avgLatencyUs: 0,
  p99LatencyUs: 0,
  avgTtftUs: 0,
  avgTpotUs: 0,
};
