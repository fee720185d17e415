/**
 * Every object of options that a public call takes refuses a name that it does not know, with the nearest one
 * that it does: a mistyped setting is never a default in silence.
 */

import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { FileStore } from '../../../src/backends/file/fileStore.ts';
import { HostArena } from '../../../src/backends/host/hostArena.ts';
import { MemoryStore } from '../../../src/backends/host/memoryStore.ts';
import { openDevice } from '../../../src/backends/webgpu/adapter.ts';
import { BlockConversion, BlockCopies, BlockTensors, PagedAttention } from '../../../src/compute/index.ts';
import type { KVRuntime, KVSequence } from '../../../src/index.ts';
import { Granularity, unitSpec } from '../../../src/runtime/geometry/box.ts';
import {
  choosePageBytes,
  ExternalKeys,
  KeyChain,
  KVManager,
  kvLayout,
  ManagerPort,
  poolShape,
  Scheduler,
} from '../../../src/runtime/index.ts';
import { FaultPlan, StandInDisk } from '../../../src/testing/index.ts';
import {
  ContinuousBatchKVCacheManager,
  CrossRequestKVCache,
  HotColdClassifier,
  KVMigrator,
  MultiGranularKVPool,
  newKVStore,
} from '../../../src/views/index.ts';
import { TieredKVStorage } from '../../../src/views/tieredKVStorage.ts';
import { blocks, layout, openRuntime, tenant } from '../liveRuntime.ts';

const tokens = [1, 2, 3];
const secretKey = new Uint8Array(32);
const bare = { layers: 1, kvHeads: 1, headDim: 8, dtype: 'f16' } as const;
let kv: KVRuntime;
let sequence: KVSequence;
let manager: KVManager;
let pool: MultiGranularKVPool;

beforeAll(async () => {
  kv = await openRuntime({ hbmBytes: blocks(20) });
  sequence = await kv.begin(tokens, { tenant });
  manager = new KVManager({ unitBytes: [1], hbm: { capacityBytes: 8 } });
  pool = new MultiGranularKVPool(poolConfig);
});
afterAll(async () => {
  expect(sequence.ended).toBe(false);
  kv.release(sequence);
  kv.manager.checkIntegrity();
  await kv.close();
});

const poolConfig = {
  layout: bare,
  model: 'm',
  secretKey,
  hbmCapacityBytes: 2 ** 20,
  enableTiering: false,
  granularities: [Granularity.BLOCK],
};
const namespace = { secretKey, tenant: 'a', epoch: 0, model: 'm', layout };
const request = { id: 'r', tokens, tenant, maxTokens: 1 };
const shape = poolShape(4, 4096, [4096]);
const device = { limits: {}, features: new Set() };

