/**
 * Converts blocks of one pool into blocks of another pool that has the same shape in another format: f32, f16
 * and int8 with a scale for each token and head, in every direction. What comes out has the very bytes that
 * writing the same numbers into the target's format gives.
 *
 *     const conversion = await BlockConversion.open({ device, from, to, pairsMax: 64 });
 *     conversion.setPairs([{ from, to }]);             once a step
 *     conversion.record(pass);                         one dispatch for all of them
 *
 * `setPairs` writes through the queue, so the encoder of a step must be submitted before the next `setPairs`.
 */

import { configError } from '../../runtime/errors.ts';
import type { KVLayout } from '../../runtime/geometry/index.ts';
import { optionNames, requireOptions } from '../../runtime/options.ts';
import { type KVFormat, kvFormat, requireDevicePool } from '../format.ts';
import { conversionText } from '../kernelText.ts';
import { PairedBlocks } from './pairedBlocks.ts';
import { PairKernel } from './pairKernel.ts';

/** A pool's buffers, and the layout of its blocks. */
export interface BlockPool {
  readonly slabs: readonly GPUBuffer[];
  readonly layout: KVLayout;
}

export const blockPoolNames: readonly string[] = optionNames<BlockPool>({ slabs: true, layout: true });

export interface BlockConversionConfig {
  readonly device: GPUDevice;
  readonly from: BlockPool;
  /** Its buffers are none of `from`. */
  readonly to: BlockPool;
  /** Most pairs of a step. */
  readonly pairsMax: number;
}

export const blockConversionConfigNames: readonly string[] = optionNames<BlockConversionConfig>({
  device: true,
  from: true,
  to: true,
  pairsMax: true,
});

export class BlockConversion extends PairedBlocks {
  /** @throws TKV_CONFIG naming the field; TKV_DEVICE when the device does not compile the kernel */
  static async open(config: BlockConversionConfig): Promise<BlockConversion> {
    requireOptions(config, blockConversionConfigNames, 'config', 'TKV_CONFIG');
    const { device, from, to, pairsMax } = config;
    for (const [field, pool] of [
      ['from', from],
      ['to', to],
    ] as const) {
      requireOptions(pool, blockPoolNames, field, 'TKV_CONFIG');
      requireDevicePool(
        { device, ...pool },
        { device: 'device', slabs: `${field}.slabs`, layout: `${field}.layout` },
      );
    }
    const source = kvFormat(from.layout, device.features);
    const target = kvFormat(to.layout, device.features);
    requireSameShape(source, target);
    if (to.slabs.some((slab) => from.slabs.includes(slab))) {
      throw configError('to.slabs', 'has a buffer of from.slabs', 'Convert into another pool.');
    }
    const { blockTokens, blockBytes, rowBytes } = from.layout;
    const blockRows = blockBytes / rowBytes;
    const side = ({ slabs, layout }: BlockPool, { unitBytes }: KVFormat) => {
      return { slabs, blockBytes: layout.blockBytes, unitBytes };
    };
    const kernel = await PairKernel.open(device, {
      name: 'convertBlocks',
      code: conversionText(source, from.slabs.length, target, to.slabs.length),
      constants: {
        blockTokens,
        blockRows,
        headDim4: source.headDim4,
        fromRowUnits: rowBytes / source.unitBytes,
        toRowUnits: to.layout.rowBytes / target.unitBytes,
      },
      limits: { from: side(from, source), to: side(to, target), blockTokens, pairsMax },
      pairLanes: blockRows * (target.scaled ? 1 : target.headDim4),
      pools: [
        { slabs: from.slabs, type: 'read-only-storage' },
        { slabs: to.slabs, type: 'storage' },
      ],
    });
    return new BlockConversion(kernel);
  }
}

function requireSameShape(from: KVFormat, to: KVFormat): void {
  for (const field of ['layers', 'kvHeads', 'blockTokens'] as const) {
    if (from.layout[field] === to.layout[field]) continue;
    const problem = `is ${to.layout[field]}, but ${from.layout[field]} in from.layout`;
    throw configError(`to.layout.${field}`, problem, 'Give layouts that differ in their dtype alone.');
  }
  if (from.headDim !== to.headDim) {
    const problem = `is of ${to.headDim} elements, but of ${from.headDim} in from.layout`;
    throw configError('to.layout.headDim', problem, 'Give layouts that differ in their dtype alone.');
  }
  if (from.layout.dtype === to.layout.dtype) {
    const problem = `is ${to.layout.dtype}, as in from.layout`;
    throw configError('to.layout.dtype', problem, 'There is nothing to convert: copy the bytes.');
  }
}
