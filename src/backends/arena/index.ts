/** Host memory: page-aligned, locked, in huge pages, and within reach of WebAssembly and of other threads. */

export {
  type ArenaFacts,
  type ArenaOptions,
  HostArena,
  type Stretch,
  startsAtPage,
  stretchOf,
} from './hostArena.ts';
export { tableMemory } from './tableMemory.ts';
export { memoryOf, wasmBytes } from './wasmBytes.ts';
export { type WasmMemory, wasm } from './webAssembly.ts';
