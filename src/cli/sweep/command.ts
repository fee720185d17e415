/**
 * `tierkv sweep`: simulations over a grid of options, on worker threads, and the cheapest deployment that
 * meets the targets.
 */

import { Command } from 'commander';
import { requireWritableTargets, writeResultJson, writeText } from '../../io/files/results.ts';
import { renderSvg } from '../../io/printing/chart.ts';
import { startProgressBar } from '../../io/printing/progress.ts';
import type { PointResult } from '../../sim/build/point.ts';
import { numberWithin } from '../flags.ts';
import { notes } from '../help.ts';
import { jsonOption } from '../optionRows.ts';
import { printText } from '../output.ts';
import { checkReport, reportAbout, reportFlags, reportTo } from '../reportOption.ts';
import { withRunner, workersAbout, workersFlags, workersOption } from '../workersOption.ts';

const helpEnd = `
Arguments behind -- are those of tierkv simulate; the options of the grid are added to them.

Targets are bounds on 99th percentiles, and every request has to complete. A point that cannot run is a row that
says so, and the sweep goes on; the exit code is then 2, or 1 where tierkv or the machine is at fault.
`;

function collect(value: string, before: readonly string[]): string[] {
  return [...before, value];
}

export function sweepCommand(): Command {
  return new Command('sweep')
    .description('Simulate a grid of deployments, and name the cheapest that meets the targets.')
    .argument('[simulate...]', 'arguments of tierkv simulate, behind --')
    .requiredOption(
      '--grid <option=values>',
      'values of one option, as rate=10,20, or of a field of the deployment, as ' +
        'pools[0].replicas=1,2; repeatable',
      collect,
      [],
    )
    .option(
      '--target-ttft <time>',
      'bound on the 99th percentile of the time to the first token, as 500ms or in milliseconds',
    )
    .option('--target-itl <time>', 'the same for the time between tokens')
    .option('--target-e2e <time>', 'the same for the whole request')
    .option(workersFlags, workersAbout)
    .addOption(jsonOption())
    .option('--plot <file.svg>', 'plot the points')
    .option(reportFlags, reportAbout)
    .addHelpText('after', notes(helpEnd))
    .action(async (args: string[], options: Record<string, string | undefined> & { grid: string[] }) => {
      requireWritableTargets({ '--json': options.json, '--plot': options.plot, '--report': options.report });
      await checkReport(options.report);
      const { grid, ...rest } = options;
      const bound = (name: string, flag: string): number | undefined =>
        numberWithin(rest, name, flag, { min: 0, max: 1e12, counts: 'ms' });
      const ttftMs = bound('targetTtft', '--target-ttft');
      const itlMs = bound('targetItl', '--target-itl');
      const e2eMs = bound('targetE2e', '--target-e2e');
      const { workers, server } = workersOption(rest);
      const hasTargets = ttftMs !== undefined || itlMs !== undefined || e2eMs !== undefined;
      const targets = {
        ...(ttftMs === undefined ? {} : { ttftMs }),
        ...(itlMs === undefined ? {} : { itlMs }),
        ...(e2eMs === undefined ? {} : { e2eMs }),
      };

      const { readWords } = await import('../../sim/description/readers.ts');
      const { pointsOf, runPoints } = await import('../../sim/build/sweep.ts');
      const {
        cheapestByDemand,
        cheapestText,
        meets,
        failedPoints,
        failureLines,
        pointText,
        stepsText,
        sweepChart,
        sweepTable,
        sweepWarnings,
      } = await import('./report.ts');
      const points = pointsOf(grid, readWords(args));
      using bar = startProgressBar('points');
      const limits = { workers, wallMs: Infinity };
      const say = (line: string): void => bar.notice(line);
      const results = await withRunner(server, limits, say, (runner) =>
        runPoints(points, runner, (done) => bar.update({ share: done / points.length, done })),
      );
      const byDemand = hasTargets ? cheapestByDemand(results, targets) : [];
      // of several demands none is the best: each has its own
      const best = byDemand.length === 1 ? byDemand[0].best : undefined;
      if (options.json !== undefined)
        writeResultJson(options.json, 'sweep', { targets, best: best ?? null, byDemand, results });
      const shown = hasTargets ? targets : undefined;
      if (options.plot !== undefined) writeText(options.plot, await renderSvg(sweepChart(results, shown)));
      if (options.report !== undefined) {
        const { sweepReport } = await import('../../observe/report/sweepReport.ts');
        const grid = {
          results,
          targets: shown,
          byDemand,
          meets: (point: PointResult) => meets(point, targets),
          nameOf: pointText,
        };
        await reportTo(options.report, (command) => sweepReport({ ...grid, command }));
      }
      for (const line of sweepWarnings(results)) bar.say(line);
      printText(stepsText(results) + sweepTable(results, shown) + failureLines(results));
      const failed = failedPoints(results);
      // as elsewhere: 1 is a fault of tierkv or the machine, 2 is one of the call
      if (failed.length > 0) process.exitCode = failed.some(({ error }) => error.code === undefined) ? 1 : 2;
      if (!hasTargets) return;
      printText(cheapestText(byDemand));
    });
}
