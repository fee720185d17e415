/** Stored elements as f32: exact for f16 and bf16, and scale x integer for the quantised formats of GGUF. */

export function fromF32(bytes: Uint8Array<ArrayBuffer>): Float32Array {
  return new Float32Array(bytes.buffer, bytes.byteOffset, bytes.byteLength / 4);
}

export function fromF16(bytes: Uint8Array<ArrayBuffer>): Float32Array {
  return Float32Array.from(new Float16Array(bytes.buffer, bytes.byteOffset, bytes.byteLength / 2));
}

/** bf16 is the upper half of an f32. */
export function fromBf16(bytes: Uint8Array<ArrayBuffer>): Float32Array {
  const halves = new Uint16Array(bytes.buffer, bytes.byteOffset, bytes.byteLength / 2);
  const words = new Uint32Array(halves.length);
  for (let i = 0; i < halves.length; i++) words[i] = halves[i] << 16;
  return new Float32Array(words.buffer);
}

/** The bf16 nearest to each f32, ties to even; for writers of checkpoints. */
export function toBf16(values: Float32Array): Uint16Array {
  const words = new Uint32Array(values.buffer, values.byteOffset, values.length);
  return Uint16Array.from(words, (word) => (word + 0x7fff + ((word >>> 16) & 1)) >>> 16);
}

/** Elements of one quantised block. */
export const quantBlock = 32;
export const q80BlockBytes = 34;
export const q41BlockBytes = 20;

/** Q8_0: an f16 scale d and 32 signed bytes q; each element is d q. */
export function fromQ80(bytes: Uint8Array<ArrayBuffer>): Float32Array {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const values = new Float32Array((bytes.byteLength / q80BlockBytes) * quantBlock);
  for (let at = 0, out = 0; at < bytes.byteLength; at += q80BlockBytes, out += quantBlock) {
    const scale = view.getFloat16(at, true);
    for (let i = 0; i < quantBlock; i++) values[out + i] = scale * view.getInt8(at + 2 + i);
  }
  return values;
}

/** Q4_1: f16 scale d and f16 minimum m, and 16 bytes: low halves are elements 0 to 15, high halves 16 to 31. */
export function fromQ41(bytes: Uint8Array<ArrayBuffer>): Float32Array {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const values = new Float32Array((bytes.byteLength / q41BlockBytes) * quantBlock);
  for (let at = 0, out = 0; at < bytes.byteLength; at += q41BlockBytes, out += quantBlock) {
    const scale = view.getFloat16(at, true);
    const least = view.getFloat16(at + 2, true);
    for (let i = 0; i < 16; i++) {
      const pair = bytes[at + 4 + i];
      values[out + i] = scale * (pair & 15) + least;
      values[out + 16 + i] = scale * (pair >> 4) + least;
    }
  }
  return values;
}
