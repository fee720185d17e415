/**
 * Every public call with values of the wrong kind in every place: an error of tierkv that has a code and a
 * remedy, never a bare TypeError or a broken invariant; and nothing is changed by it.
 */

import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { KVRuntime, type KVSequence } from '../../../src/index.ts';
import { unitSpec } from '../../../src/runtime/geometry/box.ts';
import {
  choosePageBytes,
  ExternalKeys,
  KeyChain,
  KVManager,
  kvLayout,
  ManagerPort,
  Scheduler,
} from '../../../src/runtime/index.ts';
import {
  ContinuousBatchKVCacheManager,
  CrossRequestKVCache,
  KVMigrator,
  MultiGranularKVPool,
  newKVStore,
} from '../../../src/views/index.ts';
import { TieredKVStorage } from '../../../src/views/tieredKVStorage.ts';
import { blocks, layout, openRuntime, tenant } from '../liveRuntime.ts';

const wrongs: readonly unknown[] = [
  undefined,
  null,
  -1,
  1.5,
  Number.NaN,
  2 ** 60,
  7n,
  '',
  'text',
  true,
  Symbol('s'),
  [],
  [1, 'x'],
  {},
  Object.create(null),
  () => 7,
  new Date(0),
  new Map(),
  new Uint8Array(3),
];

let kv: KVRuntime;
let sequence: KVSequence;
beforeAll(async () => {
  kv = await openRuntime({ hbmBytes: blocks(20) });
  sequence = await kv.begin([1, 2, 3], { tenant });
});
afterAll(async () => {
  await kv.close();
});

