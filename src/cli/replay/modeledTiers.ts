/** A replay without bytes: the modeled driver with link profiles that are assumptions, and say so. */

import { type KVManager, tierName } from '../../runtime/index.ts';
import { LinkModel, ModeledDriver } from '../../sim/driver/index.ts';
import type { ReplayListener, ReplayOptions } from './options.ts';
import { type ReplayTiers, trafficOf } from './tiers.ts';

export async function openTiers(
  manager: KVManager,
  options: ReplayOptions,
  _listener: ReplayListener,
): Promise<ReplayTiers> {
  const link = {
    baseLatencyUs: options.linkBaseLatencyUs,
    bandwidthBytesPerS: options.linkBandwidthBytesPerS,
  };
  const driver = new ModeledDriver(manager.config, new LinkModel({}, link));
  const links = (): [string, { bytes: number; busySeconds: number }][] =>
    [...driver.traffic].map(([name, { bytes, busyUs }]) => [name, { bytes, busySeconds: busyUs / 1e6 }]);
  return {
    driver,
    bytes: null,
    adapter: { name: 'none: modeled', software: true },
    describe: () =>
      Object.fromEntries([...driver.tiers].map(([tier, store]) => [tierName(tier), store.describe()])),
    bytesMoved: () => links().reduce((sum, [, traffic]) => sum + traffic.bytes, 0),
    traffic: () => trafficOf(links()),
    [Symbol.asyncDispose]: async () => {},
  };
}
