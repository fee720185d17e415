/** The door to what moves bytes: a store for each tier, and the engine between them. */

import '../requireNode.ts';

export type { LinkTraffic } from './engine/linkQueue.ts';
export { TransferEngine } from './engine/transferEngine.ts';
export type { DirectoryOps } from './file/dataFile.ts';
export { FileStore } from './file/fileStore.ts';
export type { FileStoreOptions, StuckIo } from './file/opening.ts';
export type { StoreIdentity } from './file/record.ts';
export type { SlotEntry } from './file/slotTable.ts';
export { type ArenaFacts, type ArenaOptions, HostArena, tableMemory } from './host/hostArena.ts';
export { MemoryStore, type MemoryStoreOptions } from './host/memoryStore.ts';
export type { DdrOptions } from './host/memoryTier.ts';
export type { RemoteStoreOptions } from './remote/remoteOptions.ts';
export { RemoteStore } from './remote/remoteStore.ts';
export type {
  ChainPart,
  DurableTier,
  OpenedTier,
  SharedTier,
  TierDevice,
  TierFacts,
  TierNotes,
  TierRequest,
  TierRow,
  TierWish,
} from './tierRow.ts';
export { type EngineStores, registerTier, type TierOptions, type TierStores } from './tierRows.ts';
export { openDevice } from './webgpu/adapter.ts';
export { BufferUsage, type DeviceErrors, LiveDevice, MapMode, ShaderStage } from './webgpu/device.ts';
export type {
  AdapterReport,
  AdapterSource,
  BoxItem,
  BoxPlan,
  DeviceOptions,
  DevicePool,
  MismatchResult,
  PatternItem,
  SlotBuffer,
  SlotLocation,
  Verification,
} from './webgpu/types.ts';
