/** Host memory: the arena, and the DDR tier on it. */

export { type ArenaFacts, type ArenaOptions, HostArena, startsAtPage } from './hostArena.ts';
export { MemoryStore, type MemoryStoreOptions } from './memoryStore.ts';
export { tableMemory } from './tableMemory.ts';