const open = (more: object): Promise<KVRuntime> => openRuntime(more as never);
const good = { tenant };
/** Each takes one wrong value somewhere; right values elsewhere. */
const calls: Readonly<Record<string, (wrong: never) => unknown>> = {
  'KVRuntime.open(x)': (x) => KVRuntime.open(x),
  'new KVRuntime(x)': (x) => Reflect.construct(KVRuntime, [x]),
  ...Object.fromEntries(
    [
      ...['layout', 'layerGroups', 'blocksPerPage', 'model', 'secretKey', 'epoch', 'extras', 'sharingGroups'],
      ...['hbmBytes', 'ddrBytes', 'nvme', 'eviction', 'lowerCopy', 'leavingShare', 'scrub', 'offload'],
      ...['offloadThreshold', 'migration', 'transferDeadlineMs', 'adapter', 'wait', 'wrapStores', 'notice'],
    ].map((name) => [`open ${name}`, (x: never) => open({ [name]: x })]),
  ),
  'open log': (x) => open({ log: typeof x === 'string' && x !== '' ? 7 : x }),
  // a text is a folder that would be made: here one that cannot be
  'open nvme.dir': (x) => open({ nvme: { dir: x === 'text' ? '/dev/null/text' : x, bytes: blocks(9) } }),
  'open nvme.bytes': (x) => open({ nvme: { dir: '/nowhere/at/all', bytes: x } }),
  'open nvme.restart': (x) => open({ nvme: { dir: '/nowhere/at/all', bytes: blocks(9), restart: x } }),
  'open offload.hbm': (x) => open({ offload: { hbm: x } }),
  'begin tokens': (x) => kv.begin(x, good),
  'begin options': (x) => kv.begin([1], x),
  'begin tenant': (x) => kv.begin([1], { tenant: x }),
  'begin extras': (x) => kv.begin([1], { tenant, extras: x }),
  'begin signal': (x) => kv.begin([1], { tenant, signal: x }),
  'begin retention': (x) => kv.begin([1], { tenant, retention: x }),
  'append sequence': (x) => kv.append(x, [1, 2, 3, 4]),
  'append tokens': (x) => kv.append(sequence, x).then(() => kv.truncate(sequence, 3)),
  'step entries': (x) => kv.step(x),
  'step entry': (x) => kv.step([x]),
  'step sequence': (x) => kv.step([{ sequence: x, tokens: [1] }]),
  'step tokens': (x) => kv.step([{ sequence, tokens: x }]).then(() => kv.truncate(sequence, 3)),
  'seal sequence': (x) => kv.seal(x),
  'seal options': (x) => kv.seal(sequence, x),
  'seal tail': (x) => kv.seal(sequence, { tail: x }),
  'fork sequence': (x) => kv.fork(x),
  'fork atToken': (x) => kv.fork(sequence, x),
  'truncate sequence': (x) => kv.truncate(x, 1),
  'truncate tokens': (x) => kv.truncate(sequence, x),
  'recover sequence': (x) => kv.recover(x),
  'recover options': (x) => kv.recover(sequence, x),
  'release sequence': (x) => kv.release(x),
  'release options': (x) => oneMore((more) => kv.release(more, x)),
  'release retention': (x) => oneMore((more) => kv.release(more, { retention: x })),
  'cancel sequence': (x) => kv.cancel(x),
  'nextPart sequence': (x) => kv.nextPart(x),
  'nextPart options': (x) => kv.nextPart(sequence, x),
  'readyLayers sequence': (x) => kv.readyLayers(x, 0),
  'readyLayers group': (x) => kv.readyLayers(sequence, x),
  'openBlocks sequence': (x) => kv.openBlocks(x),
  'slot sequence': (x) => kv.slot(x, 0),
  'slot index': (x) => kv.slot(sequence, x),
  'slot group': (x) => kv.slot(sequence, 0, x),
  'blockTable sequence': (x) => kv.blockTable(x),
  'deviceBlockTable sequence': (x) => kv.deviceBlockTable(x),
  'places table': (x) => kv.places(x),
  'ready table': (x) => kv.ready(x),
  'waitFor start': (x) => kv.waitFor(x),
  'budget tenant': (x) => kv.budget(x),
  'setQuota tenant': (x) => kv.setQuota(x, 'hbm', null),
  'setQuota tier': (x) => kv.setQuota(tenant, x, null),
  'setQuota bytes': (x) => kv.setQuota('unknown', 'hbm', x),
  'lookup tokens': (x) => kv.lookup(x, good),
  'lookup options': (x) => kv.lookup([1], x),
  'prefetch tokens': (x) => kv.prefetch(x, good),
  'prefetch priority': (x) => kv.prefetch([1], { tenant, priority: x }),
  'events options': (x) => kv.events(x),
  'requestQueue tokens': (x) => kv.requestQueue().add(x, tenant),
  'requestQueue tenant': (x) => kv.requestQueue().add([1], x),
  'crossRequestCache options': (x) => kv.crossRequestCache(x),
  'tryReuse tokens': (x) => reused((cache) => cache.tryReuse('r', x, tenant)),
  'tryReuse tenant': (x) => reused((cache) => cache.tryReuse('r', [1], x)),
  'scheduler config': (x) => closed(() => kv.scheduler(x)),
  'scheduler add': (x) => closed(() => kv.scheduler().add(x)),
  'scheduler stepEnded': (x) => closed(() => kv.scheduler().stepEnded(x)),
  'scheduler next': (x) => kv.scheduler({}).next(x).finally(closeScheduler),
  'scheduler rerank': (x) => closed(() => kv.scheduler({ queueOrder: 'ranked' }).rerank(x)),
  'pagedCache allocateBlock': (x) => {
    using cache = kv.pagedCache();
    return cache.allocateBlock(x);
  },
  'kvLayout config': (x) => kvLayout(x),
  'unitSpec layout': (x) => unitSpec(x, { granularity: 0 }),
  'unitSpec config': (x) => unitSpec(layout, x),
  'choosePageBytes sizes': (x) => choosePageBytes(x),
  'newKVStore config': (x) => newKVStore(x),
  'new KVManager(x)': (x) => new KVManager(x),
  'KVManager hbm': (x) => new KVManager({ unitBytes: [1], hbm: x }),
  'KVManager eviction': (x) => new KVManager({ unitBytes: [1], hbm: { capacityBytes: 4 }, eviction: x }),
  'manager.release': (x) => kv.manager.release(x, kv.nowUs()),
  'manager.readableBlock': (x) => kv.manager.readableBlock(x, 0),
  'new Scheduler(x)': (x) => new Scheduler(x, new ManagerPort(kv.manager, { blockTokens: 16 })),
  'new ManagerPort(m, x)': (x) => new ManagerPort(kv.manager, x),
  'new MultiGranularKVPool(x)': (x) => new MultiGranularKVPool(x),
  'new KVMigrator(p, x)': (x) => new KVMigrator({ tiers: [] } as never, x),
  'new ContinuousBatchKVCacheManager(c, x)': (x) => new ContinuousBatchKVCacheManager({} as never, x),
  'new CrossRequestKVCache(m, x)': (x) => new CrossRequestKVCache(kv.manager, x),
  'new KeyChain(x)': (x) => new KeyChain(x),
  'new ExternalKeys(x)': (x) => new ExternalKeys(x),
  'TieredKVStorage.open(x)': (x) => TieredKVStorage.open(x),
  'TieredKVStorage tiers': (x) => TieredKVStorage.open({ pool: {} as never, tiers: x }),
};

