/**
 * Host memory that WebAssembly works on in place, on any thread. WebAssembly sees its own memories only, so bytes that it
 * shall see lie in one: a SharedArrayBuffer that starts at a page boundary.
 */

import { type SharedMemory, WASM_PAGE_BYTES, wasm } from './webAssembly.ts';

/** By their buffers. */
const memories = new WeakMap<ArrayBufferLike, SharedMemory>();

/**
 * Zeroed memory of at least so many bytes, without pages behind it yet.
 * @throws RangeError when the system has not got it
 */
export function sharedBytes(bytes: number): SharedArrayBuffer {
  if (wasm === undefined) return new SharedArrayBuffer(bytes);
  const pages = Math.ceil(bytes / WASM_PAGE_BYTES);
  return adoptMemory(new wasm.Memory({ initial: pages, maximum: pages, shared: true }));
}

/** The bytes of a memory, which may come from another thread. */
export function adoptMemory(memory: SharedMemory): SharedArrayBuffer {
  memories.set(memory.buffer, memory);
  return memory.buffer;
}

/** The memory that the buffer is of; undefined for a buffer from elsewhere. */
export function memoryOf(buffer: ArrayBufferLike): SharedMemory | undefined {
  return memories.get(buffer);
}
