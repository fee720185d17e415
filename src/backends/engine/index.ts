/** The engine: transfer jobs in, bytes moved, ends out. */

export type { LinkTraffic } from './linkMeter.ts';
export { StagingSlots } from './stagingSlots.ts';
export { type EngineStores, TransferEngine } from './transferEngine.ts';
