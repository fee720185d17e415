import { expect, it } from 'vitest';
import { profileOf } from '../../../src/cli/calibrate/run.ts';
import { parseLinkCalibration } from '../../../src/sim/latency/capacity.ts';
import { LinkModel } from '../../../src/sim/links/modeledDriver.ts';
import type { LinkRow } from '../../../src/studies/measure/links.ts';

const KIB = 1024;
const about = { device: 'a device', driver: 'a driver', date: '2026-01-01T00:00:00Z', software: true };
/** 5 µs and 2 GB/s. */
const linkUs = (bytes: number): number => 5 + bytes / 2000;

function row(link: string, unitBytes: number, facts: Partial<LinkRow>): LinkRow {
  const measured = { gbps: unitBytes / linkUs(unitBytes) / 1e3, aloneUs: linkUs(unitBytes) + 30 };
  const limit = { limitGbps: 10, limitStage: 'copy in', ratio: 1, stagesGbps: {} };
  const kind = { pattern: 'scattered', verified: link.includes('ToHbm'), software: true } as const;
  return { link, unitBytes, ...kind, ...measured, ...limit, ...facts };
}

const rows = [64 * KIB, 1024 * KIB].flatMap((bytes) => [
  row('ddrToHbm', bytes, {}),
  row('hbmToDdr', bytes, {}),
  row('hbmToDdr+ddrToHbm', bytes, { gbps: (1.2 * bytes) / linkUs(bytes) / 1e3 }),
]);

it('gives back the base time, the bandwidth, the delay and the share that rows were made from', () => {
  const profile = profileOf(rows, about);
  const { links, device, software } = parseLinkCalibration(JSON.stringify(profile), 'profile.json');
  expect({ device, software }).toEqual({ device: 'a device', software: true });
  for (const link of ['ddrToHbm', 'hbmToDdr']) {
    expect(links[link].baseLatencyUs).toBeCloseTo(5, 1);
    expect(links[link].bandwidthBytesPerS / 1e9).toBeCloseTo(2, 2);
    expect(links[link].delayUs).toBeCloseTo(30, 0);
    expect(links[link].bothWaysShare).toBeCloseTo(0.6, 3);
  }
  expect(() => new LinkModel(links, { baseLatencyUs: 0, bandwidthBytesPerS: 1 })).not.toThrow();
});

it('leaves out contiguous blocks, and unverified ones of links that verify', () => {
  const odd = [64 * KIB, 1024 * KIB].flatMap((bytes) => [
    row('ddrToHbm', bytes, { gbps: 100, verified: false }),
    row('ddrToHbm', bytes, { gbps: 100, pattern: 'contiguous' }),
    row('hbmToDdr', bytes, { gbps: 100, pattern: 'contiguous' }),
  ]);
  expect(profileOf([...odd, ...rows], about)).toEqual(profileOf(rows, about));
});

it('never says that a lone transfer is faster than one of a batch, or a pair faster than its ways', () => {
  const fast = rows.map((one) => ({ ...one, aloneUs: 1, gbps: one.link.includes('+') ? 100 : one.gbps }));
  const { ddrToHbm } = profileOf(fast, about).links;
  expect(ddrToHbm).toMatchObject({ delayUs: 0, bothWaysShare: 1 });
});
