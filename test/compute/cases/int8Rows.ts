/** What the kernel that writes 8-bit integers made of a case's rows. */

import { NO_TOKEN } from '../../../src/compute/index.ts';
import type { PagedCase } from './pagedCase.ts';

export interface Int8Findings {
  /** Numbers that were compared. */
  compared: number;
  /**
   * Numbers that are further off than half the scale of their row, and scales that are not its largest / 127.
   */
  wrong: number;
  /** Rows with a NaN, whose scale must be one. */
  rowsOfNaN: number;
}

export function int8Findings(one: PagedCase, slabs: readonly Uint8Array[]): Int8Findings {
  const { layout, layer, shape, rows, entries, qkv } = one;
  const { headDim, qHeads, kvHeads } = shape;
  const { layerStrideBytes, headStrideBytes, kvStrideBytes, rowBytes, blockTokens } = layout;
  const stride = (qHeads + 2 * kvHeads) * headDim;
  const found: Int8Findings = { compared: 0, wrong: 0, rowsOfNaN: 0 };
  one.sequenceOf.forEach((_, row) => {
    const [token, first] = rows.subarray(4 * row, 4 * row + 2);
    if (token === NO_TOKEN) return;
    const entry = 2 * (first + Math.floor(token / blockTokens));
    for (let head = 0; head < kvHeads; head++) {
      for (const kv of [0, 1]) {
        const plane = layer * layerStrideBytes + head * headStrideBytes + kv * kvStrideBytes;
        const offset = entries[entry + 1] + plane + (token % blockTokens) * rowBytes;
        const bytes = slabs[entries[entry]].slice(offset, offset + rowBytes).buffer;
        const scale = new Float32Array(bytes, headDim, 1)[0];
        const from = row * stride + (qHeads + kv * kvHeads + head) * headDim;
        const values = qkv.subarray(from, from + headDim);
        if (values.some(Number.isNaN)) {
          found.rowsOfNaN++;
          if (!Number.isNaN(scale)) found.wrong++;
          continue;
        }
        const largest = values.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
        if (!(Math.abs(scale - largest / 127) < 1e-6 * scale + 1e-37)) found.wrong++;
        new Int8Array(bytes, 0, headDim).forEach((integer, i) => {
          found.compared++;
          if (!(Math.abs(integer * scale - values[i]) <= scale * 0.50001 + 1e-36)) found.wrong++;
        });
      }
    }
  });
  return found;
}
