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
  renderTable,
} from '../output.ts';
import { printable } from '../resultFile.ts';

const tierOrder = ['hbm', 'ddr', 'nvme'] as const;
const tierTitles = { hbm: 'HBM', ddr: 'DDR', nvme: 'NVMe' } as const;

const linkTitles: Readonly<Record<LinkName, string>> = {
  hbmToDdr: 'HBM -> DDR',
  ddrToHbm: 'DDR -> HBM',
  ddrToNvme: 'DDR -> NVMe',
  nvmeToDdr: 'NVMe -> DDR',
  hbmToNvme: 'HBM -> NVMe',
  nvmeToHbm: 'NVMe -> HBM',
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
  const lines = [title.padEnd(indent.length)];
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
  const tiers = tierOrder.filter((tier) => tier in report.tiers || hits[tier] > 0);
  return renderTable(
    [{ title: 'served by' }, { title: 'blocks', align: 'right' }, { title: 'of lookups', align: 'right' }],
    [
      ...tiers.map((tier) => row(tierTitles[tier], hits[tier])),
      row('prefill', blockLookups - hits.hbm - hits.ddr - hits.nvme),
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
    `verifyFailures ${report.verifyFailures}\n`,
  ].join('\n');
}

// What one `tierkv replay` found: the object that `--json` writes and the table shows. Counts are exact and
// come from the decisions; rates come from the clock and differ from run to run. `hitDigest` and
// `decisionDigest` are equal for equal decisions, whoever moved the bytes.

/** A direction in which blocks are copied. A tier that is off is jumped over. */
export const linkNames = [
  'hbmToDdr',
  'ddrToHbm',
  'ddrToNvme',
  'nvmeToDdr',
  'hbmToNvme',
  'nvmeToHbm',
] as const;
export type LinkName = (typeof linkNames)[number];

export interface ReplayReport {
  readonly requests: number;
  /** Hash ids of all requests together. */
  readonly blockLookups: number;
  /** Blocks of the leading hit of each request, by the tier in which they lay at lookup. */
  readonly hits: { readonly hbm: number; readonly ddr: number; readonly nvme: number };
  /** sha256, in hex, over the hits of every request in order, each as a decimal number with one newline. */
  readonly hitDigest: string;
  /** Blocks that left a tier downwards. `dropped` left the last tier. */
  readonly demotions: { readonly hbmToDdr: number; readonly ddrToNvme: number; readonly dropped: number };
  /** Bytes copied over each link that was used. */
  readonly bytesMoved: { readonly [link in LinkName]?: number };
  /** GB/s (10^9 bytes) of each link that was used, over the time in which it was busy. */
  readonly gbps: { readonly [link in LinkName]?: number };
  /** Blocks whose bytes were compared with what they must be, on arrival in HBM. */
  readonly verified: number;
  /** Of those, the ones that differed. Anything but 0 is a fault of the hardware or of tierkv. */
  readonly verifyFailures: number;
  /** What held the HBM tier. `software` marks figures that say nothing about a GPU. */
  readonly adapter: { readonly name: string; readonly software: boolean };
  readonly wallSeconds: number;
  /** sha256, in hex, over the decision log. */
  readonly decisionDigest: string;
  readonly driver: 'real' | 'modeled';
  /** The eviction policy. */
  readonly policy: string;
  /** Malformed trace lines left out (`--skip-bad`). */
  readonly skippedLines: number;
  /** What each configured tier's store really got, fastest first: `TierStore.describe()` by tier name. */
  readonly tiers: { readonly [tier: string]: Readonly<Record<string, string | number | boolean>> };
}