/** A call that may end the sequence that it gets. */
async function oneMore(call: (more: KVSequence) => void): Promise<void> {
  const more = await kv.begin([1, 2, 3], { tenant });
  try {
    call(more);
  } finally {
    if (!more.ended) kv.cancel(more);
  }
}

function reused(call: (cache: CrossRequestKVCache) => unknown): void {
  const cache = kv.crossRequestCache();
  try {
    call(cache);
  } finally {
    cache.release('r');
  }
}

let lastScheduler: { close(): void } | undefined;
function closeScheduler(): void {
  lastScheduler?.close();
}
/** Makes a scheduler for one call; whatever becomes of the call, none is left. */
function closed(call: () => unknown): unknown {
  const make = kv.scheduler.bind(kv);
  kv.scheduler = (config) => {
    const made = make(config);
    lastScheduler = made;
    return made;
  };
  try {
    return call();
  } finally {
    kv.scheduler = make;
    closeScheduler();
  }
}

describe('every wrong value is taken or refused with code and remedy by', () => {
  it.each(Object.keys(calls))('%s', async (name) => {
    const before = [kv.manager.inspect.openSequences, sequence.length, sequence.ended, kv.room.waiting];
    for (const wrong of wrongs) {
      let error: unknown;
      try {
        const result: unknown = await calls[name](wrong as never);
        undo(result);
      } catch (thrown) {
        error = thrown;
      }
      if (error === undefined) continue;
      const what = `${name} with ${typeof wrong} ${JSON.stringify(wrong, (_, v) => (typeof v === 'bigint' ? `${v}n` : v))}: ${String(error)}`;
      expect(error, what).toMatchObject({ isTierKVError: true });
      expect(String(error), what).toMatch(/^[A-Za-z]*Error: .+\. .+[.?]$/s);
      const { code, field } = error as { code: string; field?: string };
      if (code !== 'TKV_STATE') expect(field, what).toMatch(/./);
    }
    kv.manager.checkIntegrity();
    expect([kv.manager.inspect.openSequences, sequence.length, sequence.ended, kv.room.waiting]).toEqual(
      before,
    );
  });
});

/** What some value began rightly, such as no tokens at all, ends here. */
function undo(result: unknown): void {
  const made = result as { groups?: unknown; [Symbol.asyncDispose]?: () => Promise<void> } | undefined;
  if (typeof made !== 'object' || made === null) return;
  if (Array.isArray(made.groups) && made !== sequence) kv.release(made as never);
  else if (Symbol.asyncDispose in made) void made[Symbol.asyncDispose]?.();
}
