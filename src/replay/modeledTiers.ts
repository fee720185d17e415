/**
 * A replay without bytes: the modeled driver with links as `tierkv calibrate` measured them, or with assumed
 * ones; the report says which.
 */

import { readText } from '../files/inputs.ts';
import { type KVManager, tierName } from '../runtime/index.ts';
import { type LinkCalibration, parseLinkCalibration } from '../sim/latency/capacity.ts';
import { LinkModel, ModeledDriver, TransferTimeline } from '../sim/links/modeledDriver.ts';
import type { ReplayOptions, TraceReplayListener } from './options.ts';
import { type ReplayTiers, trafficOf } from './tiers.ts';

export async function openTiers(
  manager: KVManager,
  options: ReplayOptions,
  _listener: TraceReplayListener,
): Promise<ReplayTiers> {
  const link = {
    baseLatencyUs: options.linkBaseLatencyUs,
    bandwidthBytesPerS: options.linkBandwidthBytesPerS,
  };
  const profile = profileOf(options);
  const timeline = new TransferTimeline();
  const driver = new ModeledDriver(manager.config, new LinkModel(profile?.links ?? {}, link), timeline);
  timeline.onDue((flight) => driver.end(flight));
  const links = (): [string, { bytes: number; busySeconds: number }][] =>
    [...driver.traffic].map(([name, { bytes, busyUs }]) => [name, { bytes, busySeconds: busyUs / 1e6 }]);
  return {
    driver,
    advance: () => {
      timeline.step();
    },
    nowUs: () => timeline.nowUs,
    bytes: null,
    adapter: {
      name: profile === undefined ? 'none: modeled' : `none: modeled after ${profile.device}`,
      software: true,
    },
    describe: () =>
      Object.fromEntries([...driver.tiers].map(([tier, store]) => [tierName(tier), store.describe()])),
    bytesMoved: () => links().reduce((sum, [, traffic]) => sum + traffic.bytes, 0),
    traffic: () => trafficOf(links()),
    [Symbol.asyncDispose]: async () => {},
  };
}

function profileOf({ linksPath }: ReplayOptions): LinkCalibration | undefined {
  return linksPath === undefined ? undefined : parseLinkCalibration(readText(linksPath), linksPath);
}
