/**
 * Chance in the simulator: Go's random streams by name, elementary functions with fixed bits, and the
 * samplers of inter-arrival times and token lengths. Everything random under `src/sim` comes from here.
 */

export * as elementary from './elementary.ts';
export * from './samplers/index.ts';
export type { SourceState } from './source/index.ts';
export * from './streams/index.ts';
