/**
 * The door `tierkv/transformers` in a page or a worker. What differs from Node is where
 * weights and runtime come from: addresses, and `openInBrowser`. With `hbmBytes`, a session on WebGPU shares its device, and
 * keys and values go between its buffers and the blocks by kernels.
 */

import { configError } from '../../runtime/errors.ts';
import * as is from '../../runtime/kinds.ts';
import { type CachedModel, cachedModel, type PrefixCacheOptions } from '../transformers/cachedModel.ts';
import { type DecoderModel, engineDevice } from '../transformers/engine.ts';
import { openInBrowser } from './index.ts';

export type { CachedModel, PrefixCacheOptions } from '../transformers/cachedModel.ts';
export type { DecoderModel } from '../transformers/engine.ts';
export { layoutOf } from '../transformers/modelShape.ts';
export type { PrefixCounters, PrefixScope, PrefixTurn } from '../transformers/prefixCache.ts';
export { PrefixCache } from '../transformers/prefixCache.ts';

/**
 * Gives a model whose `generate` restores prefixes and saves them. The model itself is left as it is.
 * @throws TKV_CONFIG naming the option at fault, the kind of a model that cannot be served, or what differs from the
 * runtime's layout; what `openInBrowser` throws
 */
export function withPrefixCache<Model extends DecoderModel>(
  model: Model,
  options: PrefixCacheOptions,
): Promise<CachedModel<Model>> {
  is.object().read(options, 'options');
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
