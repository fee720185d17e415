/** A parity run as a report: how far is the simulator from the real runtime on this machine? */

import type { Summary } from '../../sim/metrics/statistics.ts';
import type { ServedRequest } from '../../studies/parity/traffic.ts';
import {
  linkTitle,
  type Report,
  type ReportSection,
  type TimelineLane,
  type TimelineRequest,
  type TimelineSection,
  thinned,
  tierTitle,
  written,
} from './model.ts';
import { originOf, settingIn } from './origin.ts';
import { TimeBins } from './timeBins.ts';

interface BothSides<T> {
  readonly real: T;
  readonly predicted: T;
}

interface ComparedTimes extends BothSides<Summary> {
  readonly eachError: number | null;
}

/** Results of a parity run; times in microseconds. */
interface ComparedRuns {
  readonly runner: string;
  readonly adapter: { readonly name: string; readonly software: boolean };
  readonly latencyModel: string;
  readonly requests: number;
  readonly exact: {
    readonly identical: boolean;
    readonly lines: number;
    readonly firstDifference: number | null;
  };
  readonly hits: BothSides<{ readonly lookups: number; readonly rate: number }> & {
    readonly byTier: Readonly<Record<string, BothSides<number>>>;
    /** Percentage points. */
    readonly points: number;
  };
  readonly transfers: Readonly<Record<string, ComparedTimes & { readonly medianError: number }>>;
  readonly latencies: Readonly<
    Record<
      string,
      ComparedTimes & { readonly meanError: number; readonly p50Error: number; readonly p99Error: number }
    >
  >;
  /** Hand-offs of a pair: blocks that went from one runtime to the other. */
  readonly handoffs?: {
    readonly ends: Readonly<Record<string, number>>;
    readonly count: BothSides<number>;
    readonly blocks: BothSides<number>;
    readonly bytes: BothSides<number>;
  };
  readonly wrongBlocks: number;
  readonly interruptedSteps: number;
  /** Each request of both runs, for the timeline. */
  readonly served?: BothSides<readonly ServedRequest[]>;
}

/** Medians that are predicted within this share are near. */
const NEAR = 0.25;

const names: Readonly<Record<string, string>> = {
  ttft: 'first token',
  tpot: 'between tokens',
  e2e: 'whole request',
};

export function parityReport(runs: ComparedRuns, command: string): Report {
  const { exact, hits, latencies, transfers, wrongBlocks, adapter, requests, served } = runs;
  const isRight = exact.identical && wrongBlocks === 0;
  const { ttft, e2e } = latencies;
  const worst = Math.max(0, ...Object.values(latencies).map(({ p50Error }) => Math.abs(p50Error)));
  const isNear = worst <= NEAR;
  const off = [ttft, e2e].flatMap((each, i) =>
    each === undefined
      ? []
      : [`${written(Math.abs(each.p50Error), 'share')} of the median ${i === 0 ? 'first token' : 'request'}`],
  );
  const answer = isRight
    ? `${isNear ? 'Yes' : 'In part'}: the replay of ${written(exact.lines, 'count')} lines is identical; the free prediction is off by ` +
      `${[`${written(Math.abs(hits.points) / 100, 'share')} of hits`, ...off].join(', ')}.`
    : `No: ${exact.identical ? `${wrongBlocks} blocks came back wrong` : 'the replay differs from the run'}.`;
  return {
    title: 'The simulator beside the real runtime',
    question: 'Does the simulator decide as the real runtime, and how far are its predictions?',
    answer,
    verdict: !isRight ? 'no' : isNear ? 'yes' : 'open',
    figures: [
      {
        name: 'decisions replayed',
        value: exact.lines,
        unit: 'count',
        note: exact.identical ? 'identical' : `differ at byte ${exact.firstDifference}`,
      },
      { name: 'blocks that came back wrong', value: wrongBlocks, unit: 'count', target: { most: 0 } },
      {
        name: 'hits, real',
        value: hits.real.rate,
        unit: 'share',
        note: `predicted ${written(hits.predicted.rate, 'share')}`,
      },
      ...Object.entries(latencies).map(([name, { eachError }]) => ({
        name: `${names[name] ?? name}, half are off by at most`,
        value: eachError,
        unit: 'share' as const,
      })),
      { name: 'requests', value: requests, unit: 'count' },
    ],
    sections: [
      {
        kind: 'bars',
        title: 'Where prompts were found',
        unit: 'share',
        bars: Object.entries(hits.byTier).flatMap(([tier, sides]) => [
          { name: tierTitle(tier), group: 'real', value: sides.real },
          { name: tierTitle(tier), group: 'predicted', value: sides.predicted },
        ]),
      },
      ...Object.entries(latencies).map(([name, sides]) => percentiles(names[name] ?? name, sides)),
      ...(served === undefined ? [] : [timelineOf(served)]),
      timesTable('Times of requests', latencies),
      ...(Object.keys(transfers).length === 0 ? [] : [timesTable('Times of transfers', transfers)]),
      ...(runs.handoffs === undefined ? [] : [handoffTable(runs.handoffs)]),
    ],
    next: isRight
      ? [
          ...(isNear
            ? []
            : [
                `A median is off by ${written(worst, 'share')}: the machine was busy, the run was short, or the model of time does not fit what served. Repeat it on a quiet machine with more requests.`,
              ]),
          'Where the median is right and the tail is not, look at the queue: the rate of the traffic is near what the machine serves.',
          `Where transfers are off, calibrate the links again: tierkv calibrate, then ${settingIn(command, 'links')}.`,
        ]
      : [
          `Keep the decision log (${settingIn(command, 'log')}) and report it: a replay that differs is a fault of tierkv, and so is a wrong block.`,
        ],
    limits: [
      ...(adapter.software
        ? [`${adapter.name} is a software device: its times say nothing about a GPU.`]
        : []),
      'Real times are of this machine, in one run: another run differs by what else the machine does.',
      ...(runs.interruptedSteps === 0 ? [] : [`${runs.interruptedSteps} steps were interrupted.`]),
    ],
    origin: originOf(command, {
      'served by': runs.runner,
      device: adapter.name,
      'model of time': runs.latencyModel,
    }),
  };
}

