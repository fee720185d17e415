/**
 * Sequences with random K and V in blocks of a pool, and the right result of attention over them, in 64-bit
 * floats. The host writes the blocks' bytes, so kernels are compared with independent code. Bytes without a
 * token are NaN, and blocks lie in random order and slabs, so a read beside a token shows.
 */

import { int8Layout, NO_TOKEN } from '../../../src/compute/index.ts';
import { type KVLayout, kvLayout } from '../../../src/runtime/geometry/layout.ts';
import { SeededRandom } from '../../../src/testing/index.ts';

export interface CaseShape {
  readonly headDim: number;
  readonly kvHeads: number;
  readonly qHeads: number;
  readonly blockTokens: number;
  readonly window?: number;
  readonly dtype?: 'f32' | 'f16' | 'i8';
  readonly slabs?: number;
  readonly layers?: number;
  /** Tokens of each sequence. */
  readonly lengths: readonly number[];
  /** Positions of each sequence that attend. Default: the last. */
  readonly positions?: readonly (readonly number[])[];
  /** The score of each token for every row, before it is scaled. Default: those of random K and Q. */
  readonly scoreOf?: (token: number) => number;
  readonly seed?: number;
}

export interface PagedCase {
  readonly shape: CaseShape;
  readonly layout: KVLayout;
  /** The layer whose K and V are there. */
  readonly layer: number;
  readonly slabBytes: readonly Uint8Array<ArrayBuffer>[];
  readonly entries: Uint32Array;
  /** First entry of each sequence. */
  readonly firstEntry: readonly number[];
  /** `[sequence][head][token][dim]`, as the kernels should write them and as they should be read. */
  readonly written: readonly Record<'k' | 'v', Float32Array>[];
  readonly stored: readonly Record<'k' | 'v', Float64Array>[];
  readonly rows: Uint32Array;
  /** `[row]`: its sequence. */
  readonly sequenceOf: readonly number[];
  /** `[row][Q heads, K heads, V heads][headDim]` */
  readonly qkv: Float32Array<ArrayBuffer>;
}

export function caseLayout(shape: CaseShape): KVLayout {
  const { headDim, kvHeads, blockTokens, dtype = 'f32', layers = 1 } = shape;
  const config = { layers, kvHeads, headDim, blockTokens };
  return dtype === 'i8' ? int8Layout(config) : kvLayout({ ...config, dtype });
}

export function pagedCase(shape: CaseShape): PagedCase {
  const { headDim, kvHeads, qHeads, blockTokens, lengths, slabs = 1, layers = 1, seed = 1 } = shape;
  const random = new SeededRandom(seed);
  const value = (): number => Math.fround((random.word() / 2 ** 32 - 0.5) * 3.4);
  const layout = caseLayout(shape);
  const layer = layers - 1;
  const blocksOf = lengths.map((length) => Math.ceil(length / blockTokens));
  const blocks = blocksOf.reduce((sum, count) => sum + count, 0);
  const perSlab = Math.ceil((blocks + 1) / slabs);
  const slabBytes = Array.from({ length: slabs }, () => {
    const bytes = new Uint8Array(Math.ceil((perSlab * layout.blockBytes) / 16) * 16);
    return bytes.fill(0xff);
  });
  const places = new SeededRandom(seed + 1).distinctBelow(perSlab * slabs, blocks);
  const entries = new Uint32Array(blocks * 2);
  places.forEach((place, i) => {
    entries.set([place % slabs, Math.floor(place / slabs) * layout.blockBytes], 2 * i);
  });
  let next = 0;
  const firstEntry = blocksOf.map((count) => (next += count) - count);
  const keyOf =
    (length: number) =>
    (_: unknown, i: number): number => {
      const random = value();
      if (shape.scoreOf === undefined) return random;
      return i % headDim === 0 ? shape.scoreOf(Math.floor(i / headDim) % length) : 0;
    };
  const written = lengths.map((length) => ({
    k: Float32Array.from({ length: kvHeads * length * headDim }, keyOf(length)),
    v: Float32Array.from({ length: kvHeads * length * headDim }, value),
  }));
  const stored = written.map(({ k, v }, sequence) => {
    const put = (values: Float32Array, isV: boolean): Float64Array =>
      putRows(values, (head, token, row) => {
        const entry = firstEntry[sequence] + Math.floor(token / blockTokens);
        const at =
          entries[2 * entry + 1] +
          layer * layout.layerStrideBytes +
          head * layout.headStrideBytes +
          (isV ? layout.kvStrideBytes : 0) +
          (token % blockTokens) * layout.rowBytes;
        return storeRow(shape.dtype ?? 'f32', row, slabBytes[entries[2 * entry]], at);
      });
    const putRows = (
      values: Float32Array,
      store: (head: number, token: number, row: Float32Array) => Float64Array,
    ): Float64Array => {
      const back = new Float64Array(values.length);
      for (let i = 0; i < values.length; i += headDim) {
        const token = (i / headDim) % lengths[sequence];
        const head = Math.floor(i / headDim / lengths[sequence]);
        back.set(store(head, token, values.subarray(i, i + headDim)), i);
      }
      return back;
    };
    return { k: put(k, false), v: put(v, true) };
  });
  const positions = shape.positions ?? lengths.map((length) => [length - 1]);
  const sequenceOf = positions.flatMap((list, sequence) => list.map(() => sequence));
  const rows = Uint32Array.from(
    positions.flatMap((list, sequence) => list.flatMap((at) => [at, firstEntry[sequence], 0, 0])),
  );
  const stride = (qHeads + 2 * kvHeads) * headDim;
  const qkv = new Float32Array(sequenceOf.length * stride);
  sequenceOf.forEach((sequence, row) => {
    for (let i = 0; i < qHeads * headDim; i++) {
      const random = value();
      qkv[row * stride + i] = shape.scoreOf === undefined ? random : Number(i % headDim === 0);
    }
    const token = rows[4 * row];
    for (let head = 0; head < kvHeads && token !== NO_TOKEN; head++) {
      const from = (head * lengths[sequence] + token) * headDim;
      const { k, v } = written[sequence];
      qkv.set(k.subarray(from, from + headDim), row * stride + (qHeads + head) * headDim);
      qkv.set(v.subarray(from, from + headDim), row * stride + (qHeads + kvHeads + head) * headDim);
    }
  });
  const facts = { layout, layer, slabBytes, entries, firstEntry, written, stored, rows, sequenceOf, qkv };
  return { shape, ...facts };
}

