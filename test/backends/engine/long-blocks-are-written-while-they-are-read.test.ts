import { afterEach, describe, expect, it, vi } from 'vitest';
import { StagingSlots, TransferEngine } from '../../../src/backends/engine/index.ts';
import { fileLayout, recordOffset } from '../../../src/backends/file/fileLayout.ts';
import { type DataFile, FileStore, IoError } from '../../../src/backends/file/index.ts';
import { HbmStore, type HbmStoreOptions, openDevice } from '../../../src/backends/webgpu/index.ts';
import {
  type JobId,
  type Outcome,
  outcomeNames,
  Priority,
  poolShape,
  Tier,
  type TierStore,
} from '../../../src/runtime/index.ts';
import { loaded } from '../../../src/runtime/transfer/slotLedger.ts';
import { FaultPlan, FaultStore } from '../../../src/testing/faults/index.ts';
import { emptyItem, mismatchedWords, patternItem } from '../../../src/testing/index.ts';
import { editFile, scratchDir } from '../file/scratch.ts';
import { softwareDevice } from '../webgpu/softwareDevice.ts';

const device = softwareDevice();

afterEach(() => vi.restoreAllMocks());

const BLOCK = 4 * 1024 * 1024;
const PIECES = 8;
const PIECE = BLOCK / PIECES;
const BLOCKS = 3;
const shape = poolShape(BLOCKS, BLOCK, [BLOCK]);
const layout = fileLayout(shape);
const blocks = Array.from({ length: BLOCKS }, (_, slot) => patternItem(shape, slot, 0, 1));

/** Reads of the file, each held until its gate is opened. */
class Gates {
  readonly held: { readonly at: number; readonly open: (error?: IoError) => void }[] = [];
  /** Which reads are held: by place in the file. */
  holds: (at: number) => boolean = () => false;

  readonly wrap = (file: DataFile): DataFile => ({
    readv: async (parts, at) => {
      if (this.holds(at)) {
        await new Promise<void>((resolve, reject) => {
          this.held.push({ at, open: (error) => (error === undefined ? resolve() : reject(error)) });
        });
      }
      await file.readv(parts, at);
    },
    writev: (parts, at) => file.writev(parts, at),
    allocate: (at, bytes) => file.allocate(at, bytes),
    sync: () => file.sync(),
    close: () => file.close(),
  });

  /** Fulfilled when so many reads are held. */
  async until(count: number): Promise<void> {
    await expect.poll(() => this.held.length, { timeout: 20_000 }).toBe(count);
  }
}

interface World extends AsyncDisposable {
  readonly gates: Gates;
  readonly file: string;
  readonly hbm: HbmStore;
  /** Loads block `slot` into the same slot of the device, under `generation`; its outcome and why. */
  load(slot: number, generation?: number): Promise<{ outcome: string; reason: string }>;
  /** The outcome of reading the device's slot back; `wrong` for other bytes than the block's. */
  inDevice(slot: number, generation?: number): Promise<string>;
}

interface WorldOptions {
  readonly hbm?: HbmStoreOptions;
  readonly live?: typeof device.live;
  readonly deadlineMs?: number;
  readonly wrapDisk?: (disk: TierStore) => TierStore;
}

