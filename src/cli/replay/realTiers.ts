/** A replay on real bytes: a WebGPU device, host memory and files behind the transfer engine. */

import { StagingSlots, TransferEngine } from '../../backends/engine/index.ts';
import { FileStore } from '../../backends/file/index.ts';
import { MemoryStore } from '../../backends/memory/index.ts';
import { type DevicePool, HbmStore, openDevice } from '../../backends/webgpu/index.ts';
import { type KVManager, Outcome, type PoolShape, Tier } from '../../runtime/index.ts';
import type { ReplayListener, ReplayOptions } from './options.ts';
import type { BlockBytes, BlockPlace } from './session.ts';
import { type ReplayTiers, trafficOf } from './tiers.ts';

const STAGING_BYTES = 16 * 1024 * 1024;
const STAGING_SLOTS_MAX = 256;

/** @throws {TierKVError} when a device, the memory or the directory is not to be had; what was opened is closed again */
export async function openTiers(
  manager: KVManager,
  options: ReplayOptions,
  listener: ReplayListener,
): Promise<ReplayTiers> {
  const shapes = new Map<Tier, PoolShape>(manager.config.tiers.map(({ tier, shape }) => [tier, shape]));
  await using opened = new AsyncDisposableStack();
  const device = opened.use(await openDevice({ notice: listener.notice }));
  const hbm = opened.use(await HbmStore.open(device, shapes.get(Tier.HBM)!));
  const ddrShape = shapes.get(Tier.DDR);
  const ddr = ddrShape === undefined ? undefined : opened.use(await MemoryStore.open(ddrShape));
  if (ddr !== undefined && ddr.describe().locked === false) {
    listener.notice(
      'DDR: the operating system did not lock the memory (see "ulimit -l"); it may be paged out',
    );
  }
  const nvmeShape = shapes.get(Tier.NVME);
  const nvme = nvmeShape === undefined ? undefined : opened.use(await FileStore.open(options.dir, nvmeShape));
  const slots = Math.max(1, Math.min(STAGING_SLOTS_MAX, Math.floor(STAGING_BYTES / options.blockBytes)));
  const staging = nvme === undefined ? null : opened.use(await StagingSlots.open(options.blockBytes, slots));

  const driver = new TransferEngine(
    { hbm, ...(ddr === undefined ? {} : { ddr }), ...(nvme === undefined ? {} : { nvme }) },
    staging,
  );
  const bytesMoved = (): number => [...driver.traffic().values()].reduce((sum, link) => sum + link.bytes, 0);
  const stack = opened.move();
  return {
    driver,
    bytes: patternBytes(hbm),
    adapter: { name: hbm.adapter.name, software: hbm.adapter.software },
    describe: () => ({
      hbm: hbm.describe(),
      ...(ddr === undefined ? {} : { ddr: ddr.describe() }),
      ...(nvme === undefined ? {} : { nvme: nvme.describe() }),
    }),
    bytesMoved,
    traffic: () => trafficOf(driver.traffic()),
    [Symbol.asyncDispose]: () => stack.disposeAsync(),
  };
}

/** Blocks whose bytes the device generates from the trace's id, so that only this block can have them. */
function patternBytes(hbm: DevicePool): BlockBytes {
  const items = (places: readonly BlockPlace[]) =>
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
