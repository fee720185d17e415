/** Host memory: page-aligned, locked, in huge pages, and within reach of WebAssembly and of other threads. */

export { copyBytes } from './copyBytes.ts';
export { type ArenaFacts, type ArenaOptions, HostArena, startsAtPage } from './hostArena.ts';
export { adoptMemory, memoryOf, sharedBytes } from './sharedBytes.ts';
export { tableMemory } from './tableMemory.ts';
export { type SharedMemory, wasm } from './webAssembly.ts';
