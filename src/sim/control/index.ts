/** The control plane of a simulated cluster: admission, priority, routing, flow control, scaling. */

export type { AdmissionPolicy } from './admission/admissionPolicy.ts';
export * from './controlPlane.ts';
export * from './decisions.ts';
export type {
  PrefillDecodeDecider,
  PrefillDecodeDecision,
} from './disaggregation/prefillDecodeDecider.ts';
export type { EnqueueResult, FlowControl, GatewayEntry } from './flowControl/gateway.ts';
export * from './instances.ts';
export * from './policy.ts';
export type { PriorityPolicy } from './priority/priorityPolicy.ts';
export type { RequestView } from './request.ts';
export * from './routerState.ts';
export type { RoutingChoice, RoutingContext, RoutingPolicy, ScorePart } from './routing/routingPolicy.ts';
export * from './scaling/actuationConfig.ts';
export * from './scaling/autoScalePolicy.ts';
