/**
 * The door to tools for testing tier stores: injected faults, items whose bytes are known, and random numbers
 * from a seed. None of them needs a test runner. The contract of stores, a suite of vitest, is in
 * `contract.ts`.
 */

export {
  ByteStore,
  FaultClock,
  FaultDevice,
  FaultHost,
  type FaultKind,
  FaultPlan,
  type FaultPlanOptions,
  FaultStore,
  type FaultSurroundings,
  type FaultyOp,
  type FiredFault,
  faultKinds,
  reportedKinds,
  StandInDevice,
  StandInDisk,
  type StoreKind,
  settled,
  silentKinds,
} from './faults.ts';
export {
  emptyItem,
  mismatchedWords,
  patternItem,
  patternKey,
  SeededRandom,
  testSeed,
} from './patternItems.ts';
