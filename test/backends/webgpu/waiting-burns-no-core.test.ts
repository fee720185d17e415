import { afterEach, describe, expect, it, vi } from 'vitest';
import { openDevice } from '../../../src/backends/webgpu/adapter.ts';
import { BufferUsage, governed, looksPutOff } from '../../../src/backends/webgpu/device.ts';
import { HbmStore } from '../../../src/backends/webgpu/hbmStore.ts';
import { poolShape } from '../../../src/runtime/tables/slotPool.ts';
import { emptyItem, mismatchedWords, patternItem } from '../../../src/testing/patternItems.ts';
import { testAdapter } from '../../adapter.ts';

const before = globalThis.setImmediate;
const MIB = 1024 * 1024;
const shape = poolShape(16, MIB, [MIB]);

afterEach(() => {
  vi.restoreAllMocks();
  expect(globalThis.setImmediate).toBe(before);
});

/** From now on each look at the clock finds it `stepMs` later, whatever the machine does. */
function clockOfSteps(stepMs: number): void {
  let nowMs = 0;
  vi.spyOn(performance, 'now').mockImplementation(() => (nowMs += stepMs));
}

async function moveAll(wait: 'sleep' | 'spin'): Promise<number> {
  await using live = await openDevice({ adapter: testAdapter, wait });
  const putOffBefore = looksPutOff();
  await using store = await HbmStore.open(live, shape);
  const items = Array.from({ length: 16 }, (_, slot) => patternItem(shape, slot, 0, 1));
  const write = store.write(items);
  expect(globalThis.setImmediate).toBe(before);
  expect((await write).every((end) => end.reason === '')).toBe(true);
  expect(globalThis.setImmediate).toBe(before);
  const target = emptyItem(items[5]);
  await store.read([target]);
  expect(mismatchedWords(target)).toBe(0);
  return looksPutOff() - putOffBefore;
}

describe('waiting for a device', () => {
  it('sleeps between looks once 8 ms are over, moves the same bytes, and never shows other code a replaced setImmediate', async () => {
    clockOfSteps(9);
    expect(await moveAll('sleep')).toBeGreaterThan(0);
  });

  it('looks in every turn during the first 8 ms', async () => {
    clockOfSteps(0);
    expect(await moveAll('sleep')).toBe(0);
  });

  it('looks in every turn if `wait` is spin', async () => {
    clockOfSteps(9);
    expect(await moveAll('spin')).toBe(0);
  });

  it('begins the 8 ms anew with each wait', async () => {
    let nowMs = 100;
    vi.spyOn(performance, 'now').mockImplementation(() => nowMs);
    const putOff = looksPutOff();
    // the resolve of a promise is as nameless and native as the binding's own callback
    const look = (afterMs: number): Promise<void> =>
      new Promise((resolve) => {
        governed(() => {
          nowMs += afterMs;
          setImmediate(resolve);
        });
      });
    await look(7);
    await look(7);
    expect(looksPutOff()).toBe(putOff);
    await look(8);
    expect(looksPutOff()).toBe(putOff + 1);
    await look(7);
    expect(looksPutOff()).toBe(putOff + 1);
  });

  it('goes on when nothing else wakes the event loop, and when something wakes it all the time', async () => {
    await using live = await openDevice({ adapter: testAdapter });
    for (const busy of [false, true]) {
      let done = false;
      const turn = (): void => void (done || setImmediate(turn));
      if (busy) turn();
      for (let i = 0; i < 200; i++) {
        const source = live.device.createBuffer({ size: MIB, usage: BufferUsage.COPY_SRC });
        const target = live.device.createBuffer({ size: MIB, usage: BufferUsage.COPY_DST });
        const encoder = live.device.createCommandEncoder();
        for (let copy = 0; copy < (i % 40 === 0 ? 400 : 1); copy++) {
          encoder.copyBufferToBuffer(source, 0, target, 0, MIB);
        }
        live.device.queue.submit([encoder.finish()]);
        expect(await live.whenDone()).toBe(true);
        source.destroy();
        target.destroy();
      }
      done = true;
    }
  });

  it('ends when the device is lost between two looks', async () => {
    const live = await openDevice({ adapter: testAdapter });
    const buffer = live.device.createBuffer({
      size: 64 * MIB,
      usage: BufferUsage.COPY_SRC | BufferUsage.COPY_DST,
    });
    const other = live.device.createBuffer({ size: 64 * MIB, usage: BufferUsage.COPY_DST });
    const encoder = live.device.createCommandEncoder();
    for (let i = 0; i < 8; i++) encoder.copyBufferToBuffer(buffer, 0, other, 0, 64 * MIB);
    live.device.queue.submit([encoder.finish()]);
    const done = live.whenDone();
    live.device.destroy();
    expect(await done).toBe(false);
    await live[Symbol.asyncDispose]();
  });

  it('keeps all other callbacks prompt, in order, with their arguments, and cancellable', async () => {
    const seen: string[] = [];
    governed(() => {
      for (let i = 0; i < 200; i++) setImmediate((text: string) => seen.push(text), `${i}`);
      clearImmediate(setImmediate(() => seen.push('cancelled')));
    });
    await new Promise((resolve) => setImmediate(resolve));
    expect(seen).toEqual(Array.from({ length: 200 }, (_, i) => `${i}`));
  });

  it('still runs callbacks of code that kept the replaced setImmediate', async () => {
    const kept = governed(() => globalThis.setImmediate);
    expect(kept).not.toBe(before);
    expect(await new Promise((resolve) => kept(resolve, 'called'))).toBe('called');
  });

  it('gives setImmediate back when a call fails, and when one is made inside another', () => {
    expect(() =>
      governed(() => {
        throw new Error('no');
      }),
    ).toThrow('no');
    expect(globalThis.setImmediate).toBe(before);
    governed(() => {
      const inside = globalThis.setImmediate;
      expect(inside).not.toBe(before);
      governed(() => expect(globalThis.setImmediate).toBe(inside));
      expect(globalThis.setImmediate).toBe(inside);
    });
  });
});
