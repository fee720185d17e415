/** The contract of tier stores as a suite of vitest, which must be installed: `tierkv/testing/contract`. */

export { type TierContractOptions, type TierUnderTest, tierContract } from './tierContract.ts';
