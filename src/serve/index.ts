/**
 * The door `tierkv/serve`: what stands before and between real servers: the gateway, KV events, and hand-offs from prefill to
 * decode.
 */

import '../requireNode.ts';

export type { BackendConfig } from './gateway/backend.ts';
export type { GatewayConfig, GatewayLimits } from './gateway/config.ts';
export { CachePicture } from './gateway/events/cachePicture.ts';
export {
  type KVEventPublisher,
  type KVEventSource,
  type KVPublisherOptions,
  publishKVEvents,
} from './gateway/events/publisher.ts';
export {
  type KVEventSubscription,
  type KVSubscriptionOptions,
  subscribeKVEvents,
} from './gateway/events/subscriber.ts';
export type { KVEvent, KVEventBatch } from './gateway/events/wire.ts';
export { readControlFile, readKeySecret, readSecret, readTenants } from './gateway/files.ts';
export { Gateway } from './gateway/gateway.ts';
export { gatewayMetrics } from './gateway/gatewayMetrics.ts';
export type { GatewayPlan } from './gateway/plan.ts';
export { compareShadows, type ShadowReport } from './gateway/shadows.ts';
export type { GatewayCounts } from './gateway/status.ts';
export type { HandoffOffer } from './handoff/offer.ts';
export { type HandoffEnd, HandoffReceiver, type HandoffReceiverOptions } from './handoff/receiver.ts';
export { HandoffSender, type HandoffSenderOptions } from './handoff/sender.ts';
export {
  type TransferParams,
  type TransferWish,
  transferAnswer,
  transferWish,
} from './handoff/transferParams.ts';
