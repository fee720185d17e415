/** The v2 workload spec: strict reading, checking and writing. */

export { nearestName } from '../../../runtime/nearestName.ts';
export { lengthSpecOf } from './distribution.ts';
export * from './parse.ts';
export * from './types.ts';
export { formatWorkloadSpec } from './write.ts';
