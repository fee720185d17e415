/** A gateway before real servers, with the control plane of the simulator. */

export type { AnswerLimits } from './answers.ts';
export type { BackendConfig } from './backend.ts';
export { defaultLimits, type GatewayConfig, type GatewayLimits } from './config.ts';
export { type LogDifference, type LogHeader, type ReplayResult, replayLog } from './decisionLog.ts';
export { readControlFile, readKeySecret, readSecret, readTenants } from './files.ts';
export { Gateway } from './gateway.ts';
export { gatewayMetrics } from './gatewayMetrics.ts';
export type { GatewayPlan, ShadowPlan } from './plan.ts';
export type { ShadowTally } from './shadowCounts.ts';
export { compareShadows, type ShadowReport, type ShadowTrial } from './shadows.ts';
export type { GatewayCounts } from './status.ts';
export type { BackendRole } from './twoLegs.ts';
