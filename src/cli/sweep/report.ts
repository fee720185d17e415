/** What a sweep found: a table, the cheapest point that meets the targets, and a plot. */

import { printable, renderTable, type VegaLiteSpec } from '../output/index.ts';
import type { PointResult } from './point.ts';

/** Bounds on 99th percentiles in milliseconds; absent ones always hold. */
export interface SweepTargets {
  readonly ttftMs?: number;
  readonly itlMs?: number;
  readonly e2eMs?: number;
}

export function meets(result: PointResult, { ttftMs, itlMs, e2eMs }: SweepTargets): boolean {
  return (
    result.completed === result.injected &&
    result.ttftP99Ms <= (ttftMs ?? Infinity) &&
    result.itlP99Ms <= (itlMs ?? Infinity) &&
    result.e2eP99Ms <= (e2eMs ?? Infinity)
  );
}

/** The point with the fewest GPUs that meets the targets, of those the one with the shortest requests. */
export function cheapest(results: readonly PointResult[], targets: SweepTargets): PointResult | undefined {
  const good = results.filter((result) => meets(result, targets));
  good.sort((a, b) => a.gpus - b.gpus || a.e2eMeanMs - b.e2eMeanMs);
  return good[0];
}

export function pointText({ values }: PointResult): string {
  const text = Object.entries(values).map(([name, value]) =>
    name.includes('.') ? `${name}=${value}` : `--${name} ${value}`,
  );
  return text.join(' ');
}

export function sweepTable(results: readonly PointResult[], targets: SweepTargets | undefined): string {
  const names = Object.keys(results[0]?.values ?? {});
  const numbers = ['GPUs', 'done', 'req/s', 'TTFT p99', 'ITL p99', 'E2E p99', 'hits', 'preempted'];
  const columns = [...names, ...numbers, ...(targets === undefined ? [] : ['meets'])];
  const rows = results.map((result) => [
    ...names.map((name) => result.values[name]),
    String(result.gpus),
    `${result.completed}/${result.injected}`,
    result.responsesPerS.toFixed(2),
    `${result.ttftP99Ms.toFixed(1)} ms`,
    `${result.itlP99Ms.toFixed(2)} ms`,
    `${result.e2eP99Ms.toFixed(0)} ms`,
    `${(100 * result.hitRate).toFixed(1)} %`,
    String(result.preemptions),
    ...(targets === undefined ? [] : [meets(result, targets) ? 'yes' : 'no']),
  ]);
  return renderTable(
    columns.map((title) => ({ title, align: 'right' as const })),
    rows,
  );
}

/** A line for each warning of a point. */
export function sweepWarnings(results: readonly PointResult[]): string[] {
  return results.flatMap((result) =>
    result.warnings.map((warning) => `warning: at ${pointText(result)}: ${printable(warning)}`),
  );
}

export function sweepChart(results: readonly PointResult[], targets: SweepTargets | undefined): VegaLiteSpec {
  const values = results.map((result) => ({
    point: pointText(result),
    gpus: result.gpus,
    ttft: result.ttftP99Ms,
    rate: result.responsesPerS,
    meets: targets !== undefined && meets(result, targets) ? 'yes' : 'no',
  }));
  return {
    $schema: 'https://vega.github.io/schema/vega-lite/v6.json',
    title: 'Points of the sweep',
    background: 'white',
    width: 520,
    height: 320,
    data: { values },
    mark: { type: 'point', filled: true, size: 80 },
    encoding: {
      x: { field: 'rate', type: 'quantitative', title: 'requests a second' },
      y: { field: 'ttft', type: 'quantitative', scale: { type: 'log' }, title: 'TTFT p99 (ms)' },
      color: { field: 'gpus', type: 'ordinal', title: 'GPUs' },
      ...(targets === undefined
        ? {}
        : { shape: { field: 'meets', type: 'nominal', title: 'meets targets' } }),
    },
  };
}
