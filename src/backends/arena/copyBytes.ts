/**
 * memcpy. Where a side is a SharedArrayBuffer, `TypedArray.prototype.set` goes word by word: a fifth slower in memory, and
 * many times slower in a cache. Node's `Buffer.prototype.copy` takes a whole source through `set` as well, but any part of
 * one through memcpy: so here the source is always a part, of its buffer or of itself.
 */

const { copy } = Buffer.prototype;
/** Below that a call costs more than the words. */
const SMALL_BYTES = 1024;

/** Copies all of `from` to byte `at` of `to`. @throws RangeError when it has no room there */
export function copyBytes(from: Uint8Array, to: Uint8Array, at = 0): void {
  const { buffer, byteOffset, byteLength } = from;
  if (byteLength < SMALL_BYTES || !(isShared(buffer) || isShared(to.buffer))) {
    to.set(from, at);
    return;
  }
  if (byteLength > to.byteLength - at) {
    throw new RangeError(`${byteLength} bytes to ${at} of ${to.byteLength}`);
  }
  if (byteLength < buffer.byteLength) {
    copy.call(new Uint8Array(buffer), to, at, byteOffset, byteOffset + byteLength);
  } else {
    const half = byteLength >>> 1;
    copy.call(from, to, at, 0, half);
    copy.call(from, to, at + half, half, byteLength);
  }
}

function isShared(buffer: ArrayBufferLike): boolean {
  return buffer instanceof SharedArrayBuffer;
}
