/** Files: the NVMe tier. */

export { FileStore } from './fileStore.ts';
export type { FileStoreOptions, StuckIo } from './fileStoreOptions.ts';
export { type StoreFault, type StoreReport, StoreView } from './inspect.ts';
export { type DataFile, type DirectoryOps, IoError } from './io/dataFile.ts';
export type { StoreIdentity } from './record/superblock.ts';
export type { SlotEntry } from './restart/slotTable.ts';
