import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import type { LiveDevice } from '../../../src/backends/webgpu/index.ts';
import { chooseStrategy } from '../../../src/backends/webgpu/strategy.ts';
import type { UploadPathName } from '../../../src/backends/webgpu/uploadPath.ts';
import { Tier } from '../../../src/runtime/tier.ts';
import { loaded } from '../../../src/runtime/transfer/slotLedger.ts';
import type { TierStore } from '../../../src/runtime/transfer/tierStore.ts';

const RING_MS = 20;

/** A device whose `writeBuffer` takes so long, before and after something was read while it was written to. */
async function chosenWhere(writeBufferMs: { fresh: number; worn: number }): Promise<UploadPathName> {
  let worn = false;
  let writing = 0;
  const open = async (
    _shape: unknown,
    { uploadPath }: { uploadPath: UploadPathName },
  ): Promise<TierStore> => ({
    tier: Tier.HBM,
    capacityBytes: 0,
    verifies: { onWrite: false, onRead: false },
    describe: () => ({}),
    async write(items) {
      writing += 1;
      const writeBuffer = worn ? writeBufferMs.worn : writeBufferMs.fresh;
      await sleep(uploadPath === 'ring' ? RING_MS : writeBuffer);
      writing -= 1;
      return items.map(() => loaded);
    },
    async read(items) {
      await sleep(1);
      if (writing > 0) worn = true;
      return items.map(() => loaded);
    },
    async [Symbol.asyncDispose]() {},
  });
  const live = { adapter: { name: 'worn by reads', software: true } } as unknown as LiveDevice;
  const wishes = { uploadPath: undefined, verification: 'none', profile: undefined } as const;
  return (await chooseStrategy(live, 65_536, wishes, open)).uploadPath;
}

describe('the way up', () => {
  it('is the ring where writeBuffer is faster only until something is read beside it', async () => {
    expect(await chosenWhere({ fresh: 0, worn: 3 * RING_MS })).toBe('ring');
  });

  it('is writeBuffer where that stays faster', async () => {
    expect(await chosenWhere({ fresh: 0, worn: 1 })).toBe('writeBuffer');
  });
});
