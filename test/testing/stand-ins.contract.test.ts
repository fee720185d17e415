/**
 * The stand-ins keep the contract of the stores that they stand in for, with and without a fault store around
 * them.
 */

import { FaultPlan, FaultStore, StandInDevice, StandInDisk } from '../../src/testing/faults.ts';
import { tierContract } from '../../src/testing/tierContract.ts';

const flipBit =
  (store: StandInDevice | StandInDisk) => (slot: number, sizeClass: number, byteIndex: number) => {
    const bytes = store.bytesAt(slot, sizeClass);
    bytes[byteIndex] = bytes[byteIndex] ^ 4;
  };

tierContract('stand-in device', (shape) => {
  const store = new StandInDevice(shape);
  return { store, movesBytes: true, flipBit: flipBit(store) };
});

tierContract('stand-in disk', (shape) => {
  const store = new StandInDisk(shape);
  return { store, movesBytes: true, remembersKeys: true, flipBit: flipBit(store) };
});

tierContract('stand-in disk behind a fault store without faults', (shape) => {
  const disk = new StandInDisk(shape);
  const plan = new FaultPlan({ seed: 1, rates: {} });
  const store = new FaultStore(disk, { plan, wait: () => Promise.resolve() });
  return { store, movesBytes: true, remembersKeys: true, flipBit: flipBit(disk) };
});
