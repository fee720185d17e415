import { describe, expect, it } from 'vitest';
import { TierKVError } from '../../../src/runtime/index.ts';
import { type KVStoreConfig, newKVStore } from '../../../src/views/kvStore.ts';

describe('settings that cannot be', () => {
  const bad: [string, Partial<KVStoreConfig>][] = [
    ['hbmBlocks', { hbmBlocks: 0 }],
    ['hbmBlocks', { hbmBlocks: -1 }],
    ['hbmBlocks', { hbmBlocks: 1.5 }],
    ['blockSize', { blockSize: 0 }],
    ['ddrBlocks', { ddrBlocks: -1 }],
    ['nvmeBlocks', { nvmeBlocks: Number.NaN }],
    ['transferBandwidth', { transferBandwidth: 0 }],
    ['transferBandwidth', { transferBandwidth: -1 }],
    ['transferBandwidth', { transferBandwidth: Number.NaN }],
    ['transferBandwidth', { transferBandwidth: Number.POSITIVE_INFINITY }],
    ['transferBaseLatency', { transferBaseLatency: -1 }],
    ['offloadThreshold', { offloadThreshold: -0.1 }],
    ['offloadThreshold', { offloadThreshold: 1.1 }],
    ['offloadThreshold', { offloadThreshold: Number.NaN }],
    ['thrashingWindow', { thrashingWindow: -1 }],
    ['link.bandwidthBytesPerS', { link: { bandwidthBytesPerS: 0, blockBytes: 1 } }],
    ['link.blockBytes', { link: { bandwidthBytesPerS: 1, blockBytes: 0 } }],
    ['whenLowerFull', { ddrBlocks: 1, whenLowerFull: 'explode' as 'evict' }],
  ];
  it.each(bad)('%s: %o is an error at construction that names it and the remedy', (field, config) => {
    let thrown: unknown;
    try {
      newKVStore({ hbmBlocks: 8, ...config });
    } catch (error) {
      thrown = error;
    }
    expect(thrown).toBeInstanceOf(TierKVError);
    const error = thrown as TierKVError;
    expect(error.code).toBe('TKV_CONFIG');
    expect(error.field).toBe(field);
    expect(error.message).toMatch(/\. (Set|Use|Give|Name) /);
  });
});
