/** Words of `tierkv replay`, and their defaults. Apart, so that help loads no replay. */

import { mooncakeBlockTokens } from '../../sim/build/mooncakeTrace.ts';
import { sizeDefaults } from '../tierOptions.ts';

/** The options as commander hands them over: text, under camel-case names. */
export interface RawReplayOptions {
  /** Sizes and places of tiers, by the words of their options. */
  readonly [word: string]: string | boolean | undefined;
  readonly blockBytes: string;
  readonly blockTokens: string;
  readonly driver: string;
  readonly offloadThreshold: string;
  readonly skipBad: boolean;
  /** Absent: the manager's default. */
  readonly policy?: string;
  readonly linkGbps?: string;
  readonly linkLatencyUs?: string;
  readonly requests?: string;
  readonly sharedTier?: string;
  readonly links?: string;
  readonly log?: string;
  readonly inputs?: string;
  readonly json?: string;
}

/** Enough for every tier to serve some of the bundled excerpt, at a total of about 400 MB. */
export const replayDefaults: Pick<
  RawReplayOptions,
  'blockBytes' | 'blockTokens' | 'driver' | 'offloadThreshold'
> &
  Readonly<Record<string, string>> = {
  ...sizeDefaults(['1000', '4000', '20000']),
  blockBytes: '16KiB',
  blockTokens: String(mooncakeBlockTokens),
  driver: 'real',
  offloadThreshold: '1',
};

/**
 * Defaults of the modeled driver for links that no profile gives. Apart, since with the real driver they mean nothing.
 */
export const linkDefaults: { readonly gbps: string; readonly latencyUs: string } = {
  gbps: '10',
  latencyUs: '10',
};
