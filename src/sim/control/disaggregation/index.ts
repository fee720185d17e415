/** Prefill/decode deciders by name. */

import { type NumberRule, PolicyRegistry } from '../registry/index.ts';
import { Fixed, PrefixThreshold, TokenCap } from './deciders.ts';
import type { PrefillDecodeDecider } from './prefillDecodeDecider.ts';

export type { PrefillDecodeDecider, PrefillDecodeDecision } from './prefillDecodeDecider.ts';

function tokens(byDefault: number): NumberRule {
  return { kind: 'number', default: byDefault, min: 0, integer: true };
}

export const prefillDecodeDeciders: PolicyRegistry<PrefillDecodeDecider> =
  new PolicyRegistry<PrefillDecodeDecider>('decider', {
    never: { about: 'no hand-off', parameters: {}, make: () => new Fixed('never', false) },
    always: { about: 'every request', parameters: {}, make: () => new Fixed('always', true) },
    'prefix-threshold': {
      about: 'more uncached prompt tokens than a threshold',
      parameters: { tokens: tokens(16) },
      make: (p, world) => new PrefixThreshold(p.number('tokens'), world.blockTokens),
    },
    'token-cap': {
      about: 'above an upper limit always, above a lower one while requests wait',
      parameters: { bypassTokens: tokens(5000), alwaysTokens: tokens(16384) },
      make: (p, world) => new TokenCap(p.number('bypassTokens'), p.number('alwaysTokens'), world.blockTokens),
    },
  });
