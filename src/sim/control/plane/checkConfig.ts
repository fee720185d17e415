/** A control plane's configuration, checked field by field and filled with defaults. */

import { configError, requireInteger } from '../../../runtime/errors.ts';
import { admissionPolicies } from '../admission/index.ts';
import type { ControlConfig } from '../controlPlane.ts';
import { prefillDecodeDeciders } from '../disaggregation/index.ts';
import { gateways } from '../flowControl/index.ts';
import { priorityPolicies } from '../priority/index.ts';
import { unknownName } from '../registry/parameters.ts';
import { shadowNames } from '../routerState.ts';
import { routingPolicies } from '../routing/index.ts';

/** Upstream's defaults; ties go to the lowest instance. */
export const defaultControl: ControlConfig = {
  admission: { policy: 'always-admit' },
  priority: { policy: 'slo-class' },
  routing: { policy: 'round-robin' },
  decider: { policy: 'never' },
  gateway: null,
  signals: { snapshotIntervalUs: 50_000, cacheSignalUs: 50_000 },
  shadow: { model: 'none', blocks: 0, eventDelayUs: 50_000, speculativeTtlUs: 2_000_000 },
  history: { windowUs: 10_000_000, windows: 60, burstFactor: 3 },
  topK: 0,
};

const DAY_US = 86_400_000_000;

/**
 * The configuration with every parameter of every policy.
 * @throws TKV_CONFIG with the field at fault
 */
export function checkControl(config: Partial<ControlConfig>): ControlConfig {
  const whole = { ...defaultControl, ...config };
  const { signals, shadow, history } = whole;
  requireInteger('signals.snapshotIntervalUs', signals.snapshotIntervalUs, 0, DAY_US);
  requireInteger('signals.cacheSignalUs', signals.cacheSignalUs, 0, DAY_US);
  if (!shadowNames.includes(shadow.model)) throw unknownName('shadow.model', shadow.model, shadowNames);
  requireInteger('shadow.blocks', shadow.blocks, 0, 2 ** 24);
  requireInteger('shadow.eventDelayUs', shadow.eventDelayUs, 0, DAY_US);
  requireInteger('shadow.speculativeTtlUs', shadow.speculativeTtlUs, 0, DAY_US);
  if (shadow.model === 'speculative' && shadow.speculativeTtlUs === 0) {
    throw configError('shadow.speculativeTtlUs', 'is 0', 'Set it above 0, or the shadow to events.');
  }
  requireInteger('history.windowUs', history.windowUs, 1000, DAY_US);
  requireInteger('history.windows', history.windows, 0, 100_000);
  if (!(history.burstFactor > 1 && Number.isFinite(history.burstFactor))) {
    throw configError('history.burstFactor', `is ${history.burstFactor}`, 'Give it a number above 1.');
  }
  requireInteger('topK', whole.topK, -1, 10_000);
  return {
    ...whole,
    admission: admissionPolicies.resolve(whole.admission),
    priority: priorityPolicies.resolve(whole.priority),
    routing: routingPolicies.resolve(whole.routing),
    ...(whole.prefillRouting && { prefillRouting: routingPolicies.resolve(whole.prefillRouting) }),
    ...(whole.decodeRouting && { decodeRouting: routingPolicies.resolve(whole.decodeRouting) }),
    decider: prefillDecodeDeciders.resolve(whole.decider),
    gateway: whole.gateway === null ? null : gateways.resolve(whole.gateway),
  };
}
