import fc from 'fast-check';
import { expect, it } from 'vitest';
import { KVManager, type ManagerConfig } from '../../../src/runtime/index.ts';
import { LinkModel, ModeledDriver, TransferTimeline } from '../../../src/sim/links/modeledDriver.ts';
import { DecisionLog, ReplaySession } from '../../../src/studies/replay/run.ts';
import { ExclusiveLru } from './exclusiveLru.ts';

const link = { baseLatencyUs: 3, bandwidthBytesPerS: 1e9 };

interface Tiers {
  hbm: number;
  ddr: number;
  nvme: number;
  window: number;
}

async function replay(tiers: Tiers, requests: readonly number[][], links = link) {
  const longest = Math.max(1, ...requests.map((ids) => ids.length));
  const lower = (blocks: number) => ({ capacityBytes: blocks, landingBytes: longest });
  const config: ManagerConfig = {
    unitBytes: [1],
    hbm: { capacityBytes: tiers.hbm, landingBytes: tiers.window },
    ...(tiers.ddr > 0 ? { ddr: lower(tiers.ddr) } : {}),
    ...(tiers.nvme > 0 ? { nvme: lower(tiers.nvme) } : {}),
    lowerCopy: 'move',
    eviction: { policy: 'lru' },
    maxJobs: 256,
  };
  using log = new DecisionLog(config);
  const manager = new KVManager(config, log.sink);
  const timeline = new TransferTimeline();
  const driver = new ModeledDriver(manager.config, new LinkModel({}, links), timeline);
  timeline.onDue((flight) => driver.end(flight));
  const advance = (): void => void timeline.step();
  const session = new ReplaySession(
    manager,
    { driver, bytes: null, advance },
    {
      blockTokens: 16,
      topBlocks: tiers.hbm,
      window: tiers.window,
    },
  );
  const perRequest: number[] = [];
  for (const ids of requests) {
    perRequest.push(await session.request(Float64Array.from(ids), 0));
    manager.checkIntegrity();
  }
  return { manager, perRequest, digest: log.digest() };
}

/** Prefix-chained requests: each is a path in a small tree, so ids repeat only with their whole prefix. */
const longestPath = 14;
const path = fc.array(fc.nat(2), { minLength: 1, maxLength: longestPath }).map((turns) => {
  const ids: number[] = [];
  let node = 0;
  for (const turn of turns) ids.push((node = node * 3 + turn + 1));
  return ids;
});
/** A lower tier holds at least as many blocks as one request sends down: the definition knows no blocks on their way. */
const tiers = fc
  .record({
    hbm: fc.integer({ min: 1, max: 20 }),
    ddr: fc.nat(20),
    nvme: fc.nat(20),
    window: fc.integer({ min: 1, max: 6 }),
  })
  .map(({ hbm, ddr, nvme, window }) => {
    const holding = (blocks: number): number => (blocks === 0 ? 0 : blocks + longestPath);
    return { hbm, ddr: holding(ddr), nvme: holding(nvme), window };
  });

it('serves every request from the tiers, and moves the blocks, that the definition says: also when requests exceed HBM', async () => {
  await fc.assert(
    fc.asyncProperty(tiers, fc.array(path, { minLength: 1, maxLength: 40 }), async (sizes, requests) => {
      const capacities = [sizes.hbm, sizes.ddr, sizes.nvme].filter((blocks, i) => i === 0 || blocks > 0);
      const oracle = new ExclusiveLru(capacities);
      for (const ids of requests) oracle.request(ids);
      const { manager, perRequest } = await replay(sizes, requests);
      const { hits, demotions, dropped } = manager.inspect.counters;
      expect(perRequest).toEqual(oracle.report.perRequest);
      expect([...hits]).toEqual(oracle.report.hits);
      expect([...demotions]).toEqual(oracle.report.demotions);
      expect(dropped).toBe(oracle.report.dropped);
      expect(manager.inspect.jobsInFlight).toBe(0);
    }),
    { numRuns: 400 },
  );
});

it('decides the same however fast the links are', async () => {
  await fc.assert(
    fc.asyncProperty(tiers, fc.array(path, { minLength: 1, maxLength: 20 }), async (sizes, requests) => {
      const slow = await replay(sizes, requests, { baseLatencyUs: 1000, bandwidthBytesPerS: 10 });
      expect((await replay(sizes, requests)).digest).toBe(slow.digest);
    }),
    { numRuns: 50 },
  );
});
