/** A replay on real bytes: a WebGPU device, host memory and files behind the transfer engine. */

import type { TierFacts } from '../../backends/tierRow.ts';
import type { DevicePool } from '../../backends/webgpu/types.ts';
import { OpenParts, openStores } from '../../embed/stores.ts';
import { renamed } from '../../runtime/errors.ts';
import { type KVManager, Outcome } from '../../runtime/index.ts';
import type { ReplayOptions, TraceReplayListener } from './options.ts';
import { placesOf, tierFieldOptions } from './sizedTiers.ts';
import { type BlockBytes, type ReplayedPlace, type ReplayTiers, sharesOf, trafficOf } from './tiers.ts';

/** @throws {TierKVError} when a device, the memory or the directory is not to be had */
export async function openTiers(
  manager: KVManager,
  options: ReplayOptions,
  listener: TraceReplayListener,
): Promise<ReplayTiers> {
  const { notice } = listener;
  const known = sharesOf(options) ? { facts } : {};
  const rows = placesOf(options.tiers);
  await using opened = new OpenParts();
  const stores = await openStores({ ...rows, notice, ...known }, manager).catch((error) => {
    throw renamed(tierFieldOptions(), error);
  });
  opened.use(stores);
  const { engine, pool, shared } = stores;
  const tiers: ReplayTiers = {
    driver: engine,
    advance: null,
    nowUs: () => 1000 * performance.now(),
    bytes: patternBytes(pool),
    shared,
    adapter: { name: pool.adapter.name, software: pool.adapter.software },
    describe: stores.describe,
    bytesMoved: () => [...engine.traffic().values()].reduce((sum, link) => sum + link.bytes, 0),
    traffic: () => trafficOf(engine.traffic()),
    [Symbol.asyncDispose]: () => stores[Symbol.asyncDispose](),
  };
  opened.move();
  return tiers;
}

/** Blocks of a replay are patterns of the trace's ids: all replays share them, and there is nothing to hide. */
const facts: TierFacts = {
  identity: { model: 'replay', layout: 'replay', secretKey: '', extras: '', epoch: 0 },
  secretKey: new TextEncoder().encode('tierkv replay, not a secret'),
};

/** Blocks whose bytes the device generates from the trace's id, so that only this block can have them. */
function patternBytes(pool: DevicePool): BlockBytes {
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
      void pool.fillPattern(items(places));
    },
    async verify(places) {
      if (places.length === 0) return 0;
      const results = await pool.countMismatches(items(places));
      return results.filter((r) => r.outcome !== Outcome.LOADED || r.mismatchedWords > 0).length;
    },
  };
}
