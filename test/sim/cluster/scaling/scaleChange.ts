/** A decision of an autoscaler, for tests of what is made of it. */

import type { ScaleChange } from '../../../../src/sim/cluster/index.ts';

export function scaleChange(
  configId: string,
  previousCount: number,
  newCount: number,
  timeUs: number,
): ScaleChange {
  return {
    configId,
    timeUs,
    action: newCount > previousCount ? 'up' : 'down',
    previousCount,
    newCount,
    reason: '',
    metrics: {
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
    },
  };
}
