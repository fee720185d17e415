/**
 * transformers.js in a page or a worker: `tierkv/browser/transformers`. What differs from `tierkv/transformers` is where
 * weights and runtime come from: addresses, and `openInBrowser`. With `hbmBytes`, a session on WebGPU shares its device, and
 * keys and values go between its buffers and the blocks by kernels.
 */

import { configError } from '../../runtime/errors.ts';
import { requireObject } from '../../runtime/options.ts';
import { type CachedModel, cachedModel, type PrefixCacheOptions } from '../transformers/cachedModel.ts';
import { type DecoderModel, engineDevice } from '../transformers/engine.ts';
import { type BrowserRuntimeConfig, openInBrowser } from './index.ts';

export { type ErrorCode, type ErrorFacts, TierKVError } from '../../runtime/errors.ts';
export type {
  DecoderModel,
  EngineCache,
  EngineModule,
  EngineTensor,
} from '../transformers/engine.ts';
export { layoutOf } from '../transformers/modelShape.ts';
export type {
  PrefixCounters,
  PrefixScope,
  PrefixTurn,
  RestoredPrefix,
  SavedPrefix,
} from '../transformers/prefixCache.ts';
export { PrefixCache } from '../transformers/prefixCache.ts';
export type { CachedModel };

/** Options as in Node, but for the parts that a page lacks; `weights` are addresses. */
export interface PagePrefixCacheOptions
  extends Omit<PrefixCacheOptions, 'adapter' | 'wait' | 'remote' | 'log'> {
  /** The same choice as for `openInBrowser`. */
  readonly filesElse?: BrowserRuntimeConfig['filesElse'];
}

/**
 * Gives a model whose `generate` restores prefixes and saves them. The model itself is left as it is.
 * @throws TKV_CONFIG naming the option at fault, the kind of a model that cannot be served, or what differs from the
 * runtime's layout; what `openInBrowser` throws
 */
export function withPrefixCache<Model extends DecoderModel>(
  model: Model,
  options: PagePrefixCacheOptions,
): Promise<CachedModel<Model>> {
  requireObject(options, 'options');
  const { filesElse, ...rest } = options;
  if (filesElse !== undefined && options.runtime !== undefined) {
    throw configError('filesElse', 'is given beside runtime', 'Give it to openInBrowser.');
  }
  return cachedModel(model, rest, async (config, engine) => {
    const shared = await engineDevice(engine);
    const isShared = config.hbmBytes !== undefined && config.device === undefined && shared !== undefined;
    return await openInBrowser({
      ...config,
      ...(isShared ? { device: shared } : {}),
      ...(filesElse === undefined ? {} : { filesElse }),
    });
  });
}
