/** When cached blocks go down: each policy does what its name says, and not what another's says. */

import { describe, expect, it } from 'vitest';
import { KVManager, type OffloadChoice } from '../../../../src/runtime/index.ts';
import { offloadPolicyNames } from '../../../../src/runtime/manager/offloadPolicies.ts';
import { World } from '../world.ts';

function world(offload: OffloadChoice | undefined, policy = 'lru'): World {
  return new World({
    maxJobs: 64,
    hbm: { capacityBytes: 10, ...(offload === undefined ? {} : { offload }) },
    ddr: { capacityBytes: 40 },
    eviction: { policy },
  });
}

const inHbm = (on: World): number => on.manager.inspect.usage(0).residentBytes;
const inDdr = (on: World): number => on.manager.inspect.usage(1).residentBytes;

describe('an offload policy', () => {
  it.each([undefined, { policy: 'lazy' }])('%o moves nothing before room is needed', (offload) => {
    const lazy = world(offload);
    lazy.cache(1, 2, 3, 4, 5);
    lazy.cache(11, 12, 13, 14, 15);
    expect([inHbm(lazy), inDdr(lazy)]).toEqual([10, 0]);
    lazy.cache(21, 22);
    expect([inHbm(lazy), inDdr(lazy)]).toEqual([10, 2]);
  });

  it('threshold moves the coldest down until the tier is filled to its share at most', () => {
    const on = world({ policy: 'threshold', share: 0.5 });
    on.cache(1, 2, 3, 4, 5);
    expect([inHbm(on), inDdr(on)]).toEqual([5, 0]);
    on.cache(11, 12, 13);
    expect([inHbm(on), inDdr(on)]).toEqual([5, 3]);
    const { manager } = on;
    expect(manager.lookup(on.keys(11, 12, 13), 3).blocks).toBe(3);
  });

  it('eager copies what was let go at once, and evicting it later writes nothing more', () => {
    const on = world({ policy: 'eager' });
    const sequence = on.compute(1, 2, 3, 4);
    expect(inDdr(on)).toBe(0);
    on.manager.release(sequence, on.now);
    on.settle();
    expect([inHbm(on), inDdr(on)]).toEqual([4, 4]);
    expect(on.manager.inspect.counters.writtenBytes[1]).toBe(4);
    on.manager.evict(0, 4, on.now);
    expect(on.issued()).toEqual([]);
    expect([inHbm(on), inDdr(on)]).toEqual([0, 4]);
    on.cache(1, 2, 3, 4);
    expect(on.manager.inspect.counters.writtenBytes[1]).toBe(4);
  });

  it.each(['lru', 'hazard', 'lfu', 's3fifo'])(
    'intent under %s copies the blocks that would go next, and no others',
    (policy) => {
      const on = world({ policy: 'intent', share: 0.5, ahead: 2 }, policy);
      on.cache(1, 2, 3);
      expect(inDdr(on)).toBe(0);
      on.cache(11, 12, 13);
      expect(inHbm(on)).toBe(6);
      const copied = inDdr(on);
      expect(copied).toBeGreaterThanOrEqual(1);
      expect(copied).toBeLessThanOrEqual(2);
      const written = on.manager.inspect.counters.writtenBytes[1];
      on.manager.evict(0, 1, on.now);
      expect(on.issued(), 'the next victim was copied before').toEqual([]);
      expect(on.manager.inspect.counters.writtenBytes[1]).toBe(written);
      expect(on.manager.inspect.counters.dropped).toBe(0);
    },
  );

  it('eager keeps to the write budget', () => {
    const on = new World({
      maxJobs: 64,
      hbm: { capacityBytes: 10, offload: { policy: 'eager' } },
      nvme: { capacityBytes: 4, writeBudget: { bytesPerByteRead: 0 } },
    });
    for (let id = 1; id <= 20; id++) on.cache(id);
    expect(on.manager.inspect.counters.writtenBytes[1]).toBe(4);
  });

  it('acts in a lower tier too', () => {
    const on = new World({
      maxJobs: 64,
      hbm: { capacityBytes: 4, offload: { policy: 'eager' } },
      ddr: { capacityBytes: 8, offload: { policy: 'threshold', share: 0.25 } },
      nvme: { capacityBytes: 40 },
      eviction: { policy: 'lru' },
    });
    for (let id = 1; id <= 12; id++) on.cache(id);
    expect(on.manager.inspect.usage(1).residentBytes).toBeLessThanOrEqual(2);
    expect(on.manager.inspect.usage(2).residentBytes).toBeGreaterThan(6);
    expect(on.manager.inspect.counters.dropped).toBe(0);
  });

  it.each([
    [{ policy: 'egar' }, 'hbm.offload.policy', 'Did you mean eager?'],
    [{ policy: 'toString' }, 'hbm.offload.policy', 'Known: lazy'],
    [{ policy: 'eager', share: 0.5 }, 'hbm.offload.share', 'takes no parameters'],
    [{ policy: 'intent', shar: 0.5 }, 'hbm.offload.shar', 'Did you mean share?'],
    [{ policy: 'threshold', share: 1.5 }, 'hbm.offload.share', ''],
    [{ policy: 'intent', ahead: 0 }, 'hbm.offload.ahead', ''],
    [{ policy: 'intent', ahead: 1.5 }, 'hbm.offload.ahead', ''],
  ])('%o is refused', (offload, field, remedy) => {
    const make = () => world(offload as OffloadChoice);
    expect(make).toThrow(expect.objectContaining({ field }));
    expect(make).toThrow(remedy);
  });

  it('is not given twice', () => {
    const hbm = { capacityBytes: 10, offload: { policy: 'lazy' } };
    const make = () => new KVManager({ unitBytes: [1], hbm, offloadThreshold: 0.5 });
    expect(make).toThrow(/offloadThreshold is given beside hbm.offload/);
    expect(offloadPolicyNames).toEqual(['lazy', 'threshold', 'eager', 'intent']);
  });
});
