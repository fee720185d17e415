/** Settings that the runtime hands to what it opens: how to wait for the device, how to upload, how much staging
 * memory there is, and how many threads digest. */

import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { StagingSlots } from '../../src/backends/engine/index.ts';
import { looksPutOff } from '../../src/backends/webgpu/waitGovernor.ts';
import { ask, blocks, cacheBelow, layout, openRuntime } from './liveRuntime.ts';

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

  it('sleeps on the device, on the next one after a loss too, and shows nobody another setImmediate', async () => {
    await using kv = await openRuntime({ ddrBytes: blocks(20) });
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

it('uploads go as the profile of this adapter says, and are measured where it is about another', async () => {
  const dir = mkdtempSync(join(tmpdir(), 'tierkv-profile-'));
  const linkProfile = join(dir, 'profile.json');
  const write = (adapter: string): void =>
    writeFileSync(
      linkProfile,
      JSON.stringify({
        schema: 'tierkv.links/1',
        device: adapter,
        uploads: { verification: 'kernel', sizes: [{ bytes: 1, uploadPath: 'writeBuffer' }] },
      }),
    );
  try {
    write('another adapter');
    const notices: string[] = [];
    await using kv = await openRuntime({ linkProfile, notice: (line) => notices.push(line) });
    const { adapter, strategy } = kv.describe().hbm;
    expect(strategy).toBe('measured');
    expect(notices.join('\n')).toContain('is about another adapter');
    write(String(adapter));
    await using profiled = await openRuntime({ linkProfile });
    const found = { uploadPath: 'writeBuffer', verification: 'kernel', strategy: 'profile' };
    expect(profiled.describe().hbm).toMatchObject(found);
    expect((await ask(profiled, 10)).right).toBe(true);
    await expect(openRuntime({ linkProfile: dir })).rejects.toMatchObject({ code: 'TKV_IO', path: dir });
  } finally {
    rmSync(dir, { recursive: true });
  }
});

it('staging memory between device and files is what the engine says keeps both busy', async () => {
  const dir = mkdtempSync(join(tmpdir(), 'tierkv-staging-'));
  const opened = vi.spyOn(StagingSlots, 'open');
  try {
    await using kv = await openRuntime({ nvme: { dir, bytes: blocks(40) } });
    expect(opened.mock.calls).toEqual([[layout.blockBytes, StagingSlots.countFor(layout.blockBytes)]]);
    await cacheBelow(kv, 10, 1);
    expect(await ask(kv, 10)).toEqual({ cachedTokens: 64, right: true });
  } finally {
    rmSync(dir, { recursive: true, force: true });
  }
});

it('as many threads digest what is read from files as the configuration says', async () => {
  const dir = mkdtempSync(join(tmpdir(), 'tierkv-threads-'));
  try {
    await using kv = await openRuntime({ nvme: { dir, bytes: blocks(40), digestThreads: 3 } });
    expect(kv.describe().nvme).toMatchObject({ digestThreads: 0, digestThreadsMax: 3 });
    const wrong = openRuntime({ nvme: { dir, bytes: blocks(40), digestThreads: -1 } });
    await expect(wrong).rejects.toMatchObject({ code: 'TKV_CONFIG', field: 'digestThreads' });
  } finally {
    rmSync(dir, { recursive: true, force: true });
  }
});
