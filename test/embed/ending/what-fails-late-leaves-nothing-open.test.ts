/** An opening that fails after its stores are open gives everything back: the next one finds directory and device free. */

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setImmediate } from 'node:timers/promises';
import { expect, it, onTestFinished, vi } from 'vitest';
import { ManagerInspect } from '../../../src/runtime/manager/inspect.ts';
import { TieredKVStorage } from '../../../src/views/tieredKVStorage.ts';
import { testAdapter } from '../../adapter.ts';
import { sharedDevice } from '../../sharedDevice.ts';
import { blocks, layout, openRuntime } from '../liveRuntime.ts';

function directory(): string {
  const dir = mkdtempSync(join(tmpdir(), 'tierkv-late-'));
  onTestFinished(() => rmSync(dir, { recursive: true, force: true }));
  return dir;
}

/** What asks a manager for its usage while it is opened does so when all stores are open. */
async function failedLate(open: () => Promise<AsyncDisposable>): Promise<void> {
  const usage = vi.spyOn(ManagerInspect.prototype, 'usage').mockImplementation(() => {
    throw new Error('as tables that do not fit together');
  });
  await expect(open()).rejects.toThrow('as tables that do not fit together');
  expect(usage).toHaveBeenCalled();
  usage.mockRestore();
}

it('a runtime on files and on a device of its embedder', async () => {
  const dir = directory();
  let asked = 0;
  const device = (): Promise<GPUDevice> => {
    asked++;
    return sharedDevice();
  };
  const open = () => openRuntime({ device, nvme: { dir, bytes: blocks(8) }, log: join(dir, 'log') });
  await failedLate(open);
  for (let turn = 0; turn < 10; turn++) await setImmediate();
  expect(asked, 'another device').toBe(1);
  await (await open()).close();
});

it('a storage of tiers on files', async () => {
  const path = directory();
  const open = () =>
    TieredKVStorage.open({
      adapter: testAdapter,
      pool: { layout, blockSize: layout.blockTokens, model: 'test@1', secretKey: new Uint8Array(32).fill(7) },
      tiers: [
        { tier: 'hbm', capacityBytes: blocks(8) },
        { tier: 'nvme', capacityBytes: blocks(8), path },
      ],
    });
  await failedLate(open);
  await (await open()).close();
});
