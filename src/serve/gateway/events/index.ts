/** KV events of servers: published for routers, and read from any server that publishes them. */

export type { OrderCounts } from './batchOrder.ts';
export { CachePicture, type PictureMatch, type PictureNames } from './cachePicture.ts';
export {
  type KVEventPublisher,
  type KVEventSource,
  type KVPublisherCounts,
  type KVPublisherOptions,
  publishKVEvents,
} from './publisher.ts';
export {
  type KVEventSubscription,
  type KVSubscriptionCounts,
  type KVSubscriptionOptions,
  subscribeKVEvents,
} from './subscriber.ts';
export type {
  KVBlocksCleared,
  KVBlocksRemoved,
  KVBlocksStored,
  KVClearReason,
  KVEvent,
  KVEventBatch,
} from './wire.ts';