/** A call with options that are right; `more` goes into the object that `path` names. */
type Call = (more: object) => unknown;
const calls: Readonly<Record<string, Call>> = {
  'open config.': (more) => openRuntime({ ...more }),
  'open nvme.': (more) => openRuntime({ nvme: { dir: '/nowhere/at/all', bytes: blocks(9), ...more } }),
  'open nvme.writeBudget.': (more) =>
    openRuntime({
      nvme: { dir: '/nowhere/at/all', bytes: blocks(9), writeBudget: { bytesPerByteRead: 1, ...more } },
    }),
  'open offload.': (more) => openRuntime({ offload: { ...more } }),
  'open migration.': (more) => openRuntime({ migration: { ...more } }),
  'open eviction.': (more) => openRuntime({ eviction: { policy: 'lru', ...more } }),
  'open layerGroups[0].': (more) => openRuntime({ layerGroups: [{ first: 0, end: 2, ...more }] }),
  'begin options.': (more) => kv.begin(tokens, { tenant, ...more }),
  'begin retention.': (more) => kv.begin(tokens, { tenant, retention: { ...more } }),
  'nextPart options.': (more) => kv.nextPart(sequence, { ...more }),
  'readyLayers options.': (more) => kv.readyLayers(sequence, 0, { ...more }),
  'recover options.': (more) => kv.recover(sequence, { ...more }),
  'seal options.': (more) => kv.seal(sequence, { ...more }),
  'release options.': (more) => kv.release(sequence, { ...more }),
  'release retention.': (more) => kv.release(sequence, { retention: { ...more } }),
  'step entries[0].': (more) => kv.step([{ sequence, tokens: [4], ...more }]),
  'lookup options.': (more) => kv.lookup(tokens, { tenant, ...more }),
  'prefetch options.': (more) => kv.prefetch(tokens, { tenant, ...more }),
  'requestQueue add options.': (more) => kv.requestQueue().add(tokens, tenant, { ...more }),
  'events options.': (more) => kv.events({ ...more }),
  'crossRequestCache options.': (more) => kv.crossRequestCache({ ...more }),
  'scheduler config.': (more) => kv.scheduler({ ...more }),
  'scheduler add request.': (more) => {
    using closing = { scheduler: kv.scheduler(), [Symbol.dispose]: () => closing.scheduler.close() };
    closing.scheduler.add({ ...request, ...more });
  },
  'scheduler next options.': async (more) => {
    using closing = { scheduler: kv.scheduler(), [Symbol.dispose]: () => closing.scheduler.close() };
    await closing.scheduler.next({ ...more });
  },
  'kvLayout config.': (more) => kvLayout({ ...bare, blockTokens: 16, ...more }),
  'unitSpec config.': (more) => unitSpec(layout, { granularity: Granularity.BLOCK, ...more }),
  'choosePageBytes options.': (more) => choosePageBytes([4096], { ...more }),
  'newKVStore config.': (more) => newKVStore({ hbmBlocks: 4, ...more }),
  'newKVStore link.': (more) =>
    newKVStore({ hbmBlocks: 4, link: { bandwidthBytesPerS: 1, blockBytes: 1, ...more } }),
  'KVManager config.': (more) => new KVManager({ unitBytes: [1], hbm: { capacityBytes: 8 }, ...more }),
  'KVManager hbm.': (more) => new KVManager({ unitBytes: [1], hbm: { capacityBytes: 8, ...more } }),
  'KVManager hbm.offload.': (more) =>
    new KVManager({ unitBytes: [1], hbm: { capacityBytes: 8, offload: { policy: 'lazy', ...more } } }),
  'Scheduler config.': (more) => new Scheduler({ ...more }, new ManagerPort(manager, { blockTokens: 4 })),
  'ManagerPort config.': (more) => new ManagerPort(manager, { blockTokens: 4, ...more }),
  'MultiGranularKVPool config.': (more) => new MultiGranularKVPool({ ...poolConfig, ...more }),
  'MultiGranularKVPool layout.': (more) =>
    new MultiGranularKVPool({ ...poolConfig, layout: { ...bare, ...more } }),
  'pool allocate request.': (more) =>
    pool.allocate({ sequenceId: 's', requestId: 'r', numTokens: 1, layerIds: [0], ...more }),
  'pool queryByPrefix options.': (more) => pool.queryByPrefix(tokens, 0, { ...more }),
  'pool commit options.': (more) => pool.commit('s', tokens, { ...more }),
  'KVMigrator options.': (more) => new KVMigrator(pool, { ...more }),
  'ContinuousBatchKVCacheManager config.': (more) =>
    new ContinuousBatchKVCacheManager(kv.pagedCache() as never, { ...more }),
  'CrossRequestKVCache config.': (more) =>
    new CrossRequestKVCache(manager, {
      blockTokens: 1,
      keysOf: () => new ExternalKeys({ tenant: '', epoch: 0 }),
      nowUs: () => 0,
      ...more,
    }),
  'KeyChain namespace.': (more) => new KeyChain({ ...namespace, ...more }),
  'ExternalKeys namespace.': (more) => new ExternalKeys({ tenant: '', epoch: 0, ...more }),
  'TieredKVStorage config.': (more) =>
    TieredKVStorage.open({ pool: poolConfig, tiers: [{ tier: 'hbm', capacityBytes: 2 ** 20 }], ...more }),
  'TieredKVStorage tiers[0].': (more) =>
    TieredKVStorage.open({ pool: poolConfig, tiers: [{ tier: 'hbm', capacityBytes: 2 ** 20, ...more }] }),
  'openDevice options.': (more) => openDevice({ ...more }),
  'FileStore options.': (more) => FileStore.open('/nowhere/at/all', shape, { ...more }),
  'FileStore identity.': (more) => FileStore.open('/nowhere/at/all', shape, { identity: { ...more } }),
  'MemoryStore options.': (more) => MemoryStore.open(shape, { ...more }),
  'HostArena options.': (more) => HostArena.open({ chunkBytes: [4096], field: 'ddr', ...more }),
  'PagedAttention config.': (more) => PagedAttention.open({ device, slabs: [], layout, ...more } as never),
  'BlockCopies config.': (more) => BlockCopies.open({ device, slabs: [], layout, ...more } as never),
  'BlockTensors config.': (more) => BlockTensors.open({ device, slabs: [], layout, ...more } as never),
  'BlockConversion config.': (more) => BlockConversion.open({ device, ...more } as never),
  'FaultPlan options.': (more) => new FaultPlan({ seed: 1, rates: {}, ...more }),
  'FaultPlan rates.': (more) => new FaultPlan({ seed: 1, rates: { ...more } }),
  'StandInDisk options.': (more) => new StandInDisk(shape, { ...more }),
};

async function failureOf(call: () => unknown): Promise<unknown> {
  try {
    await call();
    return undefined;
  } catch (error) {
    return error;
  }
}

describe('a name that is unknown is refused by', () => {
  it.each(Object.keys(calls))('%s', async (name) => {
    const path = name.split(' ').at(-1) as string;
    const prefix = path === 'config.' || path === 'options.' ? '' : path;
    const error = await failureOf(() => calls[name]({ xqzzy: 1 }));
    expect(error).toMatchObject({ isTierKVError: true, field: `${prefix}xqzzy` });
    expect(String(error)).toMatch(/unknown|not known/);
  });
});

it.each([
  ['open config.', { hmbBytes: 1 }, 'hbmBytes'],
  ['open nvme.', { path: '/x' }, 'dir'],
  ['begin options.', { wiat: true }, 'wait'],
  ['scheduler config.', { maxBatchTokens: 1 }, 'maxBatchedTokens'],
  ['kvLayout config.', { blocktokens: 16 }, 'blockTokens'],
  ['crossRequestCache options.', { enableTenantIsolaton: true }, 'enableTenantIsolation'],
])('%s with %j names the nearest, or all', async (name, more, wanted) => {
  expect(String(await failureOf(() => calls[name](more)))).toContain(wanted);
});

it('HotColdClassifier takes the options of functions that have one, and no text', () => {
  expect(() => new HotColdClassifier('hot' as never)).toThrow(
    expect.objectContaining({ code: 'TKV_CONFIG' }),
  );
});
