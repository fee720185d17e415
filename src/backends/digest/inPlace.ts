/**
 * The digest's module on the memories that bytes lie in: an instance for each, made when its memory is first
 * digested.
 */

import type { Digest } from '../../runtime/digest.ts';
import { memoryOf, type WasmMemory, wasm, wasmBytes } from '../arena/index.ts';
import { STEP_BYTES, simdModule } from './simdModule.ts';

/** Digest of `bytes` bytes (whole steps, above 0) at `at`, which are a unit's words from `first` on. */
export type InPlaceDigest = (at: number, bytes: number, first: number) => Digest;

interface Exports {
  readonly lo: (at: number, end: number, first: number) => number;
  readonly hi: () => number;
}

/** A chunk and its source fit into a core's first-level cache together. */
export const CHUNK_BYTES = 16384;

const instances = new WeakMap<ArrayBufferLike, InPlaceDigest>();
let compiled: object | undefined;

/** The digest on the buffer's memory, undefined for a buffer from elsewhere. @throws without SIMD */
export function inPlaceDigest(buffer: ArrayBufferLike): InPlaceDigest | undefined {
  const known = instances.get(buffer);
  if (known !== undefined) return known;
  const memory = memoryOf(buffer);
  if (memory === undefined) return undefined;
  const digest = digestOn(memory);
  instances.set(buffer, digest);
  return digest;
}

/** @throws where there is no WebAssembly, or no SIMD in it */
export function digestOn(memory: WasmMemory): InPlaceDigest {
  compiled ??= new wasm!.Module(simdModule());
  const { lo, hi } = new wasm!.Instance(compiled, { e: { m: memory } }).exports as Exports;
  return (at, bytes, first) => ({ lo: lo(at, at + bytes, first) >>> 0, hi: hi() >>> 0 });
}

/** Digest of words anywhere, by way of chunks in a memory of their own. @throws where there is none */
export function copyingDigest(): (bytes: Uint8Array, first: number) => Digest {
  const memory = wasmBytes(CHUNK_BYTES);
  if (memory === undefined) throw new Error('no memory of WebAssembly is to be had');
  const chunk = new Uint8Array(memory);
  const digest = digestOn(memoryOf(memory)!);
  return (bytes, first) => {
    if (bytes.byteLength <= CHUNK_BYTES) {
      chunk.set(bytes);
      return digest(0, bytes.byteLength, first);
    }
    let lo = 0;
    let hi = 0;
    for (let from = 0; from < bytes.byteLength; from += CHUNK_BYTES) {
      const part = bytes.subarray(from, from + CHUNK_BYTES);
      chunk.set(part);
      const found = digest(0, part.byteLength, first + from / 4);
      lo += found.lo;
      hi += found.hi;
    }
    return { lo: lo >>> 0, hi: hi >>> 0 };
  };
}

/** How much of so many bytes goes through the loop. */
export function wholeSteps(bytes: number): number {
  return bytes - (bytes % STEP_BYTES);
}
