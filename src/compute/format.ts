/**
 * How K and V are stored in a block, and which WGSL reads and writes it. Kernels work in units of 4 elements
 * and compute in 32-bit floats whatever the format.
 *
 *     f32    4 floats a unit
 *     f16    4 halves a unit; a device with `shader-f16` reads them as such, another one unpacks them
 *     i8     4 integers a unit; behind the D integers of each row lies its scale, a 32-bit float, so that
 *            the scale of a token and head moves with its row. The layout's headDim is D + 4 (`int8Layout`)
 */

import { configError } from '../runtime/errors.ts';
import { type KVLayout, type KVLayoutConfig, kvLayout, requireKVLayout } from '../runtime/geometry/index.ts';
import { requireArray, requireObject } from '../runtime/options.ts';

/** Bytes of a row's scale in the format i8. */
const SCALE_BYTES = 4;

export interface KVFormat {
  readonly layout: KVLayout;
  /** Elements of one head's K, without a scale. */
  readonly headDim: number;
  /** Vectors of 4 elements that they are. */
  readonly headDim4: number;
  readonly unitBytes: number;
  /** Whether a row ends with its scale. */
  readonly scaled: boolean;
  /** Files of `shaders/` that have the type of a unit, and WGSL that must stand before everything. */
  readonly files: readonly string[];
  readonly enable: string;
}

/** What every kernel over blocks is opened with. @throws TKV_CONFIG naming the part that is missing */
export function requireDevicePool(
  { device, slabs, layout }: DevicePoolParts,
  fields: Readonly<Record<keyof DevicePoolParts, string>> = {
    device: 'device',
    slabs: 'slabs',
    layout: 'layout',
  },
): void {
  requireObject(device, fields.device, 'TKV_CONFIG');
  requireObject(device.limits, `${fields.device}.limits`, 'TKV_CONFIG');
  requireArray(slabs, fields.slabs, "Pass the pool's buffers.", 'TKV_CONFIG');
  requireKVLayout(layout, fields.layout);
}

interface DevicePoolParts {
  readonly device: GPUDevice;
  readonly slabs: readonly GPUBuffer[];
  readonly layout: KVLayout;
}

/**
 * The layout of blocks in which K and V are 8-bit integers with one scale for each token and head.
 * @param headDim elements of a head, a multiple of 4
 * @throws TKV_CONFIG as `kvLayout`
 */
export function int8Layout(config: Omit<KVLayoutConfig, 'dtype'>): KVLayout {
  requireObject(config, 'config', 'TKV_CONFIG');
  return kvLayout({ ...config, headDim: config.headDim + SCALE_BYTES, dtype: 'i8' });
}

/** @throws TKV_CONFIG when no kernel reads blocks of this layout */
export function kvFormat(layout: KVLayout, features: GPUSupportedFeatures): KVFormat {
  const scaled = layout.dtype === 'i8';
  const headDim = layout.headDim - (scaled ? SCALE_BYTES : 0);
  if (headDim < 4 || headDim % 4 !== 0) {
    const of = scaled ? ' with the 4 bytes of its scale' : '';
    const remedy = 'Kernels read vectors of 4 elements: pad heads to a multiple of 4.';
    throw configError('layout.headDim', `is ${layout.headDim}${of}`, remedy);
  }
  const unitBytes = 4 * layout.bytesPerElement;
  const common = { layout, headDim, headDim4: headDim / 4, unitBytes, scaled, enable: '' };
  switch (layout.dtype) {
    case 'f32':
      return { ...common, files: ['kvF32'] };
    case 'f16':
      return features.has('shader-f16')
        ? { ...common, files: ['halfBits', 'kvF16'], enable: 'enable f16;\n' }
        : { ...common, files: ['halfBits', 'kvF16Packed'] };
    case 'i8':
      return { ...common, files: ['kvInt8'] };
    default:
      throw configError(
        'layout.dtype',
        `is ${layout.dtype}, which no attention kernel reads`,
        'Use f32, f16 or int8Layout.',
      );
  }
}

/** What kernels over paged blocks are told of them, in units of the format. */
export function blockConstants({ layout, headDim4, unitBytes }: KVFormat): Record<string, number> {
  return {
    blockTokens: layout.blockTokens,
    rowUnits: layout.rowBytes / unitBytes,
    kvUnits: layout.kvStrideBytes / unitBytes,
    headUnits: layout.headStrideBytes / unitBytes,
    unitBytes,
    headDim4,
  };
}
