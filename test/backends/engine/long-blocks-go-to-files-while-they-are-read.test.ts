import { afterEach, expect, it, vi } from 'vitest';
import { StagingSlots, TransferEngine } from '../../../src/backends/engine/index.ts';
import { FileStore } from '../../../src/backends/file/index.ts';
import { HbmStore, openDevice } from '../../../src/backends/webgpu/index.ts';
import { ReadbackRing } from '../../../src/backends/webgpu/readbackRing.ts';
import { type JobId, outcomeNames, Priority, poolShape, Tier } from '../../../src/runtime/index.ts';
import { emptyItem, mismatchedWords, patternItem } from '../../../src/testing/index.ts';
import { recordedWrites } from '../file/recordedWrites.ts';
import { scratchDir } from '../file/scratch.ts';

afterEach(() => vi.restoreAllMocks());

const BLOCK = 4 * 1024 * 1024;
const PIECE = 1024 * 1024;
const shape = poolShape(3, BLOCK, [BLOCK]);
const blocks = [0, 1, 2].map((slot) => patternItem(shape, slot, 0, 1));
const device = { verifyWrites: false, stagingBytes: PIECE, stagingBuffers: 4 } as const;

/** Holds what the device sends down from the piece `from` on until it is opened. */
function gate(from: number): { open(): void } {
  const land = ReadbackRing.prototype.land;
  let open = (): void => {};
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  let pieces = 0;
  vi.spyOn(ReadbackRing.prototype, 'land').mockImplementation(async function (
    this: ReadbackRing,
    ...args: Parameters<ReadbackRing['land']>
  ) {
    if (pieces++ >= from) await opened;
    return land.apply(this, args);
  });
  return { open: () => open() };
}

interface World extends AsyncDisposable {
  readonly hbm: HbmStore;
  readonly disk: FileStore;
  readonly written: number[];
  readonly live: Awaited<ReturnType<typeof openDevice>>;
  /** Writes block `slot` of the device to the same slot of the file; its outcome and why. */
  save(slot: number, generation?: number): Promise<{ outcome: string; reason: string }>;
  inFile(slot: number, generation?: number): Promise<string>;
}

async function open(): Promise<World> {
  await using stack = new AsyncDisposableStack();
  const live = stack.use(await openDevice({ adapter: 'software' }));
  const hbm = stack.use(await HbmStore.open(live, shape, device));
  expect((await hbm.write(blocks)).map(({ reason }) => reason)).toEqual(['', '', '']);
  const written: number[] = [];
  const wrapFile = recordedWrites(written);
  const disk = stack.use(await FileStore.open(scratchDir(), shape, { wrapFile, pieceBytes: PIECE }));
  const staging = stack.use(await StagingSlots.open(BLOCK, 2));
  const engine = new TransferEngine({ hbm, nvme: disk }, staging);
  let job = 1;
  const opened = stack.move();
  return {
    hbm,
    disk,
    written,
    live,
    async save(slot, generation = 1) {
      const { key, digest } = blocks[slot];
      engine.submit([
        {
          job: job++ as JobId,
          kind: 'move',
          source: { tier: Tier.HBM, slot, generation: 1 },
          target: { tier: Tier.NVME, slot, generation },
          sizeClass: 0,
          bytes: BLOCK,
          key,
          digest,
          priority: Priority.WRITE_THROUGH,
          deadlineUs: Number.POSITIVE_INFINITY,
        },
      ]);
      const [end] = await engine.take();
      return { outcome: outcomeNames[end.outcome], reason: end.reason };
    },
    async inFile(slot, generation = 1) {
      const target = { ...emptyItem(blocks[slot]), generation };
      const [end] = await disk.read([target]);
      const outcome = outcomeNames[end.outcome];
      return outcome === 'loaded' && mismatchedWords({ ...target, generation: 1 }) > 0 ? 'wrong' : outcome;
    },
    [Symbol.asyncDispose]: () => opened.disposeAsync(),
  };
}

it('a long block is in the file in part before the device has sent all of it', async () => {
  await using world = await open();
  world.written.length = 0;
  const rest = gate(3);
  const end = world.save(0);
  await expect.poll(() => world.written.length, { timeout: 20_000 }).toBeGreaterThanOrEqual(2);
  expect(world.written.length).toBeLessThan(BLOCK / PIECE);
  rest.open();
  expect(await end).toEqual({ outcome: 'loaded', reason: '' });
  expect(await world.inFile(0)).toBe('loaded');
});

it('one of which the device sends only a part, since it is lost, is not in the file, and the file goes on', async () => {
  await using world = await open();
  const rest = gate(2);
  const end = world.save(1);
  await expect.poll(() => world.written.length, { timeout: 20_000 }).toBeGreaterThanOrEqual(1);
  world.live.device.destroy();
  await world.hbm.lost;
  rest.open();
  expect(await end).toEqual({ outcome: 'refused', reason: expect.stringMatching(/device lost/) });
  expect(await world.inFile(1)).toBe('missing');
  expect(world.disk.describe()).toMatchObject({ ioErrors: 0 });
  const again = { ...blocks[1], generation: 2 };
  expect((await world.disk.write([again])).map(({ reason }) => reason)).toEqual(['']);
  expect(await world.inFile(1, 2)).toBe('loaded');
});
