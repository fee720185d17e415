/** A throttled disk keeps the contract of tier stores, which says nothing of speed. */

import { StandInDisk } from '../../../src/testing/faults.ts';
import { tierContract } from '../../../src/testing/tierContract.ts';
import { ThrottledStore } from './throttledStore.ts';

tierContract('stand-in disk, throttled', (shape) => {
  const disk = new StandInDisk(shape);
  return {
    store: new ThrottledStore(disk, 2 ** 34),
    movesBytes: true,
    remembersKeys: true,
    flipBit(slot, sizeClass, byteIndex) {
      disk.bytesAt(slot, sizeClass)[byteIndex] ^= 4;
    },
  };
});
