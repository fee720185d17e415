/** The runtime as embedders use it. */

export type { WaitOptions } from './abort.ts';
export type { KVRuntimeConfig } from './config.ts';
export type { CacheEvent } from './events.ts';
export { KVRuntime, type OpenUnit, type PrefetchOptions } from './kvRuntime.ts';
export type { LayerGroup } from './layerGroups.ts';
export type { Metrics } from './metrics.ts';
export type { RequestQueue, WaitingRequest } from './prompts/requestQueue.ts';
export type { BeginOptions, RetentionHint, Room } from './requests/beginning.ts';
export type { DeviceBlockTable } from './requests/blockTables.ts';
export type { StepEnd } from './requests/context.ts';
export type { EntryEnd, StepEntry } from './requests/growing.ts';
export type { KVSequence } from './requests/kvSequence.ts';
export { type OpenStores, openStores, type StoreConfig } from './stores/openStores.ts';
