import { expect, it } from 'vitest';
import { StagingSlots } from '../../../src/backends/engine/stagedBatch.ts';
import { TransferEngine } from '../../../src/backends/engine/transferEngine.ts';
import {
  type JobId,
  JobPriority,
  Outcome,
  poolShape,
  Tier,
  type Transfer,
} from '../../../src/runtime/index.ts';
import { issuedJobs } from '../../../src/runtime/tier/driver.ts';
import { StandInDevice, StandInDisk } from '../../../src/testing/faults.ts';
import { patternItem } from '../../../src/testing/index.ts';

const shape = poolShape(1, 65_536, [4096]);

/** Blocks 0 to 3 go from disk to device; a bit of block 2 is wrong on the disk. */
async function load(
  deviceVerifies: boolean,
): Promise<{ outcomes: Outcome[]; left: (boolean | undefined)[] }> {
  const disk = new StandInDisk(shape);
  const hbm = new StandInDevice(shape, { verify: deviceVerifies });
  const items = [0, 1, 2, 3].map((slot) => patternItem(shape, slot, 0, 1));
  await disk.write(items);
  disk.bytesAt(2, 0)[77] ^= 8;
  const left: (boolean | undefined)[] = [];
  const read = disk.read.bind(disk);
  disk.read = (asked, ended) => {
    left.push(...asked.map((one) => one.checkedLater));
    return read(asked, ended);
  };
  using staging = await StagingSlots.open(4096, 3);
  const engine = new TransferEngine({ hbm, nvme: disk }, staging);
  const ends = new Map<number, Outcome>();
  const over = new Promise<void>((resolve) => {
    engine.onEnd(({ job, outcome }) => {
      ends.set(job, outcome);
      if (ends.size === items.length) resolve();
    });
  });
  engine.submit(
    issuedJobs(
      items.map(
        ({ slot, key, digest }): Transfer => ({
          job: (slot + 1) as JobId,
          kind: 'move',
          source: { tier: Tier.NVME, slot, generation: 1 },
          target: { tier: Tier.HBM, slot: 8 + slot, generation: 1 },
          sizeClass: 0,
          bytes: 4096,
          key,
          digest,
          priority: JobPriority.DEMAND_LOAD,
          deadlineUs: Number.POSITIVE_INFINITY,
        }),
      ),
    ),
  );
  await over;
  return { outcomes: [1, 2, 3, 4].map((job) => ends.get(job) as Outcome), left };
}

const wrongInTheMiddle = [Outcome.LOADED, Outcome.LOADED, Outcome.CORRUPT, Outcome.LOADED];

it('a device that verifies checks the bytes that come from a file, and the file store does not', async () => {
  const { outcomes, left } = await load(true);
  expect(outcomes).toEqual(wrongInTheMiddle);
  expect(left).toEqual([true, true, true, true]);
});

it('if the device does not verify, the file store does', async () => {
  const { outcomes, left } = await load(false);
  expect(outcomes).toEqual(wrongInTheMiddle);
  expect(left).toEqual([false, false, false, false]);
});
