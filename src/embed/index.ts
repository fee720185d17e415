/** The runtime as embedders use it. */

export type { WaitOptions } from './abort.ts';
export type { KVRuntimeConfig } from './config.ts';
export { KVRuntime, type StepEnd } from './kvRuntime.ts';
export type { KVSequence } from './kvSequence.ts';
export type { RequestQueue, WaitingRequest } from './requestQueue.ts';
export { type OpenStores, openStores, type StoreConfig } from './stores.ts';
