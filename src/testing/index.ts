/** What other packages, and our own tests, check a tier store with. Needs vitest. */

export * from './faults/index.ts';
export { emptyItem, mismatchedWords, patternItem, patternKey } from './patternItems.ts';
export { SeededRandom, testSeed } from './seededRandom.ts';
export { type TierContractOptions, type TierUnderTest, tierContract } from './tierContract.ts';
