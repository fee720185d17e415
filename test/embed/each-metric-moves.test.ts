/** Each counter and gauge of `kv.metrics()` moved by what it counts, and none left out. */

import { describe, expect, it } from 'vitest';
import type { KVRuntime, KVRuntimeConfig, KVSequence } from '../../src/index.ts';
import {
  JobPriority,
  type Outcome,
  outcomeNames,
  type Sequence,
  type TierStore,
} from '../../src/runtime/index.ts';
import type { ItemEnded } from '../../src/runtime/tier/tierStore.ts';
import { scratchDir } from '../backends/file/scratch.ts';
import { blocks, cacheBelow, openRuntime, prompt, promptBlocks, tenant, write } from './liveRuntime.ts';

/** Counters and gauges that a test has moved so far. */
const moved = new Set<string>();

async function moves(kv: KVRuntime, act: () => unknown): Promise<string[]> {
  const before = kv.metrics();
  await act();
  await new Promise((resolve) => setImmediate(resolve)); // a link counts its bytes when its call has returned
  const after = kv.metrics();
  const names = Object.entries({ ...after.counters, ...after.gauges })
    .filter(([name, value]) => value !== (before.counters[name] ?? before.gauges[name] ?? 0))
    .map(([name]) => name);
  for (const [name, value] of Object.entries(before.counters)) {
    expect(after.counters[name], `${name} only grows`).toBeGreaterThanOrEqual(value);
  }
  for (const name of names) moved.add(name);
  return names;
}

const threeTiers = (more: Partial<KVRuntimeConfig> = {}): Promise<KVRuntime> =>
  openRuntime({
    ddrBytes: blocks(20),
    nvme: { dir: scratchDir(), bytes: blocks(40) },
    leavingShare: 1,
    ...more,
  });

async function computed(kv: KVRuntime, seed: number, byte = seed): Promise<KVSequence> {
  const sequence = await kv.begin(prompt(seed), { tenant, shareWaitMs: 0 });
  write(kv, sequence, byte);
  await kv.seal(sequence);
  return sequence;
}

async function begun(kv: KVRuntime, seed: number): Promise<void> {
  const sequence = await kv.begin(prompt(seed), { tenant });
  write(kv, sequence, seed);
  kv.release(sequence);
}

const links = (link: string): string[] => [`movedBytes.${link}`, `busySeconds.${link}`];
const has = (...names: string[]): unknown => expect.arrayContaining(names);

