import { describe, expect, it } from 'vitest';
import { Tier } from '../../../src/runtime/index.ts';
import {
  limitOf,
  linkOf,
  nameOf,
  partsOf,
  type Route,
  routes,
  type Stage,
} from '../../../src/studies/measure/contestants.ts';
import { rowOf } from '../../../src/studies/measure/links.ts';

const { HBM, DDR, NVME } = Tier;
const gbps: Readonly<Record<Stage, number>> = {
  'memcpy in': 9,
  'copy in': 6,
  'copy out': 8,
  'memcpy out': 7,
  'digest of staging': 4,
  digest: 5,
  read: 2,
  write: 1,
  'memcpy in by 2': 15,
  'memcpy in by all': 20,
  'memcpy out by 2': 5.5,
  'memcpy out by all': 5,
};
const limit = (ways: Route['ways'], verified: boolean, readback: boolean): [number, string] =>
  limitOf({ ways, verified }, readback, (stage) => gbps[stage]);

describe('the limit of a link', () => {
  it('is its slowest stage where each part does one thing', () => {
    expect(limit([[DDR, HBM]], false, true)).toEqual([6, 'copy in']);
    expect(limit([[HBM, DDR]], false, true)).toEqual([7, 'memcpy out']);
    const slowDevice = (stage: Stage): number =>
      ({ ...gbps, 'memcpy out by all': 7.5, 'memcpy out': 3 })[stage];
    expect(limitOf({ ways: [[HBM, DDR]], verified: false }, true, slowDevice)).toEqual([
      7.5,
      'memcpy out by all',
    ]);
    expect(limit([[HBM, NVME]], false, true)).toEqual([1, 'write']);
    expect(limit([[NVME, DDR]], true, true)).toEqual([2, 'read']);
  });

  it('is the sum of times where a part does several things to a byte, and no work of one thread', () => {
    const [sum, stage] = limit([[DDR, HBM]], true, true);
    expect(stage).toBe('copy in + copy out');
    expect(sum).toBeCloseTo(1 / (1 / 6 + 1 / 8), 10);
    const route = { ways: [[DDR, HBM]], verified: true } as const;
    const thread = partsOf(route, true, (one) => gbps[one]).find(({ part }) => part === 'thread');
    expect(thread?.stages).toBe('memcpy in + digest of staging');
    expect(thread?.gbps).toBeCloseTo(1 / (1 / 9 + 1 / 4), 10);
  });

  it('leaves the check out where a kernel of the device makes it', () => {
    expect(limit([[DDR, HBM]], true, false)).toEqual([6, 'copy in']);
  });

  it('counts the two ways of a pair on the parts that serve both', () => {
    const [sum, stage] = limit(
      [
        [DDR, NVME],
        [NVME, DDR],
      ],
      true,
      true,
    );
    expect(stage).toBe('write + read');
    expect(sum).toBeCloseTo(2 / (1 / 1 + 1 / 2), 10);
  });
});

describe('a row', () => {
  const facts = { unitBytes: 65_536, pattern: 'scattered', software: true } as const;
  const rowFor = (link: string, verified: boolean) => {
    const route = routes.find((one) => linkOf(one) === link && one.verified === verified)!;
    const medians = new Map<string, number>(Object.entries(gbps));
    medians.set(nameOf('tierkv', route), 3);
    if (route.ways.length === 1) {
      medians.set(nameOf('single', route), 0.5);
      medians.set(nameOf('alone', route), 65_536 / 200 / 1e3);
    }
    return rowOf(route, medians, true, facts);
  };

  it('sets the throughput against the limit, the stages, the peer and the lone block', () => {
    const row = rowFor('ddrToHbm', false);
    expect(row).toMatchObject({ gbps: 3, limitGbps: 6, limitStage: 'copy in', ratio: 0.5, singleGbps: 0.5 });
    expect(row.aloneUs).toBeCloseTo(200, 6);
    expect(row.stagesGbps).toEqual({
      ...{ 'copy in': 6, 'memcpy in': 9, 'memcpy in by 2': 15, 'memcpy in by all': 20 },
    });
    expect(row).toMatchObject({ busGbps: 6, ofBus: 0.5, memoryGbps: 20, threadGbps: 9 });
    expect(row.diskGbps).toBeUndefined();
    expect(row).toMatchObject({ link: 'ddrToHbm', unitBytes: 65_536, pattern: 'scattered', verified: false });
  });

  it('has a limit that no run passes: what moves blocks over the whole link shows what its parts can', () => {
    for (const route of routes) {
      const slow = new Map<string, number>(
        Object.entries(gbps).map(([stage, value]) => [stage, value / 100]),
      );
      slow.set(nameOf('tierkv', route), 3);
      if (route.ways.length === 1) slow.set(nameOf('single', route), 4).set(nameOf('alone', route), 1);
      const row = rowOf(route, slow, true, facts);
      expect(row.limitGbps).toBe(route.ways.length === 1 ? 4 : 3);
      for (const share of [row.ratio, row.ofBus, row.ofDisk, row.ofThread]) {
        if (share !== undefined) expect(share).toBeLessThanOrEqual(1);
      }
    }
  });

  it('has no peer and no lone block for both ways at once', () => {
    const row = rowFor('hbmToDdr+ddrToHbm', true);
    for (const key of ['singleGbps', 'bulkGbps', 'aloneUs']) expect(row).not.toHaveProperty(key);
  });

  it('is called software where a software device has a part in the link, and nowhere else', () => {
    expect(rowFor('nvmeToHbm', true).software).toBe(true);
    expect(rowFor('hbmToDdr', false).software).toBe(true);
    expect(rowFor('nvmeToDdr', true).software).toBe(false);
  });
});

it('every one-way link and every pair is measured with the checks of the runtime', () => {
  const links = routes.filter((route) => route.verified || linkOf(route).match(/^(hbm|ddr)To(Ddr|Nvme)$/));
  expect(links.map(linkOf).toSorted()).toEqual(
    [
      ...['hbmToDdr', 'ddrToHbm', 'hbmToDdr+ddrToHbm', 'ddrToNvme', 'nvmeToDdr', 'ddrToNvme+nvmeToDdr'],
      ...['hbmToNvme', 'nvmeToHbm', 'hbmToNvme+nvmeToHbm'],
    ].toSorted(),
  );
});
