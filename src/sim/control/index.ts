/** The control plane of a simulated cluster: admission, priority, routing, flow control, scaling. */

export {
  type AdmissionPolicy,
  admissionPolicies,
  kvUtilization,
  utilizationSaturation,
} from './admission/index.ts';
export * from './controlPlane.ts';
export * from './decisions.ts';
export {
  type PrefillDecodeDecider,
  type PrefillDecodeDecision,
  prefillDecodeDeciders,
} from './disaggregation/index.ts';
export { type EnqueueResult, type FlowControl, type GatewayEntry, gateways } from './flowControl/index.ts';
export * from './instances.ts';
export type { Outcome } from './outcome.ts';
export * from './plane/index.ts';
export * from './policy.ts';
export { type PriorityPolicy, priorityPolicies, SloPriorities } from './priority/index.ts';
export {
  checkParameters,
  type NumberRule,
  type ParameterRule,
  type ParameterRules,
  type PolicyEntry,
  PolicyRegistry,
  unknownName,
} from './registry/index.ts';
export type { RequestView } from './request.ts';
export * from './routerState.ts';
export {
  type InstanceScore,
  instanceScores,
  makeScorer,
  type RoutingChoice,
  type RoutingContext,
  type RoutingPolicy,
  routingPolicies,
  type ScorePart,
  type Scorer,
  scorerNames,
  scorerReadsReports,
} from './routing/index.ts';
export * from './scaling/index.ts';
