import { expect, it, vi } from 'vitest';
import type { KVRuntime } from '../../../src/index.ts';
import {
  ask,
  blocks,
  contents,
  layout,
  openRuntime,
  prompt,
  rightContents,
  tenant,
  write,
} from '../liveRuntime.ts';

const capacity = 20;

/** Computes prompts of four blocks each and lets them go. */
async function fill(kv: KVRuntime, prompts: number): Promise<void> {
  for (let seed = 1; seed <= prompts; seed++) {
    const sequence = await kv.begin(prompt(seed), { tenant });
    write(kv, sequence, seed);
    await kv.seal(sequence);
    kv.release(sequence);
  }
}

const share = (kv: KVRuntime): number => {
  const { residentBytes, capacityBytes } = kv.manager.inspect.usage(0);
  return residentBytes / capacityBytes;
};

it('cached blocks go down from 90 % to 80 % beside everything else, with their bytes', async () => {
  await using kv = await openRuntime({ hbmBytes: blocks(capacity + 1), ddrBytes: blocks(64) });
  await fill(kv, 5);
  await vi.waitUntil(() => share(kv) < 0.9 && kv.manager.inspect.jobsInFlight === 0, { timeout: 120_000 });
  const { counters } = kv.metrics();
  expect(counters['migrations.hbmToDdr']).toBeGreaterThan(0);
  expect(counters['migrations.total']).toBeGreaterThan(0);
  expect(counters['migrations.bytes']).toBeGreaterThan(0);
  expect(counters['migrations.failed']).toBe(0);
  expect(Object.keys(counters).filter((name) => /remote/i.test(name))).toEqual([]);
  for (let seed = 1; seed <= 5; seed++) {
    const { cachedTokens, right } = await ask(kv, seed);
    expect(right).toBe(true);
    expect(cachedTokens, 'nothing was lost').toBeGreaterThanOrEqual(3 * layout.blockTokens);
  }
  kv.manager.checkIntegrity();
});

it('switched off, or without a tier below, nothing moves', async () => {
  for (const config of [{ ddrBytes: blocks(64), migration: false as const }, {}]) {
    await using kv = await openRuntime({ hbmBytes: blocks(capacity + 1), ...config });
    await fill(kv, 5);
    await kv.idle();
    expect(share(kv)).toBeGreaterThanOrEqual(0.9);
    expect(Object.keys(kv.metrics().counters).filter((name) => name.startsWith('migrations.'))).toEqual([]);
  }
});

it('a running sequence keeps its blocks in HBM, however long it does nothing', async () => {
  await using kv = await openRuntime({
    hbmBytes: blocks(capacity + 1),
    ddrBytes: blocks(64),
    migration: { intervalUs: 1, coldTimeoutS: 0.001 },
  });
  const sequence = await kv.begin(prompt(77), { tenant });
  write(kv, sequence, 77);
  await kv.seal(sequence);
  await fill(kv, 4);
  await vi.waitUntil(() => share(kv) < 0.9 && kv.manager.inspect.jobsInFlight === 0, { timeout: 120_000 });
  expect(await contents(kv, sequence)).toEqual(rightContents(77));
  kv.release(sequence);
});

it('idle is fulfilled when the moves have ended that the last ends called for', async () => {
  await using kv = await openRuntime({
    hbmBytes: blocks(capacity + 1),
    ddrBytes: blocks(64),
    migration: { intervalUs: 1, hotFrequencyThreshold: 0.02, warmFrequencyThreshold: 0.01 },
  });
  await fill(kv, 4);
  for (let round = 0; round < 20; round++) {
    await ask(kv, 1 + (round % 4));
    kv.manager.evict(0, capacity, kv.nowUs());
    await kv.idle();
    expect(kv.manager.inspect.jobsInFlight, `round ${round}`).toBe(0);
  }
  expect(kv.metrics().counters['migrations.ddrToHbm']).toBeGreaterThan(0);
});

it('invalid thresholds are refused by name before anything is opened', async () => {
  const open = (migration: object): Promise<unknown> => openRuntime({ ddrBytes: blocks(8), migration });
  await expect(open({ downTo: 0.95 })).rejects.toMatchObject({
    code: 'TKV_CONFIG',
    field: 'migration.downTo',
  });
  await expect(open({ coldTimeoutS: -1 })).rejects.toThrow(/migration.coldTimeoutS is -1/);
  await expect(open({ batchBytes: 1.5 })).rejects.toThrow(/migration.batchBytes is 1.5/);
});
