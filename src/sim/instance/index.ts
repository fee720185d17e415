/** One engine on virtual time: the real scheduler and manager, and a model of how long its steps take. */

export type {
  CacheListener,
  Engine,
  EngineCounters,
  EngineStep,
  EngineTraffic,
  TierReport,
} from './engine.ts';
export { type EngineConfig, type LoadTiming, type LowerTier, managerConfigOf } from './engineConfig.ts';
export {
  Instance,
  type InstanceConfig,
  type InstanceCounters,
  type InstanceHost,
  type InstanceLimits,
} from './instance.ts';
export { KeysNeeded, PromptKeys } from './promptKeys.ts';
export { SchedulerEngine } from './schedulerEngine.ts';
export { SimRequest } from './simRequest.ts';
export { TokenTimes } from './tokenTimes.ts';
