import v8 from 'node:v8';
import vm from 'node:vm';
import { beforeEach, describe, expect, it, vi } from 'vitest';
import { openDevice } from '../../../src/backends/webgpu/adapter.ts';
import { LiveDevice } from '../../../src/backends/webgpu/device.ts';
import { HbmStore } from '../../../src/backends/webgpu/hbmStore.ts';
import { poolShape } from '../../../src/runtime/tables/slotPool.ts';
import { Outcome } from '../../../src/runtime/tier/tier.ts';
import type { StoreResult } from '../../../src/runtime/tier/tierStore.ts';
import { emptyItem, patternItem } from '../../../src/testing/index.ts';
import { testAdapter } from '../../adapter.ts';

const shape = poolShape(4, 1 << 20, [65_536]);
const items = Array.from({ length: 64 }, (_, slot) => patternItem(shape, slot, 0, 1));
const seeds = items.map((item) => ({ ...item, seedLo: item.slot, seedHi: 1 }));

let live: LiveDevice;
let store: HbmStore;
beforeEach(async () => {
  live = await openDevice({ adapter: testAdapter });
  return () => live[Symbol.asyncDispose]();
});

function expectEnds(results: readonly StoreResult[]): number {
  let refusals = 0;
  for (const { outcome, reason } of results) {
    expect([Outcome.LOADED, Outcome.REFUSED]).toContain(outcome);
    if (outcome === Outcome.REFUSED) {
      expect(reason).toMatch(/device (lost|was)|disposed|failed/);
      refusals++;
    }
  }
  return refusals;
}

describe.each(['kernel', 'readback'] as const)('a lost device that verifies by %s', (verifyWrites) => {
  beforeEach(async () => {
    store = await HbmStore.open(live, shape, { stagingBytes: 262_144, stagingBuffers: 2, verifyWrites });
  });

  it('ends an upload under way as refused, and everything that comes later', async () => {
    const upload = store.write(items);
    await new Promise((resolve) => setImmediate(resolve));
    live.device.destroy();
    expect(expectEnds(await upload)).toBeGreaterThan(0);
    expect(await store.lost).toMatch(/device lost/);
    for (const later of [
      store.write(items),
      store.read(items),
      store.seal(items),
      store.fillPattern(seeds),
      store.clear(items),
    ]) {
      expect(expectEnds(await later)).toBe(items.length);
    }
  });

  it('ends calls of every kind that are in flight together', async () => {
    expectEnds(await store.write(items));
    const copy = { sizeClass: 0, fromSlot: 0, fromGeneration: 1, toSlot: 63, toGeneration: 2 };
    const calls = [
      store.read(items.slice(0, 16).map((item) => emptyItem(item))),
      store.countMismatches(seeds.slice(0, 16)),
      store.fillPattern(seeds.slice(16, 24)),
      store.seal(items.slice(16, 32)),
      store.clear(items.slice(32, 40)),
      store.write(items.slice(40, 62)),
      store.copy([copy]),
    ];
    setImmediate(() => live.device.destroy());
    for (const call of calls) expectEnds(await call);
  });

  it('ends calls that were made in the very turn of the loss', async () => {
    const before = store.write(items.slice(0, 32));
    live.device.destroy();
    const after = store.write(items.slice(32));
    expect(expectEnds(await before)).toBe(32);
    expect(expectEnds(await after)).toBe(32);
  });

  for (const kind of ['write', 'read', 'seal'] as const) {
    it(`in the moment in which a ${kind} has arrived but is not looked at yet ends it`, async () => {
      expectEnds(await store.write(items));
      const whenMapped = live.whenMapped.bind(live);
      vi.spyOn(live, 'whenMapped').mockImplementation(async (...mapping) => {
        const mapped = await whenMapped(...mapping);
        live.device.destroy();
        return mapped;
      });
      expect(expectEnds(await store[kind](items))).toBeGreaterThan(0);
    });
  }

  it('lets the pool be disposed of, and no new one be opened', async () => {
    const upload = store.write(items);
    live.device.destroy();
    await store[Symbol.asyncDispose]();
    expectEnds(await upload);
    await live.lost;
    await expect(HbmStore.open(live, shape)).rejects.toMatchObject({
      code: 'TKV_DEVICE',
      message: expect.stringMatching(/device lost.*Open another/),
    });
  });

  it('calls each listener once, and none that stopped listening', async () => {
    const heard: string[] = [];
    live.onLost(() => heard.push('first'));
    const stop = live.onLost(() => heard.push('second'));
    stop();
    await live[Symbol.asyncDispose]();
    await live[Symbol.asyncDispose]();
    expect(heard).toEqual(['first']);
    expect(await live.lost).toBe('the device was disposed of');
    expect(live.lostReason).toBe('the device was disposed of');
  });

  it('does not take another device along', async () => {
    await using other = await openDevice({ adapter: testAdapter });
    await using survivor = await HbmStore.open(other, shape);
    live.device.destroy();
    await live.lost;
    expect(expectEnds(await survivor.write(items))).toBe(0);
  });
});

