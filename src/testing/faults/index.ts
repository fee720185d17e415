/**
 * Faults on purpose, for your own tests too: wrap a store, name a seed, and see what your server makes of it.
 */

export { ByteStore, StandInDevice, StandInDisk } from './byteStore.ts';
export {
  type FaultKind,
  type FaultyOp,
  faultKinds,
  reportedKinds,
  type StoreKind,
  silentKinds,
} from './faultKinds.ts';
export { FaultPlan, type FaultPlanOptions } from './faultPlan.ts';
export { FaultDevice, FaultHost, FaultStore, type FaultSurroundings, type FiredFault } from './faultStore.ts';
export { settled, VirtualClock } from './virtualClock.ts';
