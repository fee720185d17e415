/** The tokens that a prompt begins with and others share: nothing, or one span of a stream. */

import type { TokenSpan } from '../request.ts';

export interface Prefix {
  readonly tokens: number;
  readonly spans: readonly TokenSpan[];
}

export const NO_PREFIX: Prefix = { tokens: 0, spans: [] };
