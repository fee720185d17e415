/** A TieredKVStorage on the software device, and bytes that only one cell of one sequence can have. */

import { nvmeTier } from '../../../src/backends/file/fileTier.ts';
import { rowOffsetBytes } from '../../../src/runtime/geometry/box.ts';
import { type KVBox, type KVLayout, kvLayout } from '../../../src/runtime/index.ts';
import { patternWord } from '../../../src/runtime/pattern.ts';
import type { KVBlockDescriptor } from '../../../src/views/index.ts';
import type { TieredStorageConfig } from '../../../src/views/tieredConfig.ts';
import { TieredKVStorage } from '../../../src/views/tieredKVStorage.ts';
import { testAdapter } from '../../adapter.ts';

export const blockSize = 4;
export const layout: KVLayout = kvLayout({
  layers: 4,
  kvHeads: 2,
  headDim: 8,
  dtype: 'f16',
  blockTokens: blockSize,
});
export const allLayers: readonly number[] = [0, 1, 2, 3];
export const blocks = (count: number): number => count * layout.blockBytes;
/** Bytes of files for this number of blocks. */
export const files = (count: number): number =>
  nvmeTier.bytesOf?.(count, layout.blockBytes, [layout.blockBytes]) ?? 0;

export function openStorage(config: Partial<TieredStorageConfig> = {}): Promise<TieredKVStorage> {
  return TieredKVStorage.open({
    adapter: testAdapter,
    migration: false,
    pool: {
      layout,
      blockSize,
      model: 'test@1',
      secretKey: new Uint8Array(32).fill(7),
      ...(config.pool ?? {}),
    },
    tiers: [
      { tier: 'hbm', capacityBytes: blocks(32) },
      { tier: 'ddr', capacityBytes: blocks(32) },
    ],
    ...without(config, 'pool'),
  });
}

function without(
  config: Partial<TieredStorageConfig>,
  name: 'pool',
): Omit<Partial<TieredStorageConfig>, 'pool'> {
  const { [name]: _, ...rest } = config;
  return rest;
}

/** Packed bytes of a box of the sequence: each row differs from all others. */
export function bytesOf(box: KVBox, seed: number): Uint8Array {
  const { layerStart, layerEnd, headStart, headEnd, tokenStart, tokenEnd } = box;
  const layers = Array.from({ length: layerEnd - layerStart }, (_, i) => layerStart + i);
  const heads = Array.from({ length: headEnd - headStart }, (_, i) => headStart + i);
  return packed(layers, heads, [tokenStart, tokenEnd], seed);
}

/** The same for a block, whose layers and heads may have gaps. */
export function dataOf({ layerIds, headIds, tokenRange }: KVBlockDescriptor, seed: number): Uint8Array {
  return packed(layerIds, headIds, tokenRange, seed);
}

function packed(
  layers: readonly number[],
  heads: readonly number[],
  [tokenStart, tokenEnd]: readonly [number, number],
  seed: number,
): Uint8Array {
  const own = {
    layerStart: 0,
    layerEnd: layers.length,
    headStart: 0,
    headEnd: heads.length,
    tokenStart,
    tokenEnd,
  };
  const bytes = new Uint8Array(layers.length * heads.length * (tokenEnd - tokenStart) * 2 * layout.rowBytes);
  const words = new Uint32Array(bytes.buffer);
  layers.forEach((layer, l) => {
    heads.forEach((head, h) => {
      for (const kv of [0, 1] as const) {
        for (let token = tokenStart; token < tokenEnd; token++) {
          const cell = ((layer * 64 + head) * 2 + kv) * 65_536 + token;
          const at = rowOffsetBytes(layout, own, l, h, kv, token) / 4;
          for (let w = 0; w < layout.rowBytes / 4; w++) words[at + w] = patternWord(seed, cell, w);
        }
      }
    });
  });
  return bytes;
}

export const same = (a: Uint8Array | undefined, b: Uint8Array): boolean =>
  a !== undefined && Buffer.compare(a, b) === 0;