describe('what is found, and where it goes', () => {
  it('hits and misses, bytes that are held, blocks on their way down and up', async () => {
    await using kv = await threeTiers();
    let sequence: KVSequence | undefined;
    expect(await moves(kv, async () => (sequence = await computed(kv, 1)))).toEqual(
      has('misses', 'sequences', 'residentBytes.hbm', 'heldBytes.hbm'),
    );
    expect(await moves(kv, () => sequence !== undefined && kv.release(sequence))).toEqual(
      has('cachedBytes.hbm'),
    );
    expect(await moves(kv, () => begun(kv, 1))).toEqual(has('hits.hbm'));
    expect(await moves(kv, () => kv.manager.evict(0, 2, kv.nowUs()))).toEqual(
      has(
        'evictions.hbm',
        'demotions.hbm',
        'offloads',
        'jobsInFlight',
        'leavingBytes.hbm',
        'residentBytes.ddr',
      ),
    );
    expect(await moves(kv, () => kv.idle())).toEqual(has('cachedBytes.ddr', ...links('hbmToDdr')));
    expect(await moves(kv, () => begun(kv, 1))).toEqual(
      has('hits.ddr', 'reloads.ddr', 'readBytes.ddr', ...links('ddrToHbm')),
    );
    expect(await moves(kv, () => cacheBelow(kv, 2, 1))).toEqual(has('writtenBytes.ddr'));
    kv.manager.evict(0, 20, kv.nowUs());
    await kv.idle();
    expect(await moves(kv, () => kv.manager.evict(1, 20, kv.nowUs()))).toEqual(
      has('evictions.ddr', 'demotions.ddr', 'leavingBytes.ddr', 'residentBytes.nvme'),
    );
    expect(await moves(kv, () => kv.idle())).toEqual(has('cachedBytes.nvme', ...links('ddrToNvme')));
    expect(kv.metrics().counters['writtenBytes.nvme']).toBeGreaterThan(0);
    moved.add('writtenBytes.nvme');
    expect(await moves(kv, () => begun(kv, 2))).toEqual(
      has('hits.nvme', 'reloads.nvme', 'readBytes.nvme', ...links('nvmeToHbm')),
    );
    const key = sequence?.groups[0].keys.words.slice(0, 4) ?? new Uint32Array(4);
    kv.manager.evict(0, 20, kv.nowUs());
    await kv.idle();
    kv.manager.evict(1, 20, kv.nowUs());
    await kv.idle();
    const pins: Sequence[] = [];
    const pinned = (): unknown => pins.push(kv.manager.open(key, 1, kv.nowUs()));
    expect(await moves(kv, pinned)).toEqual(has('heldBytes.nvme'));
    for (const pin of pins) kv.manager.release(pin, kv.nowUs());
    const brought = (): Promise<void> => {
      kv.manager.move(key, 1, JobPriority.PREFETCH, kv.nowUs());
      return kv.idle();
    };
    expect(await moves(kv, brought)).toEqual(has('promotions.ddr', ...links('nvmeToDdr')));
    expect(await moves(kv, () => kv.manager.evict(2, 40, kv.nowUs()))).toEqual(
      has('evictions.nvme', 'dropped'),
    );
  });

  it('blocks that HBM sends straight to the disk', async () => {
    await using kv = await openRuntime({ nvme: { dir: scratchDir(), bytes: blocks(40) }, leavingShare: 1 });
    expect(await moves(kv, () => cacheBelow(kv, 1, 1))).toEqual(has('demotions.hbm', ...links('hbmToNvme')));
  });

  it('blocks that are computed although a lower tier has them', async () => {
    await using kv = await threeTiers();
    const sequence = await computed(kv, 1);
    const key = sequence.groups[0].keys.words.slice(0, 4);
    kv.release(sequence);
    kv.manager.evict(0, 20, kv.nowUs());
    await kv.idle();
    const table = kv.manager.open(key, 1, kv.nowUs());
    const opened = (): unknown => kv.manager.recompute(table, 0, 1, kv.nowUs());
    expect(await moves(kv, opened)).toEqual(has('recomputed'));
    kv.manager.release(table, kv.nowUs());
  });

  it('requests that join what is on its way, or find no room', async () => {
    await using kv = await threeTiers();
    await cacheBelow(kv, 1, 1);
    const both = (): unknown => Promise.all([1, 1].map((seed) => begun(kv, seed)));
    expect(await moves(kv, both)).toEqual(has('joined'));
    const holders = await Promise.all([2, 3, 4, 6].map((seed) => computed(kv, seed)));
    let waiting: Promise<KVSequence> | undefined;
    const asks = async (): Promise<void> => {
      await expect(kv.begin(prompt(5), { tenant })).rejects.toMatchObject({ code: 'TKV_FULL' });
      waiting = kv.begin(prompt(5), { tenant, wait: true });
      await new Promise((resolve) => setImmediate(resolve));
    };
    expect(await moves(kv, asks)).toEqual(has('refusedAllocations', 'requestsWaiting'));
    for (const holder of holders) kv.release(holder);
    if (waiting !== undefined) kv.release(await waiting);
  });
});

describe('copies', () => {
  it('forks, second copies, copies that differ, and preempted sequences', async () => {
    await using kv = await threeTiers();
    const first = await kv.begin(prompt(1), { tenant });
    const second = await kv.begin(prompt(1), { tenant, shareWaitMs: 0 });
    const third = await kv.begin(prompt(1), { tenant, shareWaitMs: 0 });
    for (const [sequence, byte] of [[first, 1] as const, [second, 1] as const, [third, 9] as const]) {
      write(kv, sequence, byte);
    }
    await kv.seal(first);
    expect(await moves(kv, () => kv.seal(second))).toEqual(has('aliases'));
    expect(await moves(kv, () => kv.seal(third))).toEqual(has('diverged'));
    const fork = async (): Promise<void> => {
      const child = await kv.fork(first);
      if (child !== 'interrupted') kv.release(child);
    };
    expect(await moves(kv, fork)).toEqual(has('copies'));
    for (const sequence of [first, second, third]) kv.release(sequence);
    const table = kv.manager.open(new Uint32Array(0), 0, kv.nowUs());
    expect(await moves(kv, () => kv.manager.preempt(table, kv.nowUs()))).toEqual(has('preemptions'));
  });
});