async function open(options: WorldOptions = {}): Promise<World> {
  await using stack = new AsyncDisposableStack();
  const gates = new Gates();
  const dir = scratchDir();
  const hbm = stack.use(await HbmStore.open(options.live ?? device.live, shape, options.hbm ?? {}));
  const deadline = options.deadlineMs === undefined ? {} : { deadlineMs: options.deadlineMs };
  const disk = stack.use(
    await FileStore.open(dir, shape, { wrapFile: gates.wrap, pieceBytes: PIECE, ...deadline }),
  );
  const staging = stack.use(await StagingSlots.open(BLOCK, 2));
  const nvme = options.wrapDisk?.(disk) ?? disk;
  const engine = new TransferEngine({ hbm, nvme }, staging);
  expect((await disk.write(blocks)).map(({ outcome }) => outcomeNames[outcome])).toEqual(
    blocks.map(() => 'loaded'),
  );
  const waiting = new Map<number, (end: { outcome: string; reason: string }) => void>();
  let job = 1;
  let taking = false;
  const takeEnds = async (): Promise<void> => {
    taking = true;
    while (engine.inFlight > 0) {
      for (const { job: id, outcome, reason } of await engine.take()) {
        waiting.get(id)!({ outcome: nameOf(outcome), reason });
      }
    }
    taking = false;
  };
  const load: World['load'] = async (slot, generation = 1) => {
    const { key, digest } = blocks[slot];
    const id = job++;
    const ended = new Promise<{ outcome: string; reason: string }>((resolve) => waiting.set(id, resolve));
    engine.submit([
      {
        job: id as JobId,
        kind: 'move',
        source: { tier: Tier.NVME, slot, generation: 1 },
        target: { tier: Tier.HBM, slot, generation },
        sizeClass: 0,
        bytes: BLOCK,
        key,
        digest,
        priority: Priority.DEMAND_LOAD,
        deadlineUs: Number.POSITIVE_INFINITY,
      },
    ]);
    if (!taking) void takeEnds();
    return ended;
  };
  const inDevice: World['inDevice'] = async (slot, generation = 1) => {
    const target = { ...emptyItem(blocks[slot]), generation };
    const [end] = await hbm.read([target]);
    const outcome = nameOf(end.outcome);
    return outcome === 'loaded' && mismatchedWords({ ...target, generation: 1 }) > 0 ? 'wrong' : outcome;
  };
  const opened = stack.move();
  return {
    gates,
    file: `${dir}/tierkv.blocks`,
    hbm,
    load,
    inDevice,
    [Symbol.asyncDispose]: () => opened.disposeAsync(),
  };
}

const nameOf = (outcome: Outcome): string => outcomeNames[outcome];
const startOf = (slot: number): number => recordOffset(layout, slot, 0);
const inBlock = (slot: number) => (at: number) => at >= startOf(slot) && at < startOf(slot) + BLOCK;
const flip = (file: string, at: number): void =>
  editFile(file, at, 1, (bytes) => void (bytes[0] = bytes[0] ^ 16));

