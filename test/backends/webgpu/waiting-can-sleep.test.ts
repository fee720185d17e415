import { afterEach, describe, expect, it, vi } from 'vitest';
import { HbmStore, openDevice } from '../../../src/backends/webgpu/index.ts';
import { governWaits } from '../../../src/backends/webgpu/waitGovernor.ts';
import { poolShape } from '../../../src/runtime/pool/shape.ts';
import { emptyItem, mismatchedWords, patternItem } from '../../../src/testing/patternItems.ts';

const before = globalThis.setImmediate;
const MIB = 1024 * 1024;
const shape = poolShape(16, MIB, [MIB]);

afterEach(() => {
  expect(globalThis.setImmediate).toBe(before);
  vi.restoreAllMocks();
});

describe('waiting for a device', () => {
  it('leaves setImmediate alone unless asked', async () => {
    await using live = await openDevice({ adapter: 'software' });
    expect(live.lostReason).toBe('');
    expect(globalThis.setImmediate).toBe(before);
  });

  it('sleeps between looks when asked, moves the same bytes, and gives setImmediate back with the last device', async () => {
    const probe = governWaits();
    {
      await using first = await openDevice({ adapter: 'software', wait: 'sleep' });
      await using second = await openDevice({ adapter: 'software', wait: 'sleep' });
      expect(second.lostReason).toBe('');
      const sleptBefore = probe.sleeps;
      await using store = await HbmStore.open(first, shape, { verifyWrites: 'kernel', uploadPath: 'ring' });
      const items = Array.from({ length: 16 }, (_, slot) => patternItem(shape, slot, 0, 1));
      expect((await store.write(items)).every((end) => end.reason === '')).toBe(true);
      expect(probe.sleeps).toBeGreaterThan(sleptBefore);
      const target = emptyItem(items[5]!);
      await store.read([target]);
      expect(mismatchedWords(target)).toBe(0);
      expect(globalThis.setImmediate).not.toBe(before);
    }
    expect(globalThis.setImmediate).not.toBe(before);
    probe[Symbol.dispose]();
    probe[Symbol.dispose](); // a second time changes nothing
  });

  it('keeps the callbacks of everybody else prompt, in order, with their arguments, and cancellable', async () => {
    using _governed = governWaits();
    const seen: string[] = [];
    for (let i = 0; i < 200; i++) setImmediate((text: string) => seen.push(text), `${i}`);
    const cancelled = setImmediate(() => seen.push('cancelled'));
    clearImmediate(cancelled);
    await new Promise((resolve) => setImmediate(resolve));
    expect(seen).toEqual(Array.from({ length: 200 }, (_, i) => `${i}`));
  });

  it('keeps what another one put in its place meanwhile', () => {
    const probe = governWaits();
    const other = ((...args: Parameters<typeof setImmediate>) => before(...args)) as typeof setImmediate;
    globalThis.setImmediate = other;
    probe[Symbol.dispose]();
    expect(globalThis.setImmediate).toBe(other);
    globalThis.setImmediate = before;
  });
});
