import { describe, expect, it } from 'vitest';
import { Tier } from '../../../src/runtime/index.ts';
import { LinkModel } from '../../../src/sim/links/modeledDriver.ts';

const link = { baseLatencyUs: 10, bandwidthBytesPerS: 1e9 };

describe('a link', () => {
  it('takes its base latency and the bytes over its bandwidth, in whole microseconds', () => {
    const model = new LinkModel({}, link);
    expect(model.transferUs(Tier.HBM, Tier.DDR, 64_000)).toBe(74);
    expect(model.transferUs(Tier.HBM, Tier.DDR, 64_001)).toBe(75);
    expect(model.transferUs(Tier.HBM, Tier.DDR, 0)).toBe(10);
  });

  it('carries one transfer after the other in a direction, and both directions side by side', () => {
    const model = new LinkModel({}, link);
    expect(model.endUs(Tier.HBM, Tier.DDR, 1000, 0)).toBe(11);
    expect(model.endUs(Tier.HBM, Tier.DDR, 1000, 0)).toBe(22);
    expect(model.endUs(Tier.DDR, Tier.HBM, 1000, 0)).toBe(11);
    expect(model.endUs(Tier.HBM, Tier.DDR, 1000, 100)).toBe(111);
  });

  it('has a profile of its own where one is given', () => {
    const model = new LinkModel({ ddrToNvme: { baseLatencyUs: 0, bandwidthBytesPerS: 1e6 } }, link);
    expect(model.transferUs(Tier.DDR, Tier.NVME, 7)).toBe(7);
    expect(model.transferUs(Tier.NVME, Tier.DDR, 7)).toBe(11);
  });

  it('knows the end of a transfer only after its delay, in which it carries others', () => {
    const model = new LinkModel({ hbmToDdr: { ...link, delayUs: 100 } }, link);
    expect(model.endUs(Tier.HBM, Tier.DDR, 1000, 0)).toBe(111);
    expect(model.endUs(Tier.HBM, Tier.DDR, 1000, 0)).toBe(122);
    expect(model.transferUs(Tier.HBM, Tier.DDR, 1000)).toBe(11);
  });

  it('has a share of its bandwidth while the opposite direction is busy', () => {
    const shared = { ...link, bothWaysShare: 0.5 };
    const model = new LinkModel({ hbmToDdr: shared, ddrToHbm: shared }, link);
    expect(model.endUs(Tier.HBM, Tier.DDR, 4000, 0)).toBe(14);
    expect(model.endUs(Tier.DDR, Tier.HBM, 4000, 0)).toBe(18);
    expect(model.endUs(Tier.DDR, Tier.HBM, 4000, 18)).toBe(32);
  });

  it.each([
    ['delayUs', -1],
    ['bothWaysShare', 0],
    ['bothWaysShare', 1.5],
    ['bandwidthBytesPerS', 0],
    ['bandwidthBytesPerS', -1],
    ['bandwidthBytesPerS', Number.NaN],
    ['bandwidthBytesPerS', Number.POSITIVE_INFINITY],
    ['baseLatencyUs', -1],
    ['baseLatencyUs', Number.NaN],
  ])('with %s %d is an error that names it', (field, value) => {
    expect(() => new LinkModel({ hbmToDdr: { ...link, [field]: value } }, link)).toThrow(
      new RegExp(`links\\.hbmToDdr\\.${field} is .*Set links\\.hbmToDdr\\.${field}`),
    );
  });
});
