/** WebAssembly: policies as modules without imports, metered by a rewriter of their bytes. */

export { textHash } from './textHash.ts';
export { WasmPolicy } from './wasmPolicy.ts';
