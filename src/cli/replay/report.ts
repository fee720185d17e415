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
} from '../../io/printing/text.ts';
import { type TierName, TOP, tierLinks, tierNames, tierTitle } from '../../runtime/tier/tier.ts';
import { linkTitles, type ReplayReport } from '../../studies/replay/report.ts';

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
  return tierNames
    .filter((tier) => report.tiers[tier] !== undefined)
    .map((tier) => storeLines(tierTitle(tier), report.tiers[tier]))
    .join('');
}

/** Tiers that the run had, from fast to slow. */
function tiersOf({ tiers, hits }: ReplayReport): readonly TierName[] {
  return tierNames.filter((tier) => tier in tiers || (hits[tier] ?? 0) > 0);
}

function foundIn({ hits }: ReplayReport): number {
  return Object.values(hits).reduce((sum, blocks) => sum + blocks, 0);
}

function tierTable(report: ReplayReport): string {
  const { hits, blockLookups } = report;
  const row = (title: string, blocks: number): string[] => [
    title,
    formatCount(blocks),
    formatShare(blocks, blockLookups),
  ];
  return renderTable(
    [{ title: 'served by' }, { title: 'blocks', align: 'right' }, { title: 'of lookups', align: 'right' }],
    [
      ...tiersOf(report).map((tier) => row(tierTitle(tier), hits[tier] ?? 0)),
      row('prefill', blockLookups - foundIn(report)),
      row('all', blockLookups),
    ],
  );
}

function rateLabel(report: ReplayReport): string {
  if (report.driver === 'modeled') return 'rate (modeled)';
  return report.adapter.software ? 'rate (software adapter)' : 'rate';
}

function linkTable(report: ReplayReport): string {
  const used = [...linkTitles()].filter(([link]) => report.bytesMoved[link] !== undefined);
  return renderTable(
    [{ title: 'moved' }, { title: 'bytes', align: 'right' }, { title: rateLabel(report), align: 'right' }],
    used.map(([link, title]) => {
      const gbps = report.gbps[link];
      return [
        title,
        formatBytes(report.bytesMoved[link] ?? 0),
        gbps === undefined ? '-' : formatBytesPerS(gbps * 1e9),
      ];
    }),
  );
}

/** Blocks that left each tier downwards, such as `HBM to DDR 12`; links of a tier that is off are left out. */
function demotedText({ demotions, tiers }: ReplayReport): string {
  const parts = tierLinks().flatMap(({ name, from, to }) => {
    const blocks = demotions[name] ?? 0;
    const ends = [tierNames[from], tierNames[to]];
    const isOn = name in demotions && ends.every((tier) => tier in tiers);
    return isOn || blocks > 0 ? [`${ends.map(tierTitle).join(' to ')} ${formatCount(blocks)}`] : [];
  });
  return [...parts, `dropped ${formatCount(demotions.dropped)}`].join(', ');
}

/** The worth of the lower tiers, in a sentence; nothing for a run without them. */
function worthLine(report: ReplayReport): string {
  const { hbmAloneHits, blockLookups } = report;
  if (hbmAloneHits === undefined || blockLookups === 0) return '';
  const names = tiersOf(report)
    .filter((tier) => tier !== tierNames[TOP])
    .map((tier) => tierTitle(tier))
    .join(' and ');
  const percent = (blocks: number): string => `${Math.round((100 * blocks) / blockLookups)} %`;
  return `Without ${names} ${percent(hbmAloneHits)} of the blocks would have been found, with them ${percent(foundIn(report))}.\n`;
}

/** The report as lines of text. The last ones are `verifyFailures N` and what the lower tiers were good for. */
export function renderReport(report: ReplayReport): string {
  const { adapter } = report;
  const facts: [name: string, value: string][] = [
    ['requests', formatCount(report.requests)],
    ...(report.skippedLines > 0
      ? ([['skipped lines', formatCount(report.skippedLines)]] as [string, string][])
      : []),
    ['demoted', demotedText(report)],
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
