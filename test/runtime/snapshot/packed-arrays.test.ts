/** A packed array is the array, of whatever kind, length and end. */

import { expect, it } from 'vitest';
import type { TypedArray } from '../../../src/runtime/snapshot.ts';
import { packed, unpack } from '../../../src/runtime/snapshot.ts';
import { SeededRandom } from '../../../src/testing/index.ts';

const kinds = [Float64Array, Int32Array, Uint32Array, Int16Array, Uint16Array, Int8Array, Uint8Array];
const ends = [0, -1, 255, Number.NaN, Number.POSITIVE_INFINITY, 0x01010101, 7];

it('comes out as it went in, and shorter where its end is all alike', () => {
  const random = new SeededRandom(5);
  for (const Kind of kinds) {
    for (let length = 0; length < 40; length++) {
      for (const end of ends) {
        const array: TypedArray = new Kind(length).fill(end);
        const used = random.below(length + 1);
        for (let i = 0; i < used; i++) array[i] = random.below(4);
        const saved = packed(array);
        const where = `${Kind.name} ${length} used ${used} end ${end}`;
        expect(unpack(saved, new Kind(length)), where).toEqual(array);
        expect(unpack(saved, new Kind(3)), where).toEqual(array);
        expect(saved.head.buffer, where).not.toBe(array.buffer);
      }
    }
    const long = new Kind(4096).fill(-1);
    long[10] = 3;
    expect(packed(long).head.length, Kind.name).toBeLessThan(16);
  }
});
