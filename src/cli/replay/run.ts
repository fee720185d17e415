/** The run behind `tierkv replay`. */

import { TierKVError } from '../../runtime/errors.ts';
import type { ReplayListener, ReplayOptions } from './options.ts';
import type { ReplayReport } from './report.ts';

/** @throws {TierKVError} always, until the manager lands. */
export async function runReplay(options: ReplayOptions, listener: ReplayListener): Promise<ReplayReport> {
  listener.signal.throwIfAborted();
  throw new TierKVError(
    'TKV_STATE',
    `${options.tracePath} cannot be replayed yet: the manager is not in this build.`,
  );
}
