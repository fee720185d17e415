/**
 * What other packages, and our own tests, put a tier store to the test with: faults on purpose, items whose
 * bytes are known, random numbers that a seed repeats. Nothing here needs a test runner; the contract of
 * stores, which is a suite of vitest, lies in `contract.ts` beside it.
 */

export * from './faults/index.ts';
export { emptyItem, mismatchedWords, patternItem, patternKey } from './patternItems.ts';
export { SeededRandom, testSeed } from './seededRandom.ts';