describe('devices that are gone', () => {
  it('are garbage, and their threads and memory with them', async () => {
    v8.setFlagsFromString('--expose-gc');
    const collectGarbage = vm.runInNewContext('gc') as () => void;
    const gone: WeakRef<GPUDevice>[] = [];
    const openAndLose = async (): Promise<void> => {
      await using one = await openDevice({ adapter: testAdapter });
      await using pool = await HbmStore.open(one, shape);
      expectEnds(await pool.write(items.slice(0, 2)));
      gone.push(new WeakRef(one.device));
    };
    for (let i = 0; i < 4; i++) await openAndLose();
    const alive = (): number => gone.filter((one) => one.deref() !== undefined).length;
    // a promise that just ended may hold the last one for a while
    for (let turn = 0; turn < 1000 && alive() > 1; turn++) {
      await new Promise((resolve) => setTimeout(resolve, 20));
      collectGarbage();
    }
    expect(alive()).toBeLessThanOrEqual(1);
  });
});

describe('opening a pool', () => {
  it('names the field and the remedy when a page is larger than a buffer may be', async () => {
    const { maxBufferSize } = live.device.limits;
    await expect(HbmStore.open(live, poolShape(1, maxBufferSize * 2, [4096]))).rejects.toMatchObject({
      code: 'TKV_CONFIG',
      field: 'pageBytes',
      message: expect.stringContaining('Lower pageBytes'),
    });
  });

  it('names the size that is not a multiple of a word', async () => {
    await expect(HbmStore.open(live, poolShape(1, 4096, [4096, 1002]))).rejects.toMatchObject({
      code: 'TKV_CONFIG',
      field: 'slotBytes[1]',
      message: expect.stringContaining('1004'),
    });
  });

  it('names the staging buffers when there is memory for the slabs and none for them', async () => {
    const scope = vi
      .spyOn(live, 'popOwnScope')
      .mockResolvedValueOnce(null)
      .mockResolvedValueOnce(null)
      .mockResolvedValueOnce({ message: 'allocation failed' });
    await expect(HbmStore.open(live, shape)).rejects.toMatchObject({
      code: 'TKV_DEVICE',
      field: 'stagingBytes',
      message: expect.stringMatching(/8 staging buffers .*allocation failed.*Lower stagingBytes/),
    });
    scope.mockRestore();
  });

  it('says how much was asked for when the device has not that much memory', async () => {
    const outOfMemory = Object.create(live) as LiveDevice;
    const scopes = [null, { message: 'allocation failed' }];
    Object.defineProperty(outOfMemory, 'lostReason', { value: '' });
    Object.defineProperty(outOfMemory, 'device', {
      value: {
        limits: live.device.limits,
        createBuffer: (descriptor: GPUBufferDescriptor) => live.device.createBuffer(descriptor),
        pushErrorScope: () => {},
      },
    });
    Object.defineProperty(outOfMemory, 'popOwnScope', { value: async () => scopes.pop() ?? null });
    await expect(HbmStore.open(outOfMemory, shape)).rejects.toMatchObject({
      code: 'TKV_DEVICE',
      field: 'hbm.capacityBytes',
      message: expect.stringMatching(/4194304 bytes.*allocation failed.*Lower hbm\.capacityBytes/),
    });
  });
});

/** What `LiveDevice` asks of a device, without one. */
class ScopedDevice {
  readonly lost: Promise<GPUDeviceLostInfo> = new Promise(() => {});
  caught: string | null = null;

  addEventListener(): void {}

  removeEventListener(): void {}

  async popErrorScope(): Promise<GPUError | null> {
    return this.caught === null ? null : { message: this.caught };
  }
}

describe('a device that several runtimes share', () => {
  const adapter = { name: 'shared', vendor: 'test', software: true, source: 'embedder' } as const;
  const holds = (device: ScopedDevice): LiveDevice =>
    new LiveDevice(device as unknown as GPUDevice, adapter, undefined);

  it.each([
    ['in the order in which they came', [0, 1]],
    ['in the other order', [1, 0]],
  ])('has its own popErrorScope again when they gave it back %s', async (_, order) => {
    const device = new ScopedDevice();
    const own = device.popErrorScope;
    const runtimes = [holds(device), holds(device)];
    device.caught = 'caught by a scope of the user';
    const [first, last] = order;
    await device.popErrorScope();
    expect(runtimes.map(({ deviceErrors }) => deviceErrors.count)).toEqual([1, 1]);
    runtimes[first].release();
    await device.popErrorScope();
    expect(runtimes[first].deviceErrors.count).toBe(1);
    expect(runtimes[last].deviceErrors).toEqual({ count: 2, last: device.caught });
    runtimes[last].release();
    await device.popErrorScope();
    expect(runtimes.map(({ deviceErrors }) => deviceErrors.count).toSorted()).toEqual([1, 2]);
    expect(device.popErrorScope === own || !Object.hasOwn(device, 'popErrorScope')).toBe(true);
  });

  it('counts no error of what a runtime does itself', async () => {
    const device = new ScopedDevice();
    const [one, other] = [holds(device), holds(device)];
    device.caught = 'of a pool that finds no memory';
    expect(await one.popOwnScope()).toMatchObject({ message: device.caught });
    expect([one, other].map(({ deviceErrors }) => deviceErrors.count)).toEqual([0, 0]);
  });
});
