/** Host memory: page-aligned, locked, in huge pages, and within reach of WebAssembly. */

export {
  type ArenaFacts,
  type ArenaOptions,
  HostArena,
  startsAtPage,
} from './hostArena.ts';
export { tableMemory } from './tableMemory.ts';
export { memoryOf, wasmBytes } from './wasmBytes.ts';
export { type WasmMemory, wasm } from './webAssembly.ts';
