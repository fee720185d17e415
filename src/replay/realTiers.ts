/** A replay on real bytes: a WebGPU device, host memory and files behind the transfer engine. */

import type { TierFacts } from '../backends/tierRow.ts';
import type { DevicePool } from '../backends/webgpu/types.ts';
import { openStores } from '../embed/index.ts';
import { type KVManager, Outcome } from '../runtime/index.ts';
import { inOptionNames } from '../simulate/optionNames.ts';
import type { ReplayOptions, TraceReplayListener } from './options.ts';
import { type BlockBytes, type ReplayedPlace, type ReplayTiers, trafficOf } from './tiers.ts';

/** @throws {TierKVError} when a device, the memory or the directory is not to be had */
export async function openTiers(
  manager: KVManager,
  options: ReplayOptions,
  listener: TraceReplayListener,
): Promise<ReplayTiers> {
  const nvme = { dir: options.dir, bytes: 0 }; // its size is in the manager's configuration
  const url = options.remote !== undefined && 'url' in options.remote ? options.remote.url : undefined;
  const remote = url === undefined ? {} : { remote: { url, bytes: 0, ...patience }, facts };
  const stores = await openStores({ nvme, notice: listener.notice, ...remote }, manager).catch((error) => {
    throw inOptionNames(optionOf, error);
  });
  const { engine, hbm, shared } = stores;
  return {
    driver: engine,
    advance: null,
    bytes: patternBytes(hbm),
    shared,
    adapter: { name: hbm.adapter.name, software: hbm.adapter.software },
    describe: stores.describe,
    bytesMoved: () => [...engine.traffic().values()].reduce((sum, link) => sum + link.bytes, 0),
    traffic: () => trafficOf(engine.traffic()),
    [Symbol.asyncDispose]: () => stores[Symbol.asyncDispose](),
  };
}

/** Milliseconds: what a replay finds must not depend on how busy the machine is. */
const patience = { lookupMs: 10_000, deadlineMs: 30_000 };

/** Blocks of a replay are patterns of the trace's ids: all replays share them, and there is nothing to hide. */
const facts: TierFacts = {
  identity: { model: 'replay', layout: 'replay', secretKey: '', extras: '', epoch: 0 },
  secretKey: new TextEncoder().encode('tierkv replay, not a secret'),
};

const optionOf: Readonly<Record<string, string>> = {
  'hbm.capacityBytes': '--hbm',
  hbmBytes: '--hbm',
  'ddr.capacityBytes': '--ddr',
  ddrBytes: '--ddr',
  'nvme.dir': '--dir',
  dir: '--dir',
  'remote.url': '--remote',
  'remote.capacityBytes': '--remote-blocks',
  remote: '--remote',
};

/** Blocks whose bytes the device generates from the trace's id, so that only this block can have them. */
function patternBytes(hbm: DevicePool): BlockBytes {
  const items = (places: readonly ReplayedPlace[]) =>
    places.map(({ slot, generation, id }) => ({
      slot,
      generation,
      sizeClass: 0,
      seedLo: id >>> 0,
      seedHi: Math.floor(id / 2 ** 32) >>> 0,
    }));
  return {
    write(places) {
      void hbm.fillPattern(items(places));
    },
    async verify(places) {
      if (places.length === 0) return 0;
      const results = await hbm.countMismatches(items(places));
      return results.filter((r) => r.outcome !== Outcome.LOADED || r.mismatchedWords > 0).length;
    },
  };
}
