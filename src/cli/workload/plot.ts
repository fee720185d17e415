/** The picture of a workload: arrivals over time, lengths, and where prompt tokens come from, by tenant. */

import type { WorkloadSummarizer } from '../../sim/workload/index.ts';
import type { VegaLiteSpec } from '../output/index.ts';

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
