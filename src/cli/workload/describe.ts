/** What `tierkv workload describe` prints: one table of lengths and arrivals, one of who sends. */

import type { Distribution, GroupSummary, WorkloadSummary } from '../../sim/workload/index.ts';
import { formatCount, formatSeconds, formatShare, printable, renderTable } from '../output/index.ts';
import type { OpenedWorkload } from './open.ts';

const number = (value: number): string => (value >= 100 ? formatCount(Math.round(value)) : value.toFixed(1));

function distributionRow(name: string, distribution: Distribution): string[] {
  const { mean, p50, p90, p99, max } = distribution;
  return [name, number(mean), ...[p50, p90, p99, max].map(formatCount)];
}

/** One line on what was taken of a recorded trace and what was left over; '' for what is generated. */
export function takenText(source: string, { format, taken }: OpenedWorkload): string {
  if (taken === undefined || taken.rows === 0) return '';
  const { columns, rows, firstUs, lastUs } = taken;
  const first = firstUs === 0 ? '' : ` from ${formatSeconds(firstUs / 1e6)}`;
  const left = columns.leftOver.length === 0 ? 'nothing' : columns.leftOver.join(', ');
  return printable(
    `read ${source} as ${format}: ${formatCount(rows)} requests over ${formatSeconds((lastUs - firstUs) / 1e6)}` +
      `${first}; columns ${columns.columns.join(', ')}; times: ${columns.times}; left over: ${left}`,
  );
}

/**
 * What the rate and the number of requests of a specification mean where its clients hold conversations: the
 * rate counts sessions, and rounds come on top. '' for other workloads.
 */
export function sessionsText({ spec, workload }: OpenedWorkload): string {
  if (spec === undefined || workload === undefined) return '';
  const talking = workload.clients.filter(({ reasoning }) => reasoning?.multiTurn?.singleSession === false);
  if (talking.length === 0) return '';
  const rounds = talking.map((client) => client.walk?.maxRounds ?? client.reasoning!.multiTurn!.maxRounds);
  const most = Math.max(...rounds);
  const upTo = Number.isSafeInteger(most)
    ? `of up to ${formatCount(most)} rounds`
    : 'of as many rounds as it draws';
  const rate = spec.aggregateRate > 0 ? ` (${spec.aggregateRate} a second)` : '';
  const means = `the rate${rate} counts sessions, each ${upTo}`;
  const { sessions } = workload;
  const cap = workload.limits.maxRequests;
  if (sessions === undefined) {
    const cut = cap > 0 ? `; num_requests (${formatCount(cap)}) counts all rounds` : '';
    return `open loop: ${means}${cut}`;
  }
  let all = 0;
  for (const kind of sessions.kindOf) all += sessions.kinds[kind].maxRounds;
  const cut =
    cap > 0
      ? `; num_requests (${formatCount(cap)}) counts planned rounds and so sets how many sessions begin, as upstream`
      : '';
  const served =
    sessions.followUpBudget < 0 && Number.isSafeInteger(all) ? `, up to ${formatCount(all)} requests` : '';
  return `closed loop: ${means}: ${formatCount(sessions.seeds.length)} sessions begin${served}${cut}`;
}

const right = (title: string): { title: string; align: 'right' } => ({ title, align: 'right' });
const MAX_ROWS = 12;

function groupTable(title: string, groups: readonly GroupSummary[], requests: number): string {
  if (groups.length === 0 || (groups.length === 1 && groups[0].name === '')) return '';
  const rows = groups
    .slice(0, MAX_ROWS)
    .map((group) => [
      group.name === '' ? '(none)' : group.name,
      formatCount(group.requests),
      formatShare(group.requests, requests),
      formatCount(group.inputTokens),
      formatCount(group.outputTokens),
    ]);
  const more = groups.length > MAX_ROWS ? `and ${formatCount(groups.length - MAX_ROWS)} more\n` : '';
  const columns = ['requests', 'share', 'input tokens', 'output tokens'];
  return renderTable([{ title }, ...columns.map(right)], rows) + more;
}

export function renderSummary(summary: WorkloadSummary): string {
  const lasts = (summary.lastArrivalUs - summary.firstArrivalUs) / 1e6;
  const facts: string[][] = [
    ['requests', formatCount(summary.requests)],
    [
      'arrivals',
      `${formatSeconds(lasts)}, ${number(summary.requestsPerS)} a second, CV of gaps ` +
        `${summary.gapCv.toFixed(2)}`,
    ],
    ['tokens', `${formatCount(summary.inputTokens)} in, ${formatCount(summary.outputTokens)} out`],
  ];
  if (summary.sessions > 0) facts.push(['sessions', formatCount(summary.sessions)]);
  facts.push(['prompt tokens seen before', formatShare(summary.reusedTokens, summary.inputTokens)]);
  if (summary.blocks > 0) {
    facts.push([
      'blocks seen before',
      `${formatCount(summary.reusedBlocks)} of ${formatCount(summary.blocks)}, ` +
        `${formatShare(summary.reusedBlocks, summary.blocks)}`,
    ]);
  }
  const lengths = renderTable(
    [{ title: 'tokens a request' }, right('mean'), right('p50'), right('p90'), right('p99'), right('max')],
    [distributionRow('input', summary.input), distributionRow('output', summary.output)],
  );
  return [
    renderTable([{ title: 'workload' }, { title: '' }], facts),
    lengths,
    groupTable('tenant', summary.tenants, summary.requests),
    groupTable('class', summary.classes, summary.requests),
    groupTable('client', summary.clients, summary.requests),
  ].join('');
}
