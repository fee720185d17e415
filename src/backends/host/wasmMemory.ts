/**
 * WebAssembly memories, which WebAssembly can read in place. Their buffers start at a page.
 */

/** The memories by their buffers. */
const memories = new WeakMap<ArrayBufferLike, WasmMemory>();

/** Zeroed memory of at least `bytes`, not yet backed by pages; undefined if it cannot be allocated. */
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

/** The WebAssembly memory of the buffer; undefined if `wasmBytes` did not make it. */
export function memoryOf(buffer: ArrayBufferLike): WasmMemory | undefined {
  return memories.get(buffer);
}

// ---- the part of the `WebAssembly` global that neither the ES library nor @types/node declares

export interface WasmMemory {
  readonly buffer: ArrayBuffer;
}

interface WebAssemblyLike {
  readonly Memory: new (descriptor: { readonly initial: number; readonly maximum: number }) => WasmMemory;
  readonly Module: new (bytes: Uint8Array) => object;
  readonly Instance: new (module: object, imports: object) => { readonly exports: object };
}

export const wasm: WebAssemblyLike | undefined = (globalThis as { WebAssembly?: WebAssemblyLike })
  .WebAssembly;

export const WASM_PAGE_BYTES = 65536;
/** Most bytes of a memory: one page below 4 GiB, so that the end of every range is a 32-bit address. */
export const WASM_MEMORY_BYTES_MAX: number = 65535 * WASM_PAGE_BYTES;
