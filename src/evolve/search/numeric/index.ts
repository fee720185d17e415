/** Search over numbers: CMA-ES and an evolution strategy in the unit cube. */

export * from './cmaEs.ts';
export { identity, type Matrix, symmetricEigen } from './eigen.ts';
export * from './evolutionStrategy.ts';
