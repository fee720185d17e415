import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { tableMemory } from '../../../src/backends/host/hostArena.ts';
import { profileOf } from '../../../src/cli/calibrate/run.ts';
import { renderSvg } from '../../../src/io/printing/chart.ts';
import { parseLinkCalibration } from '../../../src/sim/latency/capacity.ts';
import {
  benchLinks,
  fioJob,
  type LinkRow,
  leastSeconds,
  plotOf,
  renderRows,
  sustainedSizes,
} from '../../../src/studies/measure/links.ts';
import { lookupRows } from '../../../src/studies/measure/manager.ts';
import { testAdapter } from '../../adapter.ts';

const sizes = {
  unitsOfKib: [16, 64],
  patterns: ['contiguous', 'scattered'],
  runBytes: 1,
  unitsMax: 6,
  rounds: 1,
  sampleMs: 0,
} as const;

describe('the link bench', () => {
  let dir = '';
  let rows: LinkRow[] = [];
  const said: string[] = [];
  const progress: [done: number, all: number][] = [];

  beforeAll(async () => {
    dir = mkdtempSync(join(tmpdir(), 'tierkv-bench-test-'));
    ({ rows } = await benchLinks(sizes, dir, testAdapter, {
      say: (line) => said.push(line),
      progress: (done, all) => progress.push([done, all]),
    }));
  });

  afterAll(() => rmSync(dir, { recursive: true, force: true }));

  it('has a row of each link at each size and pattern, unverified uploads beside verified ones', () => {
    expect(rows).toHaveLength(2 * 2 * 10);
    const ofDdrToHbm = rows.filter((row) => row.link === 'ddrToHbm').map((row) => row.verified);
    expect(ofDdrToHbm.toSorted()).toEqual([false, false, false, false, true, true, true, true]);
    expect(new Set(rows.map((row) => row.link)).size).toBe(9);
    expect(said).toContain('scattered blocks of 64 KiB');
  });

  it('measures every figure, and the ratio is what it is called', () => {
    for (const { link, gbps, limitGbps, ratio, singleGbps, bulkGbps, aloneUs, stagesGbps } of rows) {
      const measured = [gbps, limitGbps, ...Object.values(stagesGbps)];
      if (link.includes('+'))
        expect([singleGbps, bulkGbps, aloneUs]).toEqual([undefined, undefined, undefined]);
      else measured.push(singleGbps!, aloneUs!);
      if (link === 'hbmToDdr' || link === 'ddrToHbm') measured.push(bulkGbps!);
      for (const figure of measured) expect(figure > 0 && figure < Number.POSITIVE_INFINITY, link).toBe(true);
      expect(ratio).toBe(gbps / limitGbps);
      expect(ratio, link).toBeLessThanOrEqual(1);
    }
  });

  it('says of each row what was moved, in which time, and how far the rounds differ', () => {
    for (const { unitBytes, movedBytes = 0, seconds = 0, spread = -1, gbps } of rows) {
      expect(movedBytes % unitBytes).toBe(0);
      expect(movedBytes).toBeGreaterThan(0);
      expect(movedBytes / seconds / 1e9 / gbps).toBeCloseTo(1, 6); // of one round
      expect(spread).toBe(0);
    }
  });

  it('tells how many samples are taken, to the last', () => {
    const shares = progress.map(([done, all]) => done / all);
    expect(shares).toEqual(shares.toSorted((a, b) => a - b));
    expect(shares.at(-1)).toBe(1);
    expect(new Set(progress.map(([, all]) => all)).size).toBe(1);
  });

  it('says whether HBM was a software device, and leaves nothing in its directory', () => {
    const onSoftware = testAdapter === 'software';
    for (const { link, software } of rows)
      expect(software, link).toBe(onSoftware && link.toLowerCase().includes('hbm'));
    expect(readdirSync(dir)).toEqual([]);
  });

  it('tabulates and draws its rows', async () => {
    // what was measured decides over the width; these are the longest figures of a machine that is not stopped
    const quiet = rows.map((row) => ({
      ...row,
      ...{
        gbps: 12.34,
        limitGbps: 12.34,
        ratio: 1,
        spread: 1.5,
        seconds: 10.1,
        movedBytes: 1000 * 1024 ** 2,
      },
      ...(row.singleGbps !== undefined && { singleGbps: 12.34, aloneUs: 12_345 }),
      ...(row.bulkGbps !== undefined && { bulkGbps: 12.34 }),
      ...(row.link.includes('+') && { limitStage: 'memcpy out + memcpy in + digest of staging' }),
    }));
    const lines = renderRows(quiet).split('\n');
    expect(lines.length).toBeGreaterThan(rows.length);
    expect(Math.max(...lines.map((line) => line.length))).toBeLessThanOrEqual(148);
    const svg = await renderSvg(plotOf(rows, 'a device'));
    expect(svg).toContain('Links on a device');
    const [, width] = /<svg[^>]* width="(\d+)"/.exec(svg) ?? [];
    expect(Number(width)).toBeLessThan(1400);
    expect(svg).toContain('ddrToHbm, scattered');
    expect(await renderSvg(plotOf([], ''))).toContain('<svg');
  });

  it('makes a profile of all six links', () => {
    const about = { device: 'a device', driver: 'a driver', date: '2026-01-01T00:00:00Z', software: true };
    const { links } = parseLinkCalibration(JSON.stringify(profileOf(rows, about)), 'profile.json');
    expect(Object.keys(links).toSorted()).toEqual(
      ['hbmToDdr', 'ddrToHbm', 'ddrToNvme', 'nvmeToDdr', 'hbmToNvme', 'nvmeToHbm'].toSorted(),
    );
  });
});

