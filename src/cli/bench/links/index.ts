/**
 * The link bench: for each unit size and pattern it opens the tiers, lets all contestants run in the same
 * interleaved rounds, and makes one row of each link. For `tierkv bench links` and `tierkv calibrate`.
 */

import { HostArena } from '../../../backends/arena/index.ts';
import { StagingSlots } from '../../../backends/engine/index.ts';
import { FileStore } from '../../../backends/file/index.ts';
import { MemoryStore } from '../../../backends/memory/index.ts';
import { type AdapterReport, HbmStore, type LiveDevice, openDevice } from '../../../backends/webgpu/index.ts';
import { poolShape, Tier } from '../../../runtime/index.ts';
import { fillPattern } from '../../../runtime/pattern.ts';
import { formatBytes } from '../../output/index.ts';
import { interruptible, temporaryDirectory } from '../../process/index.ts';
import { contestantsOf } from './contestants.ts';
import { PlainDevice } from './plainDevice.ts';
import { PlainDisk } from './plainDisk.ts';
import { LinkRig } from './rig.ts';
import { type Effort, measureRounds, shuffled } from './rounds.ts';
import { routes } from './routes.ts';
import { type LinkRow, type RowFacts, rowOf } from './row.ts';

export { plotOf } from './plot.ts';
export { type LinkRow, renderRows } from './row.ts';

/** How much is measured. */
export interface LinkBenchSizes extends Effort {
  readonly unitsOfKib: readonly number[];
  readonly patterns: readonly RowFacts['pattern'][];
  /** One run moves so many bytes, but no more than `unitsMax` blocks and no fewer than four. */
  readonly runBytes: number;
  readonly unitsMax: number;
}

const MIB = 1024 * 1024;
const patterns = ['contiguous', 'scattered'] as const;
const full = { patterns, runBytes: 256 * MIB, unitsMax: 4096, rounds: 9, sampleMs: 50 };
const quick = { patterns, runBytes: 16 * MIB, unitsMax: 64, rounds: 3, sampleMs: 5 };
export const fullSizes: LinkBenchSizes = { ...full, unitsOfKib: [16, 64, 256, 2048, 8192, 65_536] };
export const quickSizes: LinkBenchSizes = { ...quick, unitsOfKib: [64, 256, 2048] };

/**
 * @param dir where files are made, else in a temporary one @param adapter part of its name, else the best
 * @param say takes lines for a person
 * @throws {TierKVError} for an adapter or a directory that is not to be had
 */
export async function benchLinks(
  sizes: LinkBenchSizes,
  dir: string | undefined,
  adapter: string | undefined,
  say: (line: string) => void,
): Promise<{ adapter: AdapterReport; rows: LinkRow[] }> {
  using scratch = temporaryDirectory('tierkv-bench-', dir);
  return await interruptible(async (signal) => {
    await using live = await openDevice({ notice: say, ...(adapter === undefined ? {} : { adapter }) });
    const rows: LinkRow[] = [];
    for (const unitBytes of sizes.unitsOfKib.map((kib) => kib * 1024)) {
      for (const pattern of sizes.patterns) {
        say(`${pattern} blocks of ${formatBytes(unitBytes)}`);
        const facts = { unitBytes, pattern, software: live.adapter.software };
        rows.push(...(await rowsOf(live, scratch.path, sizes, facts, signal)));
      }
    }
    return { adapter: live.adapter, rows };
  });
}

async function rowsOf(
  live: LiveDevice,
  dir: string,
  sizes: LinkBenchSizes,
  facts: RowFacts,
  signal: AbortSignal,
): Promise<LinkRow[]> {
  const { unitBytes, pattern } = facts;
  const units = Math.min(sizes.unitsMax, Math.max(4, Math.ceil(sizes.runBytes / unitBytes)));
  const bytes = units * unitBytes;
  const indices = Array.from({ length: units }, (_, i) => i);
  // apart: every second one, in random order
  const slots = pattern === 'contiguous' ? indices : shuffled(indices, units).map((i) => 2 * i);
  const shape = poolShape(2 * units, unitBytes, [unitBytes]);
  await using hbm = await HbmStore.open(live, shape, { label: 'bench' });
  await using unverified = await HbmStore.open(live, shape, { label: 'unverified', verifyWrites: false });
  await using ddr = await MemoryStore.open(shape);
  await using nvme = await FileStore.open(dir, shape);
  using staging = await StagingSlots.open(unitBytes, StagingSlots.countFor(unitBytes));
  using arena = await HostArena.open({ chunkBytes: [bytes, bytes], field: 'bench' });
  const [host, scratch] = arena.chunks.map((chunk) => new Uint8Array(chunk, 0, bytes));
  for (const [i, slot] of slots.entries()) {
    fillPattern(new Uint32Array(host.buffer, i * unitBytes, unitBytes / 4), i, 7);
    ddr.view(slot, 0).set(host.subarray(i * unitBytes, (i + 1) * unitBytes));
    ddr.markWritten(slot, 1);
  }
  const rig = new LinkRig(slots, ddr, { hbm, nvme }, staging);
  const unverifiedRig = new LinkRig(slots, ddr, { hbm: unverified }, staging);
  await rig.move([[Tier.DDR, Tier.HBM]])();
  await rig.move([[Tier.DDR, Tier.NVME]])();
  await unverifiedRig.move([[Tier.DDR, Tier.HBM]])();
  using device = new PlainDevice(live.device, bytes);
  await using disk = new PlainDisk(nvme, shape);
  const readback = hbm.describe().verification === 'readback';
  const contestants = contestantsOf({ rig, unverifiedRig, readback, device, disk, host, scratch });
  const medians = await measureRounds(contestants, sizes, () => live.whenDone(), signal);
  return routes.map((route) => rowOf(route, medians, readback, facts));
}
