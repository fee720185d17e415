/** Findings of `tierkv parity`, as text. Figures of a software device say so. */

import { formatCount, formatCounted, formatShare, printable, renderTable } from '../../io/printing/text.ts';
import {
  type HandoffComparison,
  type HitComparison,
  latencyNames,
  type ParityReport,
  relative,
  type Sides,
} from '../../studies/parity/comparison.ts';
import { parityVerdict } from '../../studies/parity/verdict.ts';

const right = (title: string): { title: string; align: 'right' } => ({ title, align: 'right' });

function signed(error: number): string {
  if (!Number.isFinite(error)) return '-';
  return `${error >= 0 ? '+' : '-'}${(100 * Math.abs(error)).toFixed(1)} %`;
}

function time(us: number): string {
  if (us >= 1e6) return `${(us / 1e6).toFixed(2)} s`;
  return us >= 1e4 ? `${(us / 1e3).toFixed(1)} ms` : `${(us / 1e3).toFixed(2)} ms`;
}

function hitTable({ real, predicted, byTier, points }: HitComparison): string {
  const rows = Object.entries(byTier).map(([tier, sides]) => [
    `found in ${tier}`,
    formatShare(sides.real, 1),
    formatShare(sides.predicted, 1),
    `${(100 * (sides.predicted - sides.real)).toFixed(2)} points`,
  ]);
  const all = ['hit rate', formatShare(real.rate, 1), formatShare(predicted.rate, 1)];
  return renderTable(
    [{ title: `of ${formatCount(real.lookups)} blocks` }, right('real'), right('predicted'), right('apart')],
    [...rows, [...all, `${points.toFixed(2)} points`]],
  );
}

function linkTable(transfers: ParityReport['transfers'], software: boolean): string {
  return renderTable(
    [
      { title: software ? 'transfer (software device)' : 'transfer' },
      right('real'),
      right('median'),
      right('predicted'),
      right('median'),
      right('error'),
      right('of each'),
    ],
    Object.entries(transfers).map(([link, { real, predicted, medianError, eachError }]) => [
      link,
      formatCount(real.count),
      time(real.p50),
      formatCount(predicted.count),
      time(predicted.p50),
      real.count === 0 || predicted.count === 0 ? '-' : signed(medianError),
      eachError === null ? '-' : `${(100 * eachError).toFixed(1)} %`,
    ]),
  );
}

function latencyTable(latencies: ParityReport['latencies']): string {
  return renderTable(
    [
      { title: 'of requests' },
      right('real mean'),
      right('predicted'),
      right('error'),
      right('real p99'),
      right('predicted'),
      right('error'),
      right('of each'),
    ],
    latencyNames.map((name) => {
      const { real, predicted, meanError, p99Error, eachError } = latencies[name];
      return [
        name.toUpperCase(),
        time(real.mean),
        time(predicted.mean),
        signed(meanError),
        time(real.p99),
        time(predicted.p99),
        signed(p99Error),
        `${(100 * eachError).toFixed(1)} %`,
      ];
    }),
  );
}

function handoffTable({ link, ends, count, blocks, bytes, timesUs }: HandoffComparison): string {
  const row = (name: string, { real, predicted }: Sides<number>): string[] => [
    name,
    formatCount(real),
    formatCount(predicted),
    signed(relative(predicted, real)),
  ];
  const how = Object.entries(ends)
    .map(([name, number]) => `${name} ${formatCount(number)}`)
    .join(', ');
  const table = renderTable(
    [{ title: 'handed off' }, right('real'), right('predicted'), right('apart')],
    [row('prompts', count), row('blocks', blocks), row('bytes', bytes)],
  );
  const gbps = (link.bandwidthBytesPerS / 1e9).toFixed(3);
  return (
    `${table}\nhand-offs: ${how}; half took ${time(timesUs.p50)} or less, computing included. Link of the prediction: ` +
    `${time(link.baseLatencyUs)} and ${gbps} GB/s, fitted to ${formatCount(link.handoffs)} of a rehearsal (half are off by ` +
    `${formatShare(link.error, 1)} or less)\n`
  );
}

/** The report as lines of text, which end in its verdict. */
export function renderParity(report: ParityReport): string {
  const { adapter, exact, hits, transfers, latencies } = report;
  const device = `${printable(adapter.name)}${adapter.software ? ', a SOFTWARE device' : ''}`;
  const where = exact.firstDifference === null ? '' : `, first at byte ${formatCount(exact.firstDifference)}`;
  const replayed = `${formatCounted(exact.lines, 'lines')}, ${formatCounted(exact.bytes, 'bytes')}`;
  return [
    `${formatCounted(report.requests, 'requests')} on ${device}; steps by ${report.runner}, ` +
      `${report.latencyModel}; links ${printable(report.links.origin)}\n`,
    hitTable(hits),
    ...(Object.keys(transfers).length === 0 ? [] : [linkTable(transfers, adapter.software)]),
    latencyTable(latencies),
    ...(report.handoffs === undefined ? [] : [handoffTable(report.handoffs)]),
    `wrong blocks ${report.wrongBlocks}, interrupted steps ${report.interruptedSteps}\n`,
    `exact replay: ${exact.identical ? 'identical' : `DIFFERENT${where}`} (${replayed})\n`,
    `${parityVerdict(report).join('\n')}\n`,
  ].join('\n');
}
