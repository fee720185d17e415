/**
 * The report as text for people: what each tier served, what moved how fast on what, and the digests by which two runs are
 * compared. Figures of a software adapter or a model are labelled where they stand. The last line is the verdict.
 */

import {
  formatBytes,
  formatBytesPerS,
  formatCount,
  formatSeconds,
  formatShare,
  renderTable,
} from '../output/index.ts';
import { type LinkName, linkNames, type ReplayReport } from './report.ts';

const tierTitles = { hbm: 'HBM', ddr: 'DDR', nvme: 'NVMe' } as const;

const linkTitles: Readonly<Record<LinkName, string>> = {
  hbmToDdr: 'HBM -> DDR',
  ddrToHbm: 'DDR -> HBM',
  ddrToNvme: 'DDR -> NVMe',
  nvmeToDdr: 'NVMe -> DDR',
  hbmToNvme: 'HBM -> NVMe',
  nvmeToHbm: 'NVMe -> HBM',
};

function describeStore(facts: Readonly<Record<string, string | number | boolean>> | undefined): string {
  return Object.entries(facts ?? {})
    .map(([name, fact]) => (fact === true ? name : fact === false ? `no ${name}` : `${name} ${fact}`))
    .join(', ');
}

function tierTable(report: ReplayReport): string {
  const { hits, blockLookups } = report;
  const row = (title: string, blocks: number, store: string): string[] => [
    title,
    formatCount(blocks),
    formatShare(blocks, blockLookups),
    store,
  ];
  const tiers = (['hbm', 'ddr', 'nvme'] as const).filter((tier) => tier in report.tiers || hits[tier] > 0);
  return renderTable(
    [
      { title: 'served by' },
      { title: 'blocks', align: 'right' },
      { title: 'of lookups', align: 'right' },
      { title: 'store' },
    ],
    [
      ...tiers.map((tier) => row(tierTitles[tier], hits[tier], describeStore(report.tiers[tier]))),
      row('prefill', blockLookups - hits.hbm - hits.ddr - hits.nvme, 'computed anew'),
      row('all', blockLookups, ''),
    ],
  );
}

function rateLabel(report: ReplayReport): string {
  if (report.driver === 'modeled') return 'rate (modeled)';
  return report.adapter.software ? 'rate (software adapter)' : 'rate';
}

function linkTable(report: ReplayReport): string {
  const used = linkNames.filter((link) => report.bytesMoved[link] !== undefined);
  return renderTable(
    [{ title: 'moved' }, { title: 'bytes', align: 'right' }, { title: rateLabel(report), align: 'right' }],
    used.map((link) => {
      const gbps = report.gbps[link];
      return [
        linkTitles[link],
        formatBytes(report.bytesMoved[link] ?? 0),
        gbps === undefined ? '-' : formatBytesPerS(gbps * 1e9),
      ];
    }),
  );
}

/** The report as lines of text, the last of which is `verifyFailures N`. */
export function renderReport(report: ReplayReport): string {
  const { demotions, adapter } = report;
  const facts: [name: string, value: string][] = [
    ['requests', formatCount(report.requests)],
    ...(report.skippedLines > 0
      ? ([['skipped lines', formatCount(report.skippedLines)]] as [string, string][])
      : []),
    [
      'demoted',
      `HBM to DDR ${formatCount(demotions.hbmToDdr)}, DDR to NVMe ${formatCount(demotions.ddrToNvme)}, ` +
        `dropped ${formatCount(demotions.dropped)}`,
    ],
    ['verified blocks', formatCount(report.verified)],
    ['adapter', `${adapter.name}${adapter.software && report.driver === 'real' ? ' (software)' : ''}`],
    ['driver', report.driver],
    ['time', formatSeconds(report.wallSeconds)],
    ['hit digest', report.hitDigest],
    ['decision digest', report.decisionDigest],
  ];
  const width = Math.max(...facts.map(([name]) => name.length));
  return [
    tierTable(report),
    ...(Object.keys(report.bytesMoved).length > 0 ? [linkTable(report)] : []),
    facts.map(([name, value]) => `${name.padEnd(width)}  ${value}\n`).join(''),
    `verifyFailures ${report.verifyFailures}\n`,
  ].join('\n');
}
