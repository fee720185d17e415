/**
 * How long a prefix of one chain the index holds, where whoever is indexed has all its ancestors indexed.
 * Each step looks at three places at once, whose waits for memory overlap, and leaves a quarter of the chain:
 * half as many waits as halving. As for many chains (prefixSearch.ts), steps trust the tags in the slots, and
 * the whole key decides in the end.
 */

import { EMPTY, hashOf, type PrefixIndex } from './prefixIndex.ts';

/** Leading blocks in the index, of the `count` whose keys lie in `keys`, four words a block. */
export function prefixLength(index: PrefixIndex, keys: Uint32Array, count: number): number {
  if (count === 0) return 0;
  return index.find(keys, (count - 1) * 4) !== -1 ? count : shorterLength(index, keys, count);
}

/** Block `limit` is absent. Blocks count from 1. */
function shorterLength(index: PrefixIndex, keys: Uint32Array, limit: number): number {
  const { slots, slotMask, contentMask } = index;
  let absent = limit;
  for (;;) {
    let present = 0;
    let slot = EMPTY;
    while (present + 1 < absent) {
      const step = (absent - present + 3) >> 2;
      // What would lie beyond the absent block is that block.
      const near = present + step;
      const middle = Math.min(near + step, absent);
      const far = Math.min(middle + step, absent);
      const nearHash = hashOf(keys, (near - 1) * 4);
      const middleHash = hashOf(keys, (middle - 1) * 4);
      const farHash = hashOf(keys, (far - 1) * 4);
      const nearFirst = slots[nearHash & slotMask];
      const middleFirst = slots[middleHash & slotMask];
      const farFirst = slots[farHash & slotMask];

      const middleSlot = index.seek(middleHash, middleFirst);
      if (middleSlot === EMPTY) {
        const nearSlot = index.seek(nearHash, nearFirst);
        if (nearSlot === EMPTY) {
          absent = near;
        } else {
          slot = nearSlot;
          present = near;
          absent = middle;
        }
      } else {
        const farSlot = index.seek(farHash, farFirst);
        if (farSlot === EMPTY) {
          slot = middleSlot;
          present = middle;
          absent = far;
        } else {
          slot = farSlot;
          present = Math.min(far, absent - 1); // the absent block's tag may be another's
        }
      }
    }
    if (present === 0) return 0;
    const at = (present - 1) * 4;
    if (index.isKeyOf(slot & contentMask, keys, at) || index.find(keys, at) !== -1) return present;
    absent = present;
  }
}
