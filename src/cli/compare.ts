/** `tierkv compare RUN`: a measured run beside its prediction, on the requests that no fit saw. */

import { Command } from 'commander';
import { requireWritableTargets, writeResultJson } from '../io/files/results.ts';
import { startProgressBar } from '../io/printing/progress.ts';
import { renderTable } from '../io/printing/text.ts';
import { configError } from '../runtime/errors.ts';
import type { ServedBy } from '../sim/fitting/fitRequests.ts';
import { runText, type ServedOptions, servedBy, servedOptions } from './latency/command.ts';
import { jsonOption } from './optionRows.ts';
import { printText } from './output.ts';

interface CompareValues extends ServedOptions, Pick<ServedBy, 'gpu' | 'model' | 'tp' | 'dp' | 'blockTokens'> {
  readonly coefficients?: string;
  readonly fitShare: number;
  readonly json?: string;
}

export function compareCommand(): Command {
  const command = new Command('compare')
    .description(
      'Say how far the prediction of a run is from the run, on the requests that a fit did not see.',
    )
    .argument('<run>', "of tierkv observe, a gateway, vLLM's benchmark, LLMServingSim, or a table")
    .requiredOption('--gpu <name>', 'GPU that served it, or the path of its file');
  return servedOptions(command, '')
    .option('--coefficients <file>', 'of tierkv latency fit (default: as shipped for the GPU)')
    .option(
      '--fit-share <share>',
      'first share of the requests, which a fit saw and which is not judged',
      Number,
      0.5,
    )
    .addOption(jsonOption())
    .action(async (file: string, given: CompareValues) => {
      const raw = servedBy(given);
      if (raw.model === undefined)
        throw configError('--model', 'is missing', 'Name the model that was served.');
      if (!(raw.fitShare >= 0 && raw.fitShare < 1)) {
        throw configError('--fit-share', `is ${raw.fitShare}`, 'Set it to a share from 0, below 1.');
      }
      requireWritableTargets({ '--json': raw.json }, { RUN: file, '--coefficients': raw.coefficients });
      const { predictedRun } = await import('../sim/fitting/fitRequests.ts');
      const { readMeasuredRun } = await import('../sim/latency/fit/measuredRuns.ts');
      const { replayRun } = await import('../sim/latency/fit/runFit.ts');
      const { compareTimes } = await import('../sim/fitting/comparison.ts');
      const { readText } = await import('../sim/build/dataFiles.ts');
      const read = readMeasuredRun(readText(file), file);
      const { run, coefficients, kvBlocks } = predictedRun(read.requests, raw, raw.coefficients);
      const first = Math.floor(read.requests.length * raw.fitShare);
      using bar = startProgressBar('requests');
      let done = 0;
      const times = replayRun(run, coefficients, () =>
        bar.update({ share: ++done / read.requests.length, done }),
      );
      const values = compareTimes(read.requests, times, first);
      if (raw.json !== undefined)
        writeResultJson(raw.json, 'compare', { run: file, judged: read.requests.length - first, values });
      printText(`${runText(file, read, kvBlocks)}\n`);
      printText(`judged: the last ${read.requests.length - first} of ${read.requests.length} requests\n`);
      const right = (title: string): { title: string; align: 'right' } => ({ title, align: 'right' });
      const signed = (percent: number): string => `${percent < 0 ? '' : '+'}${percent.toFixed(1)} %`;
      printText(
        renderTable(
          [{ title: '' }, { title: '' }, right('measured ms'), right('predicted ms'), right('off by')],
          values.map(({ what, point, measuredMs, predictedMs, errorPercent }) => [
            what,
            point,
            measuredMs.toFixed(2),
            predictedMs.toFixed(2),
            signed(errorPercent),
          ]),
        ),
      );
    });
}
