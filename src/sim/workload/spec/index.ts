/** The v2 workload spec: strict reading, checking and writing. */

export { lengthSpecOf } from './distribution.ts';
export { nearestName } from './nearest.ts';
export * from './parse.ts';
export * from './types.ts';
export { formatWorkloadSpec } from './write.ts';
