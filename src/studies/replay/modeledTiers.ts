/**
 * A replay without bytes: the modeled driver with links as `tierkv calibrate` measured them, or with assumed
 * ones; the report says which.
 */

import { readText } from '../../io/files/inputs.ts';
import { type KVManager, linkName, tierName } from '../../runtime/index.ts';
import { type LinkCalibration, parseLinkCalibration } from '../../sim/latency/capacity.ts';
import {
  LinkModel,
  type LinkProfiles,
  ModeledDriver,
  type ModeledShare,
  modeledDigest,
  TransferTimeline,
} from '../../sim/links/modeledDriver.ts';
import { instanceLinks } from '../../sim/links/sharedServer.ts';
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
  const share = shareOf(manager, options);
  const profiles = { ...(share === null ? {} : linksToServer(manager, share)), ...profile?.links };
  const driver = new ModeledDriver(manager.config, new LinkModel(profiles, link), timeline, share);
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
    shared: share === null ? undefined : sharedOf(manager, driver, share, options.blockTokens),
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

/** Blocks of all replays are of one space, as on a real server. */
function shareOf(
  { inspect: { tiers } }: KVManager,
  { shared, blockBytes }: ReplayOptions,
): ModeledShare | null {
  const tier = tiers.at(-1);
  if (shared === undefined || tier === undefined) return null;
  return { tier, server: shared, space: `replay/${blockBytes}/` };
}

function linksToServer({ inspect: { tiers } }: KVManager, { tier, server }: ModeledShare): LinkProfiles {
  const { read, write } = instanceLinks(server.config, 1);
  const others = tiers.filter((other) => other !== tier);
  return Object.fromEntries(
    others.flatMap((other) => [
      [linkName(other, tier), write],
      [linkName(tier, other), read],
    ]),
  );
}

function sharedOf(
  { inspect: { tiers } }: KVManager,
  driver: ModeledDriver,
  { tier, server, space }: ModeledShare,
  tokens: number,
): ReplayTiers['shared'] {
  return {
    position: tiers.indexOf(tier),
    tier: {
      lookup: async (chains) =>
        chains.map(({ keys, from, to, sizeClass }) => {
          const found = server.find(space, keys, from, to);
          return Array.from({ length: found }, (_, i) => {
            const key = keys.slice(4 * (from + i), 4 * (from + i) + 4);
            return { sizeClass, key, parent: undefined, digest: modeledDigest(key), tokens };
          });
        }),
      believe: (place, key) => driver.believe(place, key),
    },
  };
}

function profileOf({ linksPath }: ReplayOptions): LinkCalibration | undefined {
  return linksPath === undefined ? undefined : parseLinkCalibration(readText(linksPath), linksPath);
}
