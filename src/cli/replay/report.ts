/**
 * The report as text for people: what each tier served, what moved how fast on what, and the digests by which
 * two runs are compared. Figures of a software adapter or a model are labelled where they stand. The last
 * line is the verdict.
 */

import {
  formatBytes,
  formatBytesPerS,
  formatCount,
  formatSeconds,
  formatShare,
  printable,
  renderTable,
} from '../../printing/text.ts';
import { type LinkName, linkNames, type ReplayReport } from '../../replay/report.ts';

const tierOrder = ['hbm', 'ddr', 'nvme', 'remote'] as const;
const tierTitles = { hbm: 'HBM', ddr: 'DDR', nvme: 'NVMe', remote: 'Remote' } as const;

const linkTitles: Readonly<Record<LinkName, string>> = {
  hbmToDdr: 'HBM -> DDR',
  ddrToHbm: 'DDR -> HBM',
  ddrToNvme: 'DDR -> NVMe',
  nvmeToDdr: 'NVMe -> DDR',
  hbmToNvme: 'HBM -> NVMe',
  nvmeToHbm: 'NVMe -> HBM',
  hbmToRemote: 'HBM -> Remote',
  ddrToRemote: 'DDR -> Remote',
  nvmeToRemote: 'NVMe -> Remote',
  remoteToHbm: 'Remote -> HBM',
  remoteToDdr: 'Remote -> DDR',
};

const lineWidth = 110;

function factText(name: string, fact: string | number | boolean): string {
  if (fact === true) return name;
  if (fact === false) return `no ${name}`;
  return printable(`${name} ${typeof fact === 'number' && /bytes/i.test(name) ? formatBytes(fact) : fact}`);
}

/** `title` and its facts, broken into lines under each other. Facts without a value are left out. */
function storeLines(title: string, facts: Readonly<Record<string, string | number | boolean>>): string {
  const indent = ' '.repeat(6);
  const lines = [`${title} `.padEnd(indent.length)];
  for (const text of Object.entries(facts).flatMap(([name, fact]) =>
    fact === '' ? [] : factText(name, fact),
  )) {
    const line = lines.at(-1)!;
    if (line.trim() === title || line.trim() === '') lines[lines.length - 1] = line + text;
    else if (line.length + text.length + 2 <= lineWidth) lines[lines.length - 1] = `${line}, ${text}`;
    else {
      lines[lines.length - 1] = `${line},`;
      lines.push(indent + text);
    }
  }
  return `${lines.join('\n')}\n`;
}

function storesText(report: ReplayReport): string {
  return tierOrder
    .filter((tier) => report.tiers[tier] !== undefined)
    .map((tier) => storeLines(tierTitles[tier], report.tiers[tier]))
    .join('');
}

function tierTable(report: ReplayReport): string {
  const { hits, blockLookups } = report;
  const row = (title: string, blocks: number): string[] => [
    title,
    formatCount(blocks),
    formatShare(blocks, blockLookups),
  ];
  const hitsOf = (tier: (typeof tierOrder)[number]): number => hits[tier] ?? 0;
  const tiers = tierOrder.filter((tier) => tier in report.tiers || hitsOf(tier) > 0);
  const found = tierOrder.reduce((sum, tier) => sum + hitsOf(tier), 0);
  return renderTable(
    [{ title: 'served by' }, { title: 'blocks', align: 'right' }, { title: 'of lookups', align: 'right' }],
    [
      ...tiers.map((tier) => row(tierTitles[tier], hitsOf(tier))),
      row('prefill', blockLookups - found),
      row('all', blockLookups),
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

/** What the tiers below HBM were good for, in a sentence; nothing where there are none. */
function worthLine({ hbmAloneHits, hits, blockLookups, tiers }: ReplayReport): string {
  if (hbmAloneHits === undefined || blockLookups === 0) return '';
  const below = tierOrder.filter((tier) => tier !== 'hbm' && (tier in tiers || (hits[tier] ?? 0) > 0));
  const names = below.map((tier) => tierTitles[tier]).join(' and ');
  const percent = (blocks: number): string => `${Math.round((100 * blocks) / blockLookups)} %`;
  const found = tierOrder.reduce((sum, tier) => sum + (hits[tier] ?? 0), 0);
  return `Without ${names} ${percent(hbmAloneHits)} of the blocks would have been found, with them ${percent(found)}.\n`;
}

/** The report as lines of text. The last ones are `verifyFailures N` and what the lower tiers were good for. */
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
    [
      'adapter',
      `${printable(adapter.name)}${adapter.software && report.driver === 'real' ? ' (software)' : ''}`,
    ],
    ['driver', report.driver],
    ['policy', printable(report.policy)],
    ['time', formatSeconds(report.wallSeconds)],
    ['hit digest', report.hitDigest],
    ['decision digest', report.decisionDigest],
  ];
  const width = Math.max(...facts.map(([name]) => name.length));
  return [
    tierTable(report),
    ...(Object.keys(report.bytesMoved).length > 0 ? [linkTable(report)] : []),
    ...(Object.keys(report.tiers).length > 0 ? [storesText(report)] : []),
    facts.map(([name, value]) => `${name.padEnd(width)}  ${value}\n`).join(''),
    `verifyFailures ${report.verifyFailures}\n${worthLine(report)}`,
  ].join('\n');
}
