/** A soak as people read it: samples, growth, the line that counts, and a plot. */

import type { VegaLiteSpec } from '../../src/io/printing/chart.ts';
import { formatBytes, formatCount, renderTable } from '../../src/io/printing/text.ts';
import type { Sample, SoakReport } from './campaign.ts';
import type { Growth, Verdict } from './judging/verdict.ts';

const ROWS = 16;

export function sampleTable(samples: readonly Sample[]): string {
  const step = Math.max(1, Math.ceil(samples.length / ROWS));
  const shown = samples.filter((_, i) => i === samples.length - 1 || i % step === 0);
  const right = 'right' as const;
  return renderTable(
    [
      'minute',
      'requests',
      'RSS',
      'heap used',
      'external',
      'fds',
      'threads',
      'ready HBM',
      'DDR',
      'NVMe',
      'jobs',
    ].map((title) => ({ title, align: right })),
    shown.map((sample) => [
      (sample.hours * 60).toFixed(1),
      formatCount(sample.requests),
      formatBytes(sample.rssBytes),
      formatBytes(sample.heapUsedBytes),
      formatBytes(sample.externalBytes),
      sample.fds ?? '-',
      sample.threads ?? '-',
      ...sample.ready,
      sample.jobs,
    ]),
  );
}

export function growthTable({ growths }: Verdict): string {
  const right = 'right' as const;
  return renderTable(
    [
      { title: 'what' },
      { title: 'median', align: right },
      { title: 'growth an hour', align: right },
      { title: '95 % interval', align: right },
      { title: 'tolerated', align: right },
      { title: 'verdict' },
    ],
    growths.map((growth) => {
      const { what, median, slope, tolerance } = growth;
      const show = (value: number): string => quantity(growth, value);
      return [
        what,
        show(median),
        slope === undefined ? '-' : show(slope.perUnit),
        slope === undefined ? 'too short to say' : `${show(slope.low)} to ${show(slope.high)}`,
        show(tolerance),
        growth.leaks ? 'GROWS' : slope === undefined && growth.unit === 'bytes' ? '-' : 'flat',
      ];
    }),
  );
}

function quantity({ unit }: Growth, value: number): string {
  if (unit === 'count') return String(Math.round(value * 100) / 100);
  const bytes = formatBytes(Math.round(Math.abs(value)));
  return value < 0 ? `-${bytes}` : bytes;
}

export function workLines({ tally, totals, restarts, devicesLost, saves, adapter }: SoakReport): string {
  const links = [...totals.moved].map(([link, blocks]) => `${link} ${formatCount(blocks)}`).join(', ');
  const { hitBlocks, missedBlocks } = totals;
  return [
    `on the ${adapter}`,
    `${formatCount(tally.promptBlocks)} blocks of prompts, ${formatCount(tally.blocksCompared)} blocks compared on the device, ` +
      `hit rate ${((100 * hitBlocks) / (hitBlocks + missedBlocks)).toFixed(1)} %, ${formatCount(totals.evicted)} evictions`,
    `blocks moved: ${links}`,
    `${restarts} restarts (${saves} after a save, ${formatCount(totals.adopted)} blocks found again), ${devicesLost} devices lost ` +
      `(${formatCount(totals.lost)} blocks gone with them, ${tally.interrupted} interruptions recovered), ` +
      `${totals.loadsFailed} loads called off or failed, ${tally.waited} requests waited for room`,
  ].join('\n');
}

export function lastLine({ tally, totals, idle }: SoakReport, { rss, growths }: Verdict): string {
  const moved = [...totals.moved.values()].reduce((sum, blocks) => sum + blocks, 0);
  const { slope, median } = rss;
  const trend =
    slope === undefined
      ? 'unknown (too short to say)'
      : `${(slope.perUnit / 1024).toFixed(0)} KiB per hour-equivalent (${((100 * slope.perUnit) / median).toFixed(2)} % of RSS)`;
  const fds = growths.find(({ what }) => what === 'descriptors');
  const still = fds === undefined ? 'not counted here' : fds.leaks ? 'GROW' : 'flat';
  const cores = idle.map(({ wait, cores: busy }) => `${busy.toFixed(4)} (${wait})`).join(', ');
  return (
    `requests ${tally.requests}, blocks moved ${moved}, wrong blocks ${tally.wrongBlocks}, RSS slope ${trend}, ` +
    `fds ${still}, idle CPU ${cores} of a core`
  );
}

export function plotOf({ samples, adapter }: SoakReport, { warmUpSamples }: Verdict): VegaLiteSpec {
  const MIB = 1024 * 1024;
  const values = samples.flatMap((sample, i) => {
    const minute = sample.hours * 60;
    const part = i < warmUpSamples ? 'warm-up' : 'measured';
    return [
      { panel: 'RSS, MiB', minute, part, value: sample.rssBytes / MIB },
      { panel: 'heap used, MiB', minute, part, value: sample.heapUsedBytes / MIB },
      { panel: 'external, MiB', minute, part, value: sample.externalBytes / MIB },
      ...(sample.fds === undefined ? [] : [{ panel: 'descriptors', minute, part, value: sample.fds }]),
      ...(sample.threads === undefined ? [] : [{ panel: 'threads', minute, part, value: sample.threads }]),
    ];
  });
  return {
    $schema: 'https://vega.github.io/schema/vega-lite/v6.json',
    title: `Soak at rest after each round, ${adapter}`,
    background: 'white',
    data: { values },
    facet: { field: 'panel', type: 'nominal', columns: 1, title: null, sort: null },
    resolve: { scale: { y: 'independent' } },
    spec: {
      width: 640,
      height: 90,
      mark: { type: 'line', point: true },
      encoding: {
        x: { field: 'minute', type: 'quantitative', title: 'minutes of the trace' },
        y: { field: 'value', type: 'quantitative', title: null },
        color: { field: 'part', type: 'nominal', title: null },
      },
    },
  };
}
