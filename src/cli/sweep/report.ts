/** Result of a sweep: a table, the cheapest point that meets the targets, and a plot. */

import type { VegaLiteSpec } from '../../io/printing/chart.ts';
import { printable, renderTable } from '../../io/printing/text.ts';
import { type FailedPoint, hasRun, type PointResult, type SweptPoint } from '../../sim/build/point.ts';
import { demandOf } from '../../sim/build/sweep.ts';

/** Bounds on 99th percentiles in milliseconds; absent ones always hold. */
interface SweepTargets {
  readonly ttftMs?: number;
  readonly itlMs?: number;
  readonly e2eMs?: number;
}

export function meets(result: PointResult, { ttftMs, itlMs, e2eMs }: SweepTargets): boolean {
  return (
    result.completed > 0 &&
    result.completed === result.injected &&
    result.ttftP99Ms <= (ttftMs ?? Infinity) &&
    result.itlP99Ms <= (itlMs ?? Infinity) &&
    result.e2eP99Ms <= (e2eMs ?? Infinity)
  );
}

/** The point with the fewest GPUs, of one demand, that meets the targets, of those the one with the shortest requests. */
export function cheapest(results: readonly SweptPoint[], targets: SweepTargets): PointResult | undefined {
  const good = results.filter(hasRun).filter((result) => meets(result, targets));
  good.sort((a, b) => a.gpus - b.gpus || a.e2eMeanMs - b.e2eMeanMs);
  return good[0];
}

/** The cheapest point of a demand; undefined where none meets the targets. */
interface DemandBest {
  readonly demand: PointResult['values'];
  readonly best: PointResult | undefined;
}

/** The cheapest point of each demand (model, workload, rate, seed), in order of the grid. */
export function cheapestByDemand(results: readonly SweptPoint[], targets: SweepTargets): DemandBest[] {
  const groups = Map.groupBy(results, ({ values }) => JSON.stringify(demandOf(values)));
  return [...groups.values()].map((points) => ({
    demand: demandOf(points[0].values),
    best: cheapest(points, targets),
  }));
}

/** Which point is the cheapest, one line a demand. */
export function cheapestText(found: readonly DemandBest[]): string {
  const lines = found.map(({ demand, best }) => {
    const what = best === undefined ? 'no point meets the targets' : `cheapest: ${pointText(best)}`;
    return found.length === 1 ? what : `at ${pointText({ values: demand })} ${what}`;
  });
  return lines.map((line) => `${line}\n`).join('');
}

/** A point as it is written on the command line; fields of a deployment as they stand in its file. */
export function pointText({ values }: Pick<PointResult, 'values'>): string {
  const text = Object.entries(values).map(([name, value]) =>
    /[.[]/.test(name) ? `${name}=${value}` : `--${name} ${value}`,
  );
  return text.join(' ');
}

export function failedPoints(results: readonly SweptPoint[]): FailedPoint[] {
  return results.filter((point): point is FailedPoint => !hasRun(point));
}

/** Faults of the points that cannot run, each problem once. */
export function failureLines(results: readonly SweptPoint[]): string {
  const byProblem = Map.groupBy(failedPoints(results), ({ error }) => error.message);
  const lines = [...byProblem].map(([problem, points]) => {
    const more = points.length === 1 ? '' : ` and ${points.length - 1} more`;
    return `${pointText(points[0])}${more} cannot run: ${problem.trim().replace(/\.?$/, '.')}\n`;
  });
  return lines.map((line) => `${printable(line.trimEnd())}\n`).join('');
}

export function sweepTable(results: readonly SweptPoint[], targets: SweepTargets | undefined): string {
  const names = Object.keys(results[0]?.values ?? {});
  const numbers = ['GPUs', 'done', 'req/s', 'TTFT p99', 'ITL p99', 'E2E p99', 'hits', 'preempted'];
  const columns = [...names, ...numbers, ...(targets === undefined ? [] : ['meets'])];
  // no request takes no time: 0 stands for none
  const ms = (value: number, digits: number): string => (value === 0 ? '-' : `${value.toFixed(digits)} ms`);
  const figures = (result: PointResult): string[] => [
    String(result.gpus),
    `${result.completed}/${result.injected}`,
    result.responsesPerS.toFixed(2),
    ms(result.ttftP99Ms, 1),
    ms(result.itlP99Ms, 2),
    ms(result.e2eP99Ms, 0),
    result.completed === 0 ? '-' : `${(100 * result.hitRate).toFixed(1)} %`,
    String(result.preemptions),
    ...(targets === undefined ? [] : [meets(result, targets) ? 'yes' : 'no']),
  ];
  const cannot = [
    '-',
    'cannot run',
    ...numbers.slice(2).map(() => '-'),
    ...(targets === undefined ? [] : ['no']),
  ];
  const rows = results.map((result) => [
    ...names.map((name) => result.values[name]),
    ...(hasRun(result) ? figures(result) : cannot),
  ]);
  return renderTable(
    columns.map((title) => ({ title, align: 'right' as const })),
    rows,
  );
}

/** Sources of the times of steps, each once. */
export function stepsText(results: readonly SweptPoint[]): string {
  const lines = new Set(results.filter(hasRun).flatMap(({ steps }) => steps));
  const text = [...lines].map((line) => `${printable(line)}\n`).join('');
  if (lines.size < 2) return text;
  return `${text}warning: these points stand on different models of time: what one takes longer than another may be the model's part\n`;
}

/** A line for each warning of a point; what all points have in common is said once. */
export function sweepWarnings(results: readonly SweptPoint[]): string[] {
  const ran = results.filter(hasRun);
  const common = (ran[0]?.warnings ?? []).filter((one) =>
    ran.every(({ warnings }) => warnings.includes(one)),
  );
  const own = ran.flatMap((result) =>
    result.warnings
      .filter((warning) => ran.length === 1 || !common.includes(warning))
      .map((warning) => `warning: at ${pointText(result)}: ${printable(warning)}`),
  );
  return ran.length === 1 ? own : [...common.map((warning) => `warning: ${printable(warning)}`), ...own];
}

export function sweepChart(results: readonly SweptPoint[], targets: SweepTargets | undefined): VegaLiteSpec {
  // a point that served nothing has no time to the first token
  const served = results.filter(hasRun).filter(({ ttftP99Ms }) => ttftP99Ms > 0);
  const values = served.map((result) => ({
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
