/** What policies may read. */

export { type ClusterFacts, clusterFeatures, type RouterFacts, routerFeatures } from './cluster.ts';
export {
  anyIsReported,
  type Feature,
  type FeatureKind,
  type FeatureTable,
  type FeatureValue,
  type Freshness,
} from './feature.ts';
export {
  cacheFeatures,
  type InstanceFacts,
  instanceFeatures,
  type MemoryName,
  memoryNames,
  memoryOf,
} from './instance.ts';
export { outcomeFeatures } from './outcome.ts';
export { type RequestFacts, requestFeatures } from './request.ts';
export { scalingFeatures } from './scaling.ts';
export {
  cachedBlocks,
  dueUs,
  type EngineFacts,
  engineFeatures,
  type SchedulingFacts,
  schedulingFeatures,
  uncachedTokens,
} from './scheduling.ts';
