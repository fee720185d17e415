/** Output of `tierkv workload describe`: one table of lengths and arrivals, one of senders. */

import type { VegaLiteSpec } from '../../io/printing/chart.ts';
import {
  formatCount,
  formatCounted,
  formatSeconds,
  formatShare,
  printable,
  renderTable,
} from '../../io/printing/text.ts';
import type { OpenedWorkload } from '../../sim/build/openWorkload.ts';
import type {
  Distribution,
  GroupSummary,
  WorkloadSummarizer,
  WorkloadSummary,
} from '../../sim/workload/summary.ts';

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
  const notes = columns.notes.map((note) => `; ${note}`).join('');
  return printable(
    `read ${source} as ${format}: ${formatCounted(rows, 'requests')} over ${formatSeconds((lastUs - firstUs) / 1e6)}` +
      `${first}; columns ${columns.columns.join(', ')}; times: ${columns.times}${notes}; left over: ${left}`,
  );
}

/**
 * Explains the rate and the number of requests of a specification whose clients hold conversations: the rate counts
 * sessions, and rounds come on top. '' for other workloads.
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
  const rate = spec.aggregateRate > 0 ? ` (${Number(spec.aggregateRate.toPrecision(4))} a second)` : '';
  const others = talking.length < workload.clients.length ? 'single requests and ' : '';
  const means = `the rate${rate} counts ${others}sessions, each ${upTo}`;
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

//  The picture of a workload: arrivals over time, lengths, and where prompt tokens come from, by tenant.

const TIME_BINS = 120;
const LENGTH_BINS = 48;
const WIDTH = 520;

function arrivalBins(arrivalsUs: Float64Array): Array<{ s: number; rate: number }> {
  if (arrivalsUs.length === 0) return [];
  const first = arrivalsUs[0];
  const spanUs = Math.max(1, arrivalsUs[arrivalsUs.length - 1] - first);
  const counts = new Float64Array(TIME_BINS);
  for (const us of arrivalsUs)
    counts[Math.min(TIME_BINS - 1, Math.floor(((us - first) / spanUs) * TIME_BINS))]++;
  const binS = spanUs / TIME_BINS / 1e6;
  return [...counts].map((count, i) => ({ s: first / 1e6 + i * binS, rate: count / binS }));
}

/** Shares of requests in bins of equal width on a logarithmic axis. */
function lengthBins(
  side: string,
  tokens: Float64Array,
): Array<{ side: string; tokens: number; share: number }> {
  let max = 2;
  for (const value of tokens) max = Math.max(max, value);
  const top = Math.log2(max) * (1 + 1e-9);
  const counts = new Float64Array(LENGTH_BINS);
  for (const value of tokens)
    counts[Math.min(LENGTH_BINS - 1, Math.floor((Math.log2(Math.max(1, value)) / top) * LENGTH_BINS))]++;
  return [...counts].map((count, i) => ({
    side,
    tokens: 2 ** ((top * (i + 0.5)) / LENGTH_BINS),
    share: tokens.length === 0 ? 0 : count / tokens.length,
  }));
}

export function workloadChart(title: string, summarizer: WorkloadSummarizer): VegaLiteSpec {
  const summary = summarizer.summary();
  const lengths = [
    ...lengthBins('input', summarizer.inputTokens.view()),
    ...lengthBins('output', summarizer.outputTokens.view()),
  ];
  const sharing = [
    { kind: 'seen before', tokens: summary.reusedTokens },
    { kind: 'new', tokens: summary.inputTokens - summary.reusedTokens },
  ];
  const groups = summary.tenants.length > 1 ? summary.tenants : summary.clients;
  const senders = groups
    .slice(0, 20)
    .map((group) => ({ name: group.name === '' ? '(none)' : group.name, requests: group.requests }));
  return {
    $schema: 'https://vega.github.io/schema/vega-lite/v6.json',
    title,
    background: 'white',
    vconcat: [
      {
        width: WIDTH,
        height: 130,
        data: { values: arrivalBins(summarizer.arrivalsUs.view()) },
        mark: { type: 'area', line: true, opacity: 0.4, interpolate: 'step-after' },
        encoding: {
          x: { field: 's', type: 'quantitative', title: 'time (s)' },
          y: { field: 'rate', type: 'quantitative', title: 'requests a second' },
        },
      },
      {
        width: WIDTH,
        height: 130,
        data: { values: lengths },
        mark: { type: 'line', interpolate: 'step' },
        encoding: {
          x: {
            field: 'tokens',
            type: 'quantitative',
            scale: { type: 'log', base: 2 },
            title: 'tokens a request',
          },
          y: { field: 'share', type: 'quantitative', title: 'share of requests', axis: { format: '%' } },
          color: { field: 'side', type: 'nominal', title: null },
        },
      },
      {
        width: WIDTH,
        height: 24,
        data: { values: sharing },
        mark: 'bar',
        encoding: {
          x: {
            field: 'tokens',
            type: 'quantitative',
            stack: 'normalize',
            title: 'prompt tokens an unlimited cache has',
            axis: { format: '%' },
          },
          color: { field: 'kind', type: 'nominal', title: null },
        },
      },
      {
        width: WIDTH,
        data: { values: senders },
        mark: 'bar',
        encoding: {
          x: { field: 'requests', type: 'quantitative' },
          y: {
            field: 'name',
            type: 'nominal',
            sort: '-x',
            title: summary.tenants.length > 1 ? 'tenant' : 'client',
          },
        },
      },
    ],
    resolve: { scale: { color: 'independent' } },
  };
}
