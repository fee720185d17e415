/** The part of the global that neither the ES library nor @types/node declares. */

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
/** One page below the whole of 4 GiB, so that the end of every range is a 32-bit address. */
export const WASM_MEMORY_BYTES_MAX: number = 65535 * WASM_PAGE_BYTES;
