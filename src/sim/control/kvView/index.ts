/** What the router believes of where KV lies: as the instances told it, late, and as it predicts. */

import type { ShadowConfig } from '../controlPlane.ts';
import type { ShadowView } from '../routerState.ts';
import { ApproximateShadow } from './approximateShadow.ts';
import type { CacheView } from './cacheView.ts';
import { EventShadow } from './eventShadow.ts';

export type { CacheView } from './cacheView.ts';
export { KeyDirectory, LeadingBlocks } from './keyDirectory.ts';
export { KeyLru } from './keyLru.ts';
export { KeyTable } from './keyTable.ts';
export { ObservedView } from './observedView.ts';

/** The shadow of a configuration, which `checkShadowConfig` has checked; null for none. */
export function newShadow(config: ShadowConfig): (CacheView & ShadowView) | null {
  switch (config.model) {
    case 'none':
      return null;
    case 'approximate':
      return new ApproximateShadow(config.blocks);
    case 'events':
      return new EventShadow(config.eventDelayUs, 0);
    case 'speculative':
      return new EventShadow(config.eventDelayUs, config.speculativeTtlUs);
  }
}
