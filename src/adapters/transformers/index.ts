/** `tierkv/transformers`: prefixes of transformers.js models in the tiers. */

import '../../requireNode.ts';

export {
  type CachedModel,
  type PrefixCacheOptions,
  withPrefixCache,
} from './cachedModel.ts';
export type { DecoderModel, EngineCache, EngineModule, EngineTensor } from './engine.ts';
export { layoutOf } from './modelShape.ts';
export {
  PrefixCache,
  type PrefixCounters,
  type PrefixScope,
  type PrefixTurn,
  type RestoredPrefix,
  type SavedPrefix,
} from './prefixCache.ts';
