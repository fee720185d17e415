/**
 * Settings that the runtime hands to what it opens: how to wait for the device, and how much staging memory
 * there is.
 */

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { StagingSlots } from '../../../src/backends/engine/stagedBatch.ts';
import { BufferUsage, looksPutOff, MapMode } from '../../../src/backends/webgpu/device.ts';
import { ask, blocks, cacheBelow, layout, openRuntime } from '../liveRuntime.ts';

const before = globalThis.setImmediate;
afterEach(() => {
  expect(globalThis.setImmediate).toBe(before);
  vi.restoreAllMocks();
});

describe('waiting for the device', () => {
  it('is left to the binding where the configuration says so', async () => {
    const putOff = looksPutOff();
    await using kv = await openRuntime({ wait: 'spin' });
    expect((await ask(kv, 10)).right).toBe(true);
    expect(looksPutOff()).toBe(putOff);
  });

  it('sleeps on the device, on the next one after a loss too, and leaves setImmediate as it was for others', async () => {
    await using kv = await openRuntime({ device: undefined, ddrBytes: blocks(20) });
    await cacheBelow(kv, 10, 1);
    expect(await ask(kv, 10)).toEqual({ cachedTokens: 64, right: true });
    kv.device.destroy();
    while (kv.devicesLost < 1 || kv.describe().runtime.devicePresent !== true) {
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
    expect((await ask(kv, 10)).right).toBe(true);
    expect(globalThis.setImmediate).toBe(before);
  });
});

it.each([
  ['sleep', true],
  ['spin', false],
] as const)("a caller's own wait does as the runtime's do: %s", async (wait, sleeps) => {
  await using kv = await openRuntime({ wait });
  let nowMs = 0;
  vi.spyOn(performance, 'now').mockImplementation(() => (nowMs += 9)); // the 8 ms of looking are over at once
  const putOff = looksPutOff();
  const buffer = kv.device.createBuffer({ size: 16, usage: BufferUsage.MAP_READ | BufferUsage.COPY_DST });
  await kv.waitFor(() => buffer.mapAsync(MapMode.READ));
  expect(buffer.getMappedRange().byteLength).toBe(16);
  expect(looksPutOff() > putOff).toBe(sleeps);
  await expect(kv.waitFor(() => buffer.mapAsync(MapMode.READ))).rejects.toThrow();
  expect(await kv.waitFor(async () => 'what it gives')).toBe('what it gives');
  buffer.destroy();
});

it('staging memory between device and files is what the engine says keeps both busy', async () => {
  const dir = mkdtempSync(join(tmpdir(), 'tierkv-staging-'));
  const opened = vi.spyOn(StagingSlots, 'open');
  try {
    await using kv = await openRuntime({ device: undefined, nvme: { dir, bytes: blocks(40) } });
    expect(opened.mock.calls).toEqual([[layout.blockBytes, StagingSlots.countFor(layout.blockBytes)]]);
    await cacheBelow(kv, 10, 1);
    expect(await ask(kv, 10)).toEqual({ cachedTokens: 64, right: true });
  } finally {
    rmSync(dir, { recursive: true, force: true });
  }
});
