/** What a replay runs on: a driver, the bytes behind it if it has any, and what to report of them. */

import type { KVManager, TransferDriver } from '../../../runtime/index.ts';
import type { ReplayListener, ReplayOptions } from '../options.ts';
import type { ReplayReport } from '../report/index.ts';
import type { BlockBytes } from './blockBytes.ts';

export interface ReplayTiers extends AsyncDisposable {
  readonly driver: TransferDriver;
  /** Moves virtual time on to the next end; null where time passes by itself. */
  readonly advance: (() => void) | null;
  readonly bytes: BlockBytes | null;
  readonly adapter: ReplayReport['adapter'];
  describe(): ReplayReport['tiers'];
  bytesMoved(): number;
  traffic(): Pick<ReplayReport, 'bytesMoved' | 'gbps'>;
}

export type OpenTiers = (
  manager: KVManager,
  options: ReplayOptions,
  listener: ReplayListener,
) => Promise<ReplayTiers>;

/** @param links bytes and busy seconds by link */
export function trafficOf(
  links: Iterable<readonly [string, { bytes: number; busySeconds: number }]>,
): Pick<ReplayReport, 'bytesMoved' | 'gbps'> {
  const used = [...links].filter(([, link]) => link.bytes > 0).sort(([a], [b]) => (a < b ? -1 : 1));
  return {
    bytesMoved: Object.fromEntries(used.map(([name, link]) => [name, link.bytes])),
    gbps: Object.fromEntries(
      used.map(([name, link]) => [name, link.busySeconds > 0 ? link.bytes / link.busySeconds / 1e9 : 0]),
    ),
  };
}
