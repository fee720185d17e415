/** The DDR tier. */

export { MemoryStore, type MemoryStoreOptions } from './memoryStore.ts';
