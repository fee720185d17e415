/** A decision of an autoscaler, for tests of what is made of it. */

import type { ScaleChange } from '../../../../src/sim/cluster/scaling.ts';
import { idleMetrics } from '../../control/idleMetrics.ts';

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
    metrics: idleMetrics,
  };
}
