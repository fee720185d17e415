/**
 * The door `tierkv/testing/contract`: the contract of tier stores as a suite of vitest, which must be
 * installed.
 */

export { type TierContractOptions, type TierUnderTest, tierContract } from './tierContract.ts';
