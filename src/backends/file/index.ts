/** Files: the NVMe tier. */

export type { DataFile } from './dataFile.ts';
export type { FileStore } from './fileStore.ts';
export type { FileStoreOptions, StuckIo } from './fileStoreOptions.ts';
