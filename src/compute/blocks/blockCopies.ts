/**
 * Copies blocks of a pool into other blocks of it, within a slab and between slabs, in a pass of the
 * caller's: what a fork or a rollback continues behind a full block, in the step that continues it.
 *
 *     const copies = await BlockCopies.open({ device, slabs, layout, pairsMax: 64 });
 *     copies.setPairs([{ from, to, tokens: 5 }]);      once a step
 *     copies.record(pass);                             one dispatch for all of them
 *
 * `setPairs` writes through the queue, so the encoder of a step must be submitted before the next `setPairs`.
 */

import type { KVLayout } from '../../runtime/geometry/index.ts';
import { optionNames, requireOptions } from '../../runtime/options.ts';
import { requireDevicePool } from '../format.ts';
import { copyText } from '../kernelText.ts';
import { PairedBlocks } from './pairedBlocks.ts';
import { PairKernel } from './pairKernel.ts';

export interface BlockCopiesConfig {
  readonly device: GPUDevice;
  /** The pool's buffers. */
  readonly slabs: readonly GPUBuffer[];
  /** Of any dtype: bits are copied. */
  readonly layout: KVLayout;
  /** Most pairs of a step. */
  readonly pairsMax: number;
}

export const blockCopiesConfigNames: readonly string[] = optionNames<BlockCopiesConfig>({
  device: true,
  slabs: true,
  layout: true,
  pairsMax: true,
});

export class BlockCopies extends PairedBlocks {
  /** @throws TKV_CONFIG naming the field; TKV_DEVICE when the device does not compile the kernel */
  static async open(config: BlockCopiesConfig): Promise<BlockCopies> {
    requireOptions(config, blockCopiesConfigNames, 'config', 'TKV_CONFIG');
    requireDevicePool(config);
    const { device, slabs, layout, pairsMax } = config;
    const { rowBytes, blockBytes, blockTokens } = layout;
    const unitBytes = ([16, 8, 4] as const).find((bytes) => rowBytes % bytes === 0) ?? 4;
    const rowUnits = rowBytes / unitBytes;
    const blockRows = blockBytes / rowBytes;
    const side = { slabs, blockBytes, unitBytes };
    const kernel = await PairKernel.open(device, {
      name: 'copyBlocks',
      code: copyText(unitBytes, slabs.length),
      constants: { blockTokens, fromRowUnits: rowUnits, blockRows },
      limits: { from: side, to: side, blockTokens, pairsMax },
      pairLanes: blockRows * rowUnits,
      pools: [{ slabs, type: 'storage' }],
    });
    return new BlockCopies(kernel);
  }
}
