/**
 * The door `tierkv/testing`: the contract of tier stores, injected faults, and items whose bytes are known. Only the contract
 * needs vitest, and loads it when it is called.
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
  faultKinds,
  StandInDevice,
  StandInDisk,
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
export type { TierContractOptions, TierUnderTest } from './tierContract.ts';

/**
 * Defines the contract of a tier store as tests of vitest. Await it at the top of a test file.
 * @throws what the import of vitest throws where it is not installed
 */
export async function tierContract(
  ...args: Parameters<typeof import('./tierContract.ts').tierContract>
): Promise<void> {
  const contract = await import('./tierContract.ts');
  contract.tierContract(...args);
}
