/** The door `tierkv/transformers`: prefixes of transformers.js models in the tiers. */

import '../../requireNode.ts';

export { type CachedModel, type PrefixCacheOptions, withPrefixCache } from './cachedModel.ts';
export type { DecoderModel } from './engine.ts';
export { layoutOf } from './modelShape.ts';
export { PrefixCache, type PrefixCounters, type PrefixScope, type PrefixTurn } from './prefixCache.ts';
