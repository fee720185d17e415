/** Output of `tierkv latency check`: a table a question, and the plot of predicted against measured steps. */

import type { VegaLiteSpec } from '../../io/printing/chart.ts';
import { renderTable, type TableColumn } from '../../io/printing/text.ts';
import type { LatencyCheckReport, NamedScore } from '../../sim/fitting/check.ts';

const scoreColumns: readonly TableColumn[] = [
  { title: 'what' },
  { title: 'n', align: 'right' },
  { title: 'MAPE %', align: 'right' },
  { title: 'bias %', align: 'right' },
  { title: 'worst %', align: 'right' },
];

function scoreTable(title: string, scores: readonly NamedScore[]): string {
  const rows = scores.map(({ what, count, mapePercent, biasPercent, worstPercent }) => [
    what,
    count,
    mapePercent.toFixed(2),
    biasPercent.toFixed(2),
    worstPercent.toFixed(1),
  ]);
  return `${title}\n${renderTable(scoreColumns, rows)}`;
}

export function renderCheck(report: LatencyCheckReport): string {
  const run = renderTable(
    [
      { title: 'quantity' },
      { title: 'measured mean ms', align: 'right' },
      { title: 'replayed mean ms', align: 'right' },
      { title: 'mean %', align: 'right' },
      { title: 'p90 %', align: 'right' },
    ],
    report.otherGpu.map((q) => [
      q.what,
      q.measuredMeanMs.toFixed(1),
      q.replayedMeanMs.toFixed(1),
      q.meanErrorPercent.toFixed(1),
      q.p90ErrorPercent.toFixed(1),
    ]),
  );
  const { predicted, measured } = report.belowFloor;
  return [
    scoreTable('Steps of experiments that the fit did not see', report.heldOut),
    scoreTable('The same steps by others', report.sameSteps),
    scoreTable('Kernels', report.kernels),
    scoreTable('Average step of whole runs', report.runs),
    `A run on another GPU (RTX PRO 6000)\n${run}`,
    `Below the physical floor: ${predicted} predicted, ${measured} measured (logged with a ` +
      `neighbouring step's time)\n`,
  ].join('\n');
}

/** Predicted against measured, one point a step, with the line on which they agree. */
export function checkChart(report: LatencyCheckReport): VegaLiteSpec {
  const ms = (us: number): number => Number((us / 1000).toFixed(4));
  const values = report.steps.map((step) => ({
    measured: ms(step.measuredUs),
    predicted: ms(step.predictedUs),
    experiment: step.experiment,
    regime: step.regime,
  }));
  const all = values.flatMap(({ measured, predicted }) => [measured, predicted]);
  const least = all.reduce((a, b) => Math.min(a, b), Infinity) * 0.9;
  const most = all.reduce((a, b) => Math.max(a, b), 0) * 1.1;
  const range = [least, most].map((at) => ({ measured: at, predicted: at }));
  const axis = (field: string, title: string): VegaLiteSpec => ({
    field,
    type: 'quantitative',
    title,
    scale: { type: 'log', nice: false, domain: [least, most] },
  });
  return {
    width: 560,
    height: 420,
    title: 'Step time of experiments held out of the fit (ms)',
    layer: [
      {
        data: { values: range },
        mark: { type: 'line', color: 'grey', strokeDash: [4, 4] },
        encoding: { x: axis('measured', 'measured ms'), y: axis('predicted', 'predicted ms') },
      },
      {
        data: { values },
        mark: { type: 'point', size: 14, filled: true, opacity: 0.5 },
        encoding: {
          x: axis('measured', 'measured ms'),
          y: axis('predicted', 'predicted ms'),
          color: {
            field: 'experiment',
            type: 'nominal',
            legend: { orient: 'bottom', columns: 1, labelLimit: 500 },
          },
          shape: { field: 'regime', type: 'nominal', legend: { orient: 'right' } },
        },
      },
    ],
  };
}
