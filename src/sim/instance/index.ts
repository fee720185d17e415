/** One engine on virtual time: the real scheduler and manager, and a model of how long its steps take. */

export type {
  CacheListener,
  EngineConfig,
  EngineCounters,
  EngineStep,
  EngineTraffic,
  InstanceEngine,
  LinkMetrics,
  LoadTiming,
  LowerTier,
  TierMetrics,
  TierReport,
} from './engine/index.ts';
export { managerConfigOf, SchedulerEngine } from './engine/index.ts';
export { Instance } from './instance.ts';
export type {
  InstanceConfig,
  InstanceCounters,
  InstanceHost,
  InstanceLimits,
} from './instanceConfig.ts';
export { KeysNeeded, PromptKeys } from './promptKeys.ts';
export { SimRequest } from './simRequest.ts';
export { TokenTimes } from './tokenTimes.ts';
