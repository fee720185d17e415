/** Files: the NVMe tier. */

export { type DataFile, IoError } from './dataFile.ts';
export { FileStore } from './fileStore.ts';
export type { FileStoreOptions, StuckIo } from './fileStoreOptions.ts';
