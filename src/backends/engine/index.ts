/** The engine: transfer jobs in, bytes moved, ends out. */

export type { LinkTraffic } from './linkMeter.ts';
export { type LinkJob, type LinkLimits, LinkQueue } from './linkQueue.ts';
export { StagingSlots } from './stagingSlots.ts';
export { type EngineStores, TransferEngine } from './transferEngine.ts';
