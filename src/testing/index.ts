/**
 * What other packages, and our own tests, put a tier store to the test with: faults on purpose, items whose
 * bytes are known, random numbers that a seed repeats. Nothing here needs a test runner; the contract of
 * stores, which is a suite of vitest, lies in `contract.ts` beside it.
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
