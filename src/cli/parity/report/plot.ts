/** Real and predicted side by side: how latencies and transfer times are distributed. */

import type { VegaLiteSpec } from '../../output/index.ts';
import type { RunObserver } from '../observer.ts';
import type { ServedRequest } from '../serving/runner.ts';

const POINTS = 100;

interface Point {
  readonly what: string;
  readonly run: string;
  readonly ms: number;
  readonly share: number;
}

function distribution(what: string, run: string, valuesUs: readonly number[]): Point[] {
  if (valuesUs.length === 0) return [];
  const sorted = Float64Array.from(valuesUs).sort();
  return Array.from({ length: POINTS + 1 }, (_, i) => {
    const at = Math.min(sorted.length - 1, Math.floor((i / POINTS) * sorted.length));
    return { what, run, ms: Math.max(sorted[at], 1) / 1000, share: i / POINTS };
  });
}

/** One run of the two, as it is drawn. */
export interface DrawnRun {
  readonly name: string;
  readonly requests: readonly ServedRequest[];
  readonly observed: RunObserver;
}

function pointsOf({ name, requests, observed }: DrawnRun, links: readonly string[]): Point[] {
  return [
    ...distribution(
      'TTFT',
      name,
      requests.map(({ arrivalUs, firstTokenUs }) => firstTokenUs - arrivalUs),
    ),
    ...distribution(
      'E2E',
      name,
      requests.map(({ arrivalUs, lastTokenUs }) => lastTokenUs - arrivalUs),
    ),
    ...links.flatMap((link) =>
      distribution(
        link,
        name,
        observed.transfers.filter((transfer) => transfer.link === link).map(({ durationUs }) => durationUs),
      ),
    ),
  ];
}

export function parityChart(title: string, runs: readonly DrawnRun[]): VegaLiteSpec {
  const links = [...new Set(runs.flatMap(({ observed }) => observed.transfers.map(({ link }) => link)))];
  return {
    $schema: 'https://vega.github.io/schema/vega-lite/v6.json',
    title,
    background: 'white',
    width: 560,
    height: 320,
    data: { values: runs.flatMap((run) => pointsOf(run, links.sort())) },
    mark: { type: 'line' },
    encoding: {
      x: { field: 'ms', type: 'quantitative', scale: { type: 'log' }, title: 'time (ms)' },
      y: {
        field: 'share',
        type: 'quantitative',
        title: 'share of requests or transfers',
        axis: { format: '%' },
      },
      color: { field: 'what', type: 'nominal', title: null, sort: null },
      strokeDash: { field: 'run', type: 'nominal', title: null, sort: null },
    },
  };
}