it('a bench under load has links of the disk alone, and the job of fio beside it', async () => {
  const tiny = { ...sustainedSizes, unitsOfKib: [64], runBytes: 1, unitsMax: 6, rounds: 1, sampleMs: 0 };
  const dir = mkdtempSync(join(tmpdir(), 'tierkv-bench-test-'));
  try {
    const { rows } = await benchLinks(tiny, dir, testAdapter, () => {});
    expect(rows.map(({ link }) => link).toSorted()).toEqual([
      'ddrToNvme',
      'hbmToNvme',
      'nvmeToDdr',
      'nvmeToHbm',
    ]);
    for (const { stagesGbps, singleGbps } of rows) {
      expect(Object.keys(stagesGbps).some((stage) => stage === 'read' || stage === 'write')).toBe(true);
      expect(singleGbps).toBe(undefined);
    }
  } finally {
    rmSync(dir, { recursive: true, force: true });
  }
  const job = fioJob(sustainedSizes, { dir: '/a/folder', queueDepth: 8 });
  // 256 MiB in every second slot, for as long as the rounds of the bench
  for (const line of [
    'direct=1',
    'iodepth=8',
    'runtime=15',
    'directory=/a/folder',
    'size=524288k',
    'bs=2048k',
  ]) {
    expect(job.split('\n')).toContain(line);
  }
  expect(job.match(/^rw=.*$/gm)).toEqual(['rw=randwrite', 'rw=randread', 'rw=randwrite', 'rw=randread']);
  expect(leastSeconds(sustainedSizes)).toBeGreaterThanOrEqual(2 * 12 * 15);
});

it('the lookups of the manager bench find what is cached, at every size', async () => {
  const rows = lookupRows([6400, 12_800], 1, 2, await tableMemory());
  expect(rows).toHaveLength(2 + 2 * 2);
  for (const { what, value } of rows) expect(value, what).toBeGreaterThan(0);
  expect(rows.filter((row) => row.unit === 'bytes').map((row) => row.what)).toEqual([
    'metadata of one of 0.0064 M blocks in three tiers',
    'metadata of one of 0.0128 M blocks in three tiers',
  ]);
});
