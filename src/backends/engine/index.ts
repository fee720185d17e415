/** The engine: transfer jobs in, bytes moved, ends out. */

export type { EngineStores } from './batchMoves.ts';
export type { LinkTraffic } from './linkMeter.ts';
export { type LinkJob, type LinkLimits, LinkQueue } from './linkQueue.ts';
export { StagingSlots } from './stagingSlots.ts';
export { TransferEngine } from './transferEngine.ts';
