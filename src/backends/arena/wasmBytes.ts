/**
 * Host memory that WebAssembly works on in place. It sees its own memories only, so bytes that it shall see
 * lie in one: a buffer that starts at a page boundary.
 */

import { WASM_MEMORY_BYTES_MAX, WASM_PAGE_BYTES, type WasmMemory, wasm } from './webAssembly.ts';

/** By their buffers. */
const memories = new WeakMap<ArrayBufferLike, WasmMemory>();

/** Zeroed memory of at least so many bytes, without pages behind it yet; undefined when there is none. */
export function wasmBytes(bytes: number): ArrayBuffer | undefined {
  if (wasm === undefined || bytes > WASM_MEMORY_BYTES_MAX) return undefined;
  const pages = Math.ceil(bytes / WASM_PAGE_BYTES);
  try {
    const memory = new wasm.Memory({ initial: pages, maximum: pages });
    memories.set(memory.buffer, memory);
    return memory.buffer;
  } catch (cause) {
    if (cause instanceof RangeError) return undefined;
    throw cause;
  }
}

/** The memory that the buffer is of; undefined for a buffer from elsewhere. */
export function memoryOf(buffer: ArrayBufferLike): WasmMemory | undefined {
  return memories.get(buffer);
}
