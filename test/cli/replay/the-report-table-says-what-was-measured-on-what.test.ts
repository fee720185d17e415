import { expect, it } from 'vitest';
import { renderReport } from '../../../src/cli/replay/report.ts';
import type { ReplayReport } from '../../../src/studies/replay/report.ts';

const report: ReplayReport = {
  requests: 2000,
  blockLookups: 54_559,
  hits: { hbm: 2218, ddr: 4106, nvme: 8997 },
  hitDigest: 'a'.repeat(64),
  demotions: { hbmToDdr: 51_341, ddrToNvme: 43_235, dropped: 14_238 },
  bytesMoved: { hbmToDdr: 3 * 2 ** 30, nvmeToHbm: 5 * 2 ** 20, ddrToHbm: 0 },
  gbps: { hbmToDdr: 1.25, nvmeToHbm: 0.042 },
  verified: 13_103,
  verifyFailures: 0,
  adapter: { name: 'SwiftShader Device', software: true },
  wallSeconds: 12.34,
  decisionDigest: 'b'.repeat(64),
  driver: 'real',
  policy: 'hazard',
  skippedLines: 0,
  tiers: {
    hbm: { adapter: 'SwiftShader Device', slabs: 1 },
    ddr: { locked: true, hugePages: false },
    nvme: { mode: 'direct' },
  },
};

const lineWith = (text: string, part: string): string => {
  const line = text.split('\n').find((candidate) => candidate.includes(part));
  if (line === undefined) throw new Error(`no line with ${part} in\n${text}`);
  return line;
};

it('ends with verifyFailures and the number', () => {
  expect(renderReport(report).endsWith('\nverifyFailures 0\n')).toBe(true);
  expect(renderReport({ ...report, verifyFailures: 17 }).endsWith('\nverifyFailures 17\n')).toBe(true);
});

it('says in its last line what the tiers below HBM were good for', () => {
  const last = (change: Partial<ReplayReport>): string | undefined =>
    renderReport({ ...report, hbmAloneHits: 2182, ...change })
      .trimEnd()
      .split('\n')
      .at(-1);
  expect(last({})).toBe('Without DDR and NVMe 4 % of the blocks would have been found, with them 28 %.');
  const { nvme: _, ...tiers } = report.tiers;
  expect(last({ tiers, hits: { hbm: 2218, ddr: 4106, nvme: 0 } })).toContain('Without DDR 4 %');
  expect(last({ blockLookups: 0 })).toBe('verifyFailures 0');
});

it('names the tier to which blocks went', () => {
  expect(lineWith(renderReport(report), 'demoted')).toContain(
    'HBM to DDR 51,341, DDR to NVMe 43,235, dropped',
  );
  const { ddr, nvme: _, ...top } = report.tiers;
  const remote = renderReport({
    ...report,
    tiers: { ...top, ddr, remote: { store: 'valkey' } },
    demotions: { hbmToDdr: 7, ddrToNvme: 0, ddrToRemote: 5, dropped: 0 },
    bytesMoved: { ddrToRemote: 2 ** 20 },
  });
  expect(lineWith(remote, 'demoted')).toMatch(/ HBM to DDR 7, DDR to Remote 5, dropped 0$/);
  expect(remote).toContain('DDR -> Remote');
});

it('gives each tier its hits and their share', () => {
  const text = renderReport(report);
  expect(lineWith(text, '│ HBM ')).toMatch(/ 2,218 │ +4\.07 % │$/);
  expect(lineWith(text, '│ DDR ')).toMatch(/ 4,106 │ +7\.53 % │$/);
  expect(lineWith(text, '│ NVMe ')).toMatch(/ 8,997 │ +16\.49 % │$/);
  expect(lineWith(text, '│ prefill ')).toMatch(/ 39,238 │ +71\.92 % │$/);
  expect(lineWith(text, '│ all ')).toMatch(/ 54,559 │ +100\.00 % │$/);
});

it('says what each store really got, in lines that fit a terminal', () => {
  const reasons = Object.fromEntries(Array.from({ length: 30 }, (_, i) => [`fact${i}`, i]));
  const text = renderReport({
    ...report,
    tiers: {
      ...report.tiers,
      nvme: { mode: 'direct', modeReason: '', fileBytesMax: 414_539_776, ...reasons },
    },
  });
  expect(text).toContain('\nHBM   adapter SwiftShader Device, slabs 1\n');
  expect(text).toContain('\nDDR   locked, no hugePages\n');
  expect(text).toContain('\nNVMe  mode direct, fileBytesMax 395 MiB, fact0 0, ');
  expect(text).toMatch(/,\n {6}fact\d+ \d+, .*fact29 29\n/);
  for (const line of text.split('\n')) expect(line.length).toBeLessThanOrEqual(111);
});

it('shows the hits of a tier of which no store tells anything', () => {
  expect(lineWith(renderReport({ ...report, tiers: {} }), '│ DDR ')).toMatch(/ 4,106 │ +7\.53 % │$/);
});

it('leaves out a tier that is off and links that were not used', () => {
  const { hbm } = report.tiers;
  const hits = { hbm: 5, ddr: 0, nvme: 0 };
  const text = renderReport({ ...report, hits, tiers: { hbm: hbm }, bytesMoved: {}, gbps: {} });
  expect(text).not.toMatch(/│ (DDR|NVMe) |^(DDR|NVMe) /m);
  expect(text).not.toContain('->');
});

it('gives each link its bytes and rate, a dash where no rate could be measured', () => {
  const text = renderReport(report);
  expect(lineWith(text, 'HBM -> DDR')).toMatch(/ 3 GiB │ +1\.25 GB\/s /);
  expect(lineWith(text, 'NVMe -> HBM')).toMatch(/ 5 MiB │ +42 MB\/s /);
  expect(lineWith(text, 'DDR -> HBM')).toMatch(/ 0 bytes │ +- /);
});

it('labels rates of a software adapter and of a model, and only those', () => {
  const rates = (change: Partial<ReplayReport>): string =>
    lineWith(renderReport({ ...report, ...change }), 'rate');
  expect(rates({})).toContain('rate (software adapter)');
  expect(rates({ driver: 'modeled' })).toContain('rate (modeled)');
  expect(rates({ adapter: { name: 'NVIDIA H200', software: false } })).toMatch(/ rate │/);
  expect(renderReport(report)).toContain('SwiftShader Device (software)');
});

it('shows lines left out only when there were some', () => {
  expect(renderReport(report)).not.toContain('skipped');
  expect(lineWith(renderReport({ ...report, skippedLines: 3 }), 'skipped lines')).toMatch(/ 3$/);
});