describe('what goes wrong', () => {
  it('a lost device, and blocks that were nowhere else', async () => {
    await using kv = await threeTiers();
    kv.release(await computed(kv, 1));
    const loss = async (): Promise<void> => {
      kv.device.destroy();
      while (kv.devicesLost === 0) await new Promise((resolve) => setTimeout(resolve, 1));
    };
    expect(await moves(kv, loss)).toEqual(has('devicesLost', 'lost', 'devicePresent'));
    while (kv.describe().runtime.devicePresent !== true)
      await new Promise((resolve) => setTimeout(resolve, 1));
  });

  it('blocks that are dropped because too many leave, or the budget does not pay for them', async () => {
    await using kv = await threeTiers({ leavingShare: 0.1 });
    for (const seed of [1, 2, 3, 4]) kv.release(await computed(kv, seed)); // HBM is full then
    expect(await moves(kv, () => begun(kv, 5))).toEqual(has('demotionsSkipped', 'dropped'));
    const writeBudget = { bytesPerByteRead: 0, bytesPerSecond: 0 };
    await using poor = await openRuntime({ nvme: { dir: scratchDir(), bytes: blocks(4), writeBudget } });
    await cacheBelow(poor, 1, 1); // the budget begins with the size of the tier
    poor.release(await computed(poor, 2));
    expect(await moves(poor, () => poor.manager.evict(0, 4, poor.nowUs()))).toEqual(has('writesDeclined'));
  });

  it.each(
    outcomeNames
      .map((name, outcome) => [name, outcome as Outcome] as const)
      .filter(([name]) => name !== 'loaded'),
  )('loads that end as %s, and demotions that fail', async (name, outcome) => {
    let fails = false;
    const failing = (store: TierStore): TierStore =>
      new Proxy(store, {
        get(target, property) {
          const value: unknown = Reflect.get(target, property, target);
          if (typeof value !== 'function') return value;
          if (!fails || (property !== 'read' && property !== 'write')) return value.bind(target);
          return async (items: readonly unknown[], ended?: ItemEnded) => {
            await undefined; // ends come after the call has returned
            const result = { outcome, reason: 'on purpose' };
            for (const index of items.keys()) ended?.(index, result);
            return items.map(() => result);
          };
        },
      });
    const dir = scratchDir();
    await using kv = await openRuntime({
      nvme: { dir, bytes: blocks(40) },
      leavingShare: 1,
      wrapStores: ({ hbm, nvme }) => ({ hbm, ...(nvme === undefined ? {} : { nvme: failing(nvme) }) }),
    });
    await cacheBelow(kv, 1, 1);
    kv.release(await computed(kv, 2));
    fails = true;
    expect(await moves(kv, () => begun(kv, 1))).toEqual(has(`loadsFailed.${name}`));
    kv.manager.evict(0, promptBlocks, kv.nowUs());
    expect(await moves(kv, () => kv.idle())).toEqual(has('demotionsFailed'));
  });

  it('a transfer that does not end in time', async () => {
    const { promise: ended, resolve: end } = Promise.withResolvers<void>();
    const dir = scratchDir();
    await using kv = await openRuntime({
      nvme: { dir, bytes: blocks(40) },
      leavingShare: 1,
      transferDeadlineMs: 1000, // the transfers before it, which nothing holds, come in time on a busy machine too
      wrapStores: ({ hbm, nvme }) => ({
        hbm,
        ...(nvme === undefined
          ? {}
          : {
              nvme: new Proxy(nvme, {
                get(target, property) {
                  const value: unknown = Reflect.get(target, property, target);
                  if (typeof value !== 'function') return value;
                  return async (...args: unknown[]) => {
                    if (property === 'write') await ended;
                    return value.apply(target, args);
                  };
                },
              }),
            }),
      }),
    });
    kv.release(await computed(kv, 1));
    kv.manager.evict(0, 2, kv.nowUs());
    expect(await moves(kv, () => kv.idle())).toEqual(has('jobsOverdue'));
    end();
  });

  it('blocks that an earlier run left', async () => {
    const dir = scratchDir();
    const first = await openRuntime({ nvme: { dir, bytes: blocks(40) }, leavingShare: 1 });
    await cacheBelow(first, 1, 1);
    await first.close();
    await using kv = await openRuntime({ nvme: { dir, bytes: blocks(40) } });
    expect(kv.metrics().counters.adopted).toBe(promptBlocks);
    moved.add('adopted');
  });
});

it('and there are no others', async () => {
  await using kv = await threeTiers();
  const { counters, gauges } = kv.metrics();
  const names = [...Object.keys(counters), ...Object.keys(gauges)];
  // bytes that each tier has are its size; a loaded block is not a failure; the lowest tier has none below;
  // thrashing is a matter of a millisecond, which the manager's own tests have in their hands; what the
  // migrator moves, in each direction, its own tests count
  const still = ['loadsFailed.loaded', 'demotions.nvme', 'leavingBytes.nvme', 'thrashed'];
  const never =
    /^(capacityBytes\.|migrations\.|(reloads|readBytes|writtenBytes|promotions)\.hbm|promotions\.nvme|heldBytes\.ddr)/;
  expect(names.filter((name) => !moved.has(name) && !still.includes(name) && !never.test(name))).toEqual([]);
});
