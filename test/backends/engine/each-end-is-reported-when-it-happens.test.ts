import { expect, it } from 'vitest';
import { StagingSlots } from '../../../src/backends/engine/stagedBatch.ts';
import { TransferEngine } from '../../../src/backends/engine/transferEngine.ts';
import { MemoryStore } from '../../../src/backends/host/memoryStore.ts';
import {
  type Completion,
  type JobId,
  JobPriority,
  Outcome,
  poolShape,
  Tier,
  type TierStore,
  type Transfer,
} from '../../../src/runtime/index.ts';
import { issuedJobs } from '../../../src/runtime/tier/driver.ts';
import { StandInDevice, StandInDisk, settled } from '../../../src/testing/faults.ts';

const shape = poolShape(8, 64, [64]);

/** A move of the block in that slot; its job is the slot's number plus 1, since a queue says 0 when it is empty. */
function move(slot: number, from: Tier, to: Tier, deadlineUs: number = Number.POSITIVE_INFINITY): Transfer {
  return {
    job: (slot + 1) as JobId,
    kind: 'move',
    source: { tier: from, slot, generation: 1 },
    target: { tier: to, slot, generation: 1 },
    sizeClass: 0,
    bytes: 64,
    key: new Uint32Array(4),
    digest: { lo: 0, hi: 0 },
    tokens: 16,
    priority: JobPriority.DEMAND_LOAD,
    deadlineUs,
  };
}

async function world(nvme: TierStore, verify = false) {
  const hbm = new StandInDevice(shape, { verify });
  const ddr = await MemoryStore.open(shape, { native: false });
  for (let slot = 0; slot < 8; slot++) {
    ddr.view(slot, 0).fill(slot + 1);
    ddr.markWritten(slot, 1);
  }
  const staging = await StagingSlots.open(64, 2);
  const clock = { nowMs: 0 };
  const engine = new TransferEngine({ hbm, ddr, nvme }, staging, () => clock.nowMs);
  const ends: Completion[] = [];
  engine.onEnd((end) => ends.push(end));
  return { engine, ends, hbm, clock };
}

/** A disk whose write of each slot ends when the test says so. */
class HeldDisk extends StandInDisk {
  readonly held: Map<number, () => void> = new Map();

  override write: TierStore['write'] = async (items, ended) => {
    const ends = await Promise.all(
      items.map(async (item, index) => {
        await new Promise<void>((resolve) => this.held.set(item.slot, resolve));
        const [end] = await super.write([item]);
        ended?.(index, end);
        return end;
      }),
    );
    return ends;
  };
}

const slotsOf = (ends: readonly Completion[]): number[] => ends.map(({ job }) => job - 1);

it('a load that was submitted behind a slow write ends before it; writes of one batch end one by one', async () => {
  const disk = new HeldDisk(shape);
  const { engine, ends } = await world(disk);
  engine.submit(
    issuedJobs([move(0, Tier.DDR, Tier.NVME), move(1, Tier.DDR, Tier.NVME), move(2, Tier.DDR, Tier.HBM)]),
  );
  expect(ends, 'nothing ends inside submit').toEqual([]);
  await settled();
  expect(slotsOf(ends)).toEqual([2]);
  disk.held.get(1)?.();
  await settled();
  expect(slotsOf(ends)).toEqual([2, 1]);
  disk.held.get(0)?.();
  await settled();
  expect(slotsOf(ends)).toEqual([2, 1, 0]);
  expect(engine.inFlight).toBe(0);
});

it('blocks between file and device go on one by one as they arrive, through fewer staging slots than there are blocks', async () => {
  const disk = new StandInDisk(shape, { verify: false });
  const items = Array.from({ length: 8 }, (_, slot) => ({
    slot,
    sizeClass: 0,
    generation: 1,
    key: new Uint32Array(4),
    digest: { lo: 0, hi: 0 },
    bytes: new Uint8Array(64).fill(slot + 7),
  }));
  await disk.write(items);
  const { engine, ends, hbm } = await world(disk);
  engine.submit(issuedJobs(items.map(({ slot }) => move(slot, Tier.NVME, Tier.HBM))));
  while (engine.inFlight > 0) await settled();
  expect(ends.every(({ outcome }) => outcome === Outcome.LOADED)).toBe(true);
  for (const { slot } of items) expect(hbm.bytesAt(slot)[63]).toBe(slot + 7);
});

it('a job whose deadline passed before it began ends as timed out, and not inside submit', async () => {
  const { engine, ends, clock } = await world(new StandInDisk(shape));
  clock.nowMs = 10;
  engine.submit(issuedJobs([move(0, Tier.DDR, Tier.HBM, 5_000)]));
  expect(ends).toEqual([]);
  await settled();
  expect(ends.map(({ outcome }) => outcome)).toEqual([Outcome.TIMED_OUT]);
  expect(engine.overdue).toBe(0);
});

it('a copy within the device is a job like others, also of a block that is still written', async () => {
  const { engine, ends, hbm } = await world(new StandInDisk(shape));
  hbm.bytesAt(3).fill(9);
  const copy: Transfer = {
    ...move(1, Tier.HBM, Tier.HBM),
    kind: 'copy',
    source: { tier: Tier.HBM, slot: 3, generation: 4 },
    unsealed: true,
  };
  engine.submit(
    issuedJobs([
      copy,
      { ...copy, job: 3 as JobId, target: { tier: Tier.HBM, slot: 2, generation: 1 }, unsealed: false },
    ]),
  );
  await settled();
  expect(hbm.bytesAt(1)[0]).toBe(9);
  const outcomes = new Map(ends.map(({ job, outcome }) => [job as number, outcome]));
  expect(outcomes.get(2)).toBe(Outcome.LOADED);
  expect(outcomes.get(3), 'a sealed source has to be what the store knows').not.toBe(Outcome.LOADED);
});

it('a store that rejects, against its contract, fails its own jobs and no others; so does a tier without a store', async () => {
  const broken: TierStore = Object.assign(new StandInDisk(shape), {
    write: () => Promise.reject(new Error('out of order')),
  });
  const { engine, ends } = await world(broken, true);
  engine.submit(
    issuedJobs([move(0, Tier.DDR, Tier.NVME), move(1, Tier.DDR, Tier.HBM), move(2, Tier.DDR, Tier.REMOTE)]),
  );
  while (engine.inFlight > 0) await settled();
  const of = (slot: number): Completion | undefined => ends.find((end) => end.job === slot + 1);
  expect(of(0)).toMatchObject({ outcome: Outcome.REFUSED, reason: expect.stringContaining('out of order') });
  expect(of(1)?.outcome).toBe(Outcome.CORRUPT);
  expect(of(2)).toMatchObject({
    outcome: Outcome.REFUSED,
    reason: expect.stringContaining('the engine has no remote store'),
  });
});
