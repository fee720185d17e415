/** Who is kept: Pareto order, hypervolume, MAP-Elites with islands, a branch that tolerates regressions. */

export * from './dominance.ts';
export { hypervolume } from './hypervolume.ts';
export * from './mapElites.ts';
export * from './restartBranch.ts';