describe.each([true, false])('a long block from a file to a device that verifies: %s', (verifyWrites) => {
  const hbm = { verifyWrites, uploadPath: 'ring' } as const;

  it('is on its way to the device before all of it has been read, and arrives in whatever order pieces come', async () => {
    await using world = await open({ hbm });
    world.gates.holds = inBlock(0);
    const submit = vi.spyOn(device.live.device.queue, 'submit');
    const end = world.load(0);
    await world.gates.until(PIECES);
    const [first, ...rest] = world.gates.held.sort((a, b) => a.at - b.at);
    expect(submit).not.toHaveBeenCalled();
    first.open();
    await expect.poll(() => submit.mock.calls.length).toBeGreaterThan(0);
    for (const piece of rest.reverse()) {
      await new Promise((resolve) => setTimeout(resolve, 5));
      expect(await world.inDevice(1)).toBe('missing');
      piece.open();
    }
    expect(await end).toEqual({ outcome: 'loaded', reason: '' });
    expect(await world.inDevice(0)).toBe('loaded');
  });

  it('is refused when a piece cannot be read; its slot is empty, and no staging slot is lost', async () => {
    await using world = await open({ hbm });
    for (let generation = 1; generation <= 5; generation++) {
      world.gates.holds = (at) => inBlock(0)(at) && at > startOf(0) + (PIECES - 2) * PIECE;
      const end = world.load(0, generation);
      await world.gates.until(2);
      const [lastButOne, last] = world.gates.held.splice(0).sort((a, b) => a.at - b.at);
      lastButOne.open(generation % 2 === 0 ? new IoError('EIO', 'readv') : undefined);
      await new Promise((resolve) => setTimeout(resolve, 5));
      last.open(generation % 2 === 0 ? undefined : new IoError('EIO', 'readv'));
      expect(await end).toEqual({
        outcome: 'refused',
        reason: expect.stringMatching(/EIO on read of slot 0/),
      });
      expect(await world.inDevice(0, generation)).toBe('missing');
    }
    world.gates.holds = () => false;
    expect(await world.load(0, 6)).toMatchObject({ outcome: 'loaded' });
    expect(await world.inDevice(0, 6)).toBe('loaded');
  });

  it.each([
    ['its header', 20, /header/],
    ['its first piece', 4096 + 5, /digest/],
    ['its last piece', 4096 + BLOCK - 3, /digest/],
  ])('is corrupt when a bit of %s is wrong, and its slot is empty', async (_, at, why) => {
    await using world = await open({ hbm });
    flip(world.file, startOf(1) + at);
    const { outcome, reason } = await world.load(1);
    expect(outcome).toBe('corrupt');
    expect(reason).toMatch(why);
    expect(await world.inDevice(1)).toBe('missing');
    flip(world.file, startOf(1) + at);
    expect(await world.load(1, 2)).toMatchObject({ outcome: 'loaded' });
    expect(await world.inDevice(1, 2)).toBe('loaded');
  });

  it('that hangs in the disk holds up no other upload, be it of a ring with a single buffer', async () => {
    await using world = await open({ hbm: { ...hbm, stagingBytes: 256 * 1024, stagingBuffers: 1 } });
    world.gates.holds = (at) => inBlock(0)(at) && at > startOf(0);
    const hanging = world.load(0);
    await world.gates.until(PIECES - 1);
    const second = world.load(1);
    await expect.poll(() => world.inDevice(1), { timeout: 20_000 }).toBe('loaded');
    expect(await world.hbm.write([blocks[2]])).toEqual([loaded]);
    expect(await world.inDevice(2)).toBe('loaded');
    for (const { open: release } of world.gates.held) release();
    expect(await hanging).toMatchObject({ outcome: 'loaded' });
    expect(await second).toMatchObject({ outcome: 'loaded' });
    expect(await world.inDevice(0)).toBe('loaded');
  });

  it('whose read retires after its deadline has timed out, and its slot is empty', async () => {
    await using world = await open({ hbm, deadlineMs: 600 });
    world.gates.holds = (at) => inBlock(0)(at) && at > startOf(0) + (PIECES - 1) * PIECE;
    const end = world.load(0);
    await world.gates.until(1);
    await new Promise((resolve) => setTimeout(resolve, 700));
    world.gates.held[0].open();
    expect(await end).toMatchObject({ outcome: 'timedOut' });
    expect(await world.inDevice(0)).toBe('missing');
  });
});

it('a device that is lost in the middle of a block ends the write at once, the job with its read, and can be replaced', async () => {
  await using live = await openDevice({ adapter: 'software' });
  await using world = await open({ live });
  world.gates.holds = (at) => inBlock(0)(at) && at > startOf(0) + (PIECES - 2) * PIECE;
  let ended = false;
  const job = world.load(0).then((end) => {
    ended = true;
    return end;
  });
  await world.gates.until(2);
  live.device.destroy();
  await world.hbm.lost;
  await world.hbm[Symbol.asyncDispose](); // would wait for ever for a write that waits for the disk
  expect(ended).toBe(false);
  for (const { open: release } of world.gates.held) release();
  expect(await job).toEqual({ outcome: 'refused', reason: expect.stringMatching(/device lost/) });
});

it('faults of a store around the disk reach what is loaded: it does not stream, so the block goes as a whole', async () => {
  const plan = new FaultPlan({ seed: 5, rates: { flipped: 1 } });
  plan.pause();
  const told: boolean[] = [];
  await using world = await open({
    wrapDisk: (disk) => {
      const read = disk.read.bind(disk);
      disk.read = (items) => {
        told.push(...items.map(({ onArrived }) => onArrived !== undefined));
        return read(items);
      };
      return new FaultStore(disk, { plan, wait: () => Promise.resolve() });
    },
  });
  plan.resume();
  expect(await world.load(0)).toMatchObject({ outcome: 'corrupt' });
  plan.pause();
  expect(await world.load(0, 2)).toMatchObject({ outcome: 'loaded' });
  expect(told).toEqual([false, false]);
});
