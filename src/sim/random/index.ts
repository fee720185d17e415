/**
 * Chance in the simulator: Go's random streams by name, elementary functions with fixed bits, and the samplers of
 * inter-arrival times and token lengths. Everything random under `src/sim` comes from here.
 */

export * from './arrival.ts';
export * as elementary from './elementary.ts';
export * from './length.ts';
export * from './partition.ts';
export * from './pool.ts';
export * from './rand.ts';
export type { SourceState } from './source.ts';