/** Both runs on one axis of time, each from its own first arrival. */
function timelineOf(served: BothSides<readonly ServedRequest[]>): TimelineSection {
  const bins = new TimeBins();
  const requests: TimelineRequest[] = [];
  const underWay: TimelineLane['series'][number][] = [];
  for (const side of ['real', 'predicted'] as const) {
    const startUs = served[side].reduce((least, { arrivalUs }) => Math.min(least, arrivalUs), Infinity);
    for (const { key, arrivalUs, firstTokenUs, lastTokenUs, outputTokens } of served[side]) {
      const second = (us: number): number => (us - startUs) / 1e6;
      bins.add(side, arrivalUs - startUs, (firstTokenUs - arrivalUs) / 1000);
      requests.push({
        id: `${key}, ${side}`,
        arrivalS: second(arrivalUs),
        joinedS: null,
        firstTokenS: second(firstTokenUs),
        endS: second(lastTokenUs),
        where: side,
        promptTokens: 0,
        outputTokens,
        status: 'completed',
      });
    }
    underWay.push({ name: side, points: countsOver(requests.filter(({ where }) => where === side)) });
  }
  requests.sort((a, b) => a.arrivalS - b.arrivalS || (a.id < b.id ? -1 : 1));
  return {
    kind: 'timeline',
    title: 'Both runs over time',
    note: 'Seconds are from the first arrival of each run. A request stands twice, real and predicted: a click zooms to it.',
    lanes: [
      { name: 'requests under way', unit: 'count', series: underWay },
      {
        name: 'time to the first token, by arrival',
        unit: 'ms',
        series: ['real', 'predicted'].map((name) => ({ name, points: bins.means(name) })),
      },
    ],
    events: [],
    requests,
    requestsInAll: requests.length,
    parts: ['until its first token', 'until its last token'],
    place: 'run',
  };
}

/** Most changes of a lane; of more, every n-th is left out. */
const CHANGES_MOST = 1600;

function countsOver(requests: readonly TimelineRequest[]): (readonly [number, number])[] {
  const changes = requests
    .flatMap(({ arrivalS, endS }) => [[arrivalS, 1] as const, [endS ?? arrivalS, -1] as const])
    .sort(([a], [b]) => a - b);
  let count = 0;
  const points = changes.map(([s, by]): readonly [number, number] => [s, (count += by)]);
  return [...thinned(points, CHANGES_MOST)];
}

const shares: readonly (readonly [share: number, of: keyof Summary])[] = [
  [0.5, 'p50'],
  [0.9, 'p90'],
  [0.95, 'p95'],
  [0.99, 'p99'],
  [1, 'max'],
];

function percentiles(title: string, sides: ComparedTimes): ReportSection {
  const points = (summary: Summary): [number, number][] =>
    shares.map(([share, of]): [number, number] => [100 * share, summary[of] / 1000]);
  return {
    kind: 'lines',
    title: `${title}: real beside predicted`,
    x: { title: 'percentile of requests', unit: 'count' },
    y: { title, unit: 'ms' },
    series: [
      { name: 'real', points: points(sides.real) },
      { name: 'predicted', points: points(sides.predicted) },
    ],
  };
}

function handoffTable({ ends, count, blocks, bytes }: NonNullable<ComparedRuns['handoffs']>): ReportSection {
  return {
    kind: 'table',
    title: `Hand-offs: ${Object.entries(ends)
      .map(([name, number]) => `${name} ${number}`)
      .join(', ')}`,
    columns: [{ title: '' }, { title: 'real', unit: 'count' }, { title: 'predicted', unit: 'count' }],
    rows: [
      ['prompts', count.real, count.predicted],
      ['blocks', blocks.real, blocks.predicted],
      ['bytes', bytes.real, bytes.predicted],
    ],
  };
}

function timesTable(title: string, all: Readonly<Record<string, ComparedTimes>>): ReportSection {
  return {
    kind: 'table',
    title,
    columns: [
      { title: '' },
      { title: 'real, median', unit: 'ms' },
      { title: 'predicted, median', unit: 'ms' },
      { title: 'real, p99', unit: 'ms' },
      { title: 'predicted, p99', unit: 'ms' },
      { title: 'half are off by at most', unit: 'share' },
    ],
    rows: Object.entries(all).map(([name, { real, predicted, eachError }]) => [
      names[name] ?? linkTitle(name),
      real.p50 / 1000,
      predicted.p50 / 1000,
      real.p99 / 1000,
      predicted.p99 / 1000,
      eachError,
    ]),
  };
}
