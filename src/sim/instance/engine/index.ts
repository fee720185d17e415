/** The engine of a simulated instance: what an instance needs of one, and the real scheduler and manager. */

export type {
  CacheListener,
  EngineCounters,
  EngineStep,
  EngineTraffic,
  InstanceEngine,
  LinkMetrics,
  TierMetrics,
  TierReport,
} from './engine.ts';
export { type EngineConfig, type LoadTiming, type LowerTier, managerConfigOf } from './engineConfig.ts';
export { SchedulerEngine } from './schedulerEngine.ts';