/** Writes one row in its format. @returns the numbers that lie there now */
function storeRow(dtype: string, row: Float32Array, into: Uint8Array, at: number): Float64Array {
  const bytes = (view: ArrayBufferView): Uint8Array =>
    new Uint8Array(view.buffer, view.byteOffset, view.byteLength);
  if (dtype === 'f32') {
    into.set(bytes(row.slice()), at);
    return Float64Array.from(row);
  }
  if (dtype === 'f16') {
    const halves = new Float16Array(row);
    into.set(bytes(halves), at);
    return Float64Array.from(halves);
  }
  const largest = row.reduce((most, each) => Math.max(most, Math.abs(each)), 0);
  const scale = Math.fround(largest / 127);
  const integers = Int8Array.from(row, (each) => (scale === 0 ? 0 : Math.round(each / scale)));
  into.set(bytes(integers), at);
  into.set(bytes(Float32Array.of(scale)), at + row.length);
  return Float64Array.from(integers, (each) => each * scale);
}

/** Attention in 64-bit floats: softmax of the scores, largest subtracted, over what the row sees. */
export function attendedInF64({ shape, rows, sequenceOf, qkv, stored }: PagedCase): Float64Array {
  const { headDim, kvHeads, qHeads, lengths, window = 0 } = shape;
  const stride = (qHeads + 2 * kvHeads) * headDim;
  const out = new Float64Array(sequenceOf.length * qHeads * headDim);
  sequenceOf.forEach((sequence, row) => {
    const position = rows[4 * row];
    if (position === NO_TOKEN) return;
    const { k, v } = stored[sequence];
    const first = window === 0 ? 0 : Math.max(0, position + 1 - window);
    for (let head = 0; head < qHeads; head++) {
      const kvHead = Math.floor((head * kvHeads) / qHeads);
      const at = (token: number): number => (kvHead * lengths[sequence] + token) * headDim;
      const scores: number[] = [];
      for (let token = first; token <= position; token++) {
        let score = 0;
        for (let dim = 0; dim < headDim; dim++) {
          score += qkv[row * stride + head * headDim + dim] * k[at(token) + dim];
        }
        scores.push(score / Math.sqrt(headDim));
      }
      const largest = scores.reduce((most, score) => Math.max(most, score), -Infinity);
      const weights = scores.map((score) => Math.exp(score - largest));
      const total = weights.reduce((sum, weight) => sum + weight, 0);
      for (let dim = 0; dim < headDim; dim++) {
        let sum = 0;
        for (let i = 0; i < weights.length; i++) sum += weights[i] * v[at(first + i) + dim];
        out[(row * qHeads + head) * headDim + dim] = sum / total;
      }
    }
  });
  return out;
}

/** The bound of a result: 2e-6 of the largest V, and half a unit in the last place of the result. */
export function boundOf({ stored }: PagedCase): (wanted: number) => number {
  const largest = Math.max(
    ...stored.map(({ v }) => v.reduce((most, each) => Math.max(most, Math.abs(each)), 0)),
  );
  return (wanted) => 2e-6 * largest + Math.abs(wanted) * 2 ** -24;
}
