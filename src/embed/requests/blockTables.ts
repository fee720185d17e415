/**
 * A sequence's blocks as kernels want them. Pools have several slabs, so an entry names the slab (an index
 * into `slabs`) and the offset in it: two words a block.
 */

import type { DevicePool } from '../../backends/webgpu/index.ts';
import {
  BlockTable,
  type KVManager,
  type ReadableBlock,
  type Sequence,
  TierKVError,
} from '../../runtime/index.ts';

export interface DeviceBlockTable {
  /** The pool's buffers; STORAGE | COPY_SRC | COPY_DST. Good until the device is lost. */
  readonly slabs: readonly GPUBuffer[];
  /** Slab and offset in bytes of each block, in order. */
  readonly entries: Uint32Array;
  readonly blocks: number;
}

/**
 * The first `blocks` blocks of the sequence: loaded, or its own, open or being sealed.
 * @throws TKV_STATE when one of them is none of these: a table with a gap would attend over wrong positions
 */
export function readableBlocks(manager: KVManager, table: Sequence, blocks: number): BlockTable {
  const found = new BlockTable();
  for (let i = 0; i < blocks; i++) {
    const block = manager.readableBlock(table, i);
    if (block === undefined) throw notInHbm(i);
    found.append(block);
  }
  return found;
}

/** Where blocks lie that are in HBM, in the order given. */
export function deviceTable(
  pool: DevicePool,
  blocks: readonly Pick<ReadableBlock, 'slot' | 'sizeClass'>[],
): DeviceBlockTable {
  const entries = new Uint32Array(blocks.length * 2);
  blocks.forEach(({ slot, sizeClass }, i) => {
    const { slab, offsetBytes } = pool.locate(slot, sizeClass);
    entries[2 * i] = slab;
    entries[2 * i + 1] = offsetBytes;
  });
  return { slabs: pool.slabs, entries, blocks: blocks.length };
}

export function notInHbm(index: number): TierKVError {
  return new TierKVError(
    'TKV_STATE',
    `block ${String(index)} is not in HBM. Await begin, append or step first; recover the sequence when it ` +
      `was interrupted.`,
    { field: 'index' },
  );
}
