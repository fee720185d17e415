/** What a simulation measured: rows of requests, distributions, and what is made of them. */

export { RequestTable, Status, statusNames } from './requestTable.ts';
export * from './statistics.ts';
export {
  classOf,
  meetsTargets,
  metTargets,
  type Targets,
  type TargetsByClass,
  wasTurnedAway,
} from './targets.ts';
export { ValueCounts } from './valueCounts.ts';
