/** The contract of tier stores as a suite of vitest, which must be installed: `tierkv/testing/contract`. */

export { type TierContractOptions, tierContract } from './tierContract/tierContract.ts';
export type { TierUnderTest } from './tierContract/trial.ts';
