/**
 * The row of DDR: host memory. Under a device it holds what the device has no room for. Without one it is the top tier:
 * its bytes are the blocks themselves, and what arrives is compared with its digest.
 */

import type { OpenedTier, TierRequest, TierRow } from '../tierRow.ts';

export interface DdrOptions {
  /**
   * Locked host memory for blocks: the ones that GPU memory has no room for, or, without `hbmBytes`, the blocks that
   * sequences read and write. Default 0: off.
   */
  readonly ddrBytes?: number | undefined;
}

export const ddrTier: TierRow<DdrOptions> = {
  name: 'ddr',
  title: 'DDR',
  optionNames: ['ddrBytes'] satisfies (keyof DdrOptions)[],
  fieldNames: { 'ddr.capacityBytes': 'ddrBytes' },
  canBeTop: true,
  isHostMemory: true,
  asked: {
    size: { option: 'ddr', about: 'host memory, in blocks or as 1GiB, 0 for none' },
    options: (ddrBytes) => ({ ddrBytes }),
  },
  check() {},
  wish: ({ ddrBytes = 0 }) => (ddrBytes === 0 ? undefined : { field: 'ddrBytes', bytes: ddrBytes }),
  open,
};

async function open({ shape, isTop, notice }: TierRequest<DdrOptions>): Promise<OpenedTier> {
  const { MemoryStore } = await import('./memoryStore.ts');
  const store = await MemoryStore.open(shape, { verifyWrites: isTop });
  const { locksMemory } = await import('./posix.ts');
  const { locked, notGranted } = store.describe();
  if (locksMemory && locked === false) {
    const limit = String(notGranted).includes('mlock') ? '; "ulimit -l" has the limit' : '';
    notice(`DDR: the memory is not locked and may be paged out (${notGranted}${limit})`);
  }
  return { store, [Symbol.asyncDispose]: () => store[Symbol.asyncDispose]() };
}
