/** Files: the NVMe tier. */

export { type DataFile, type DirectoryOps, IoError } from './dataFile.ts';
export { FileStore } from './fileStore.ts';
export type { FileStoreOptions, StuckIo } from './fileStoreOptions.ts';
export { type StoreFault, type StoreReport, StoreView } from './inspect.ts';
export type { SlotEntry } from './slotTable.ts';
export type { StoreIdentity } from './superblock.ts';
