/**
 * Host memory that WebAssembly works on in place. It sees its own memories only, so bytes that it shall see lie in one: a
 * buffer that starts at a page boundary.
 */

import { WASM_PAGE_BYTES, type WasmMemory, wasm } from './webAssembly.ts';

/** By their buffers. */
const memories = new WeakMap<ArrayBufferLike, WasmMemory>();

/**
 * Zeroed memory of at least so many bytes, without pages behind it yet.
 * @throws RangeError when the system has not got it
 */
export function wasmBytes(bytes: number): ArrayBuffer {
  if (wasm === undefined) return new ArrayBuffer(bytes);
  const pages = Math.ceil(bytes / WASM_PAGE_BYTES);
  const memory = new wasm.Memory({ initial: pages, maximum: pages });
  memories.set(memory.buffer, memory);
  return memory.buffer;
}

/** The memory that the buffer is of; undefined for a buffer from elsewhere. */
export function memoryOf(buffer: ArrayBufferLike): WasmMemory | undefined {
  return memories.get(buffer);
}
