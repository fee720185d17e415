/**
 * `tierkv latency predict|fit|check`: how long a batch takes on a GPU, coefficients from measurements, and
 * how far they are off. This file turns the command line into options and reports into output.
 */

import { Command, InvalidArgumentError, Option } from 'commander';
import { requireWritableTargets, writeJsonFile, writeResultJson, writeText } from '../../io/files/results.ts';
import { renderSvg } from '../../io/printing/chart.ts';
import { formatCounted, printable } from '../../io/printing/text.ts';
import { configError } from '../../runtime/errors.ts';
import { knobs } from '../../sim/description/knobs.ts';
import type { FitRequestsOptions, ServedBy } from '../../sim/fitting/fitRequests.ts';
import type { MeasuredRunFile } from '../../sim/latency/fit/measuredRuns.ts';
import {
  type LatencyBackend,
  latencyBackends,
  latencyFacts,
  latencyModelsThat,
  moeCommBackends,
  usualLatency,
} from '../../sim/latency/latencyNames.ts';
import { inFlags, latencyFlags, stepsFlags } from '../flags.ts';
import { addAliases, jsonOption } from '../optionRows.ts';
import { printText } from '../output.ts';

function numberOption(text: string): number {
  const value = Number(text);
  if (text.trim() === '' || !Number.isFinite(value)) throw new InvalidArgumentError('It must be a number.');
  return value;
}

function collect(value: string, before: readonly string[]): string[] {
  return [...before, value];
}

const defaultBatches = [
  'decode=1@512',
  'decode=64@512',
  'decode=256@512',
  'prefill=512',
  'prefill=2048',
  'prefill=8192',
];

function predictCommand(): Command {
  const command = new Command('predict')
    .description('Say how long batches take, what that is made of, and how many KV blocks fit.')
    .requiredOption('--model <name>', 'model, with or without organisation, or the path of a config.json')
    .option('--gpu <name>', "GPU or the path of its file (default: the model's, else H100)")
    .option('--tp <n>', "tensor parallel size (default: the model's, else 1)", numberOption)
    .option('--dp <n>', 'data parallel size of a mixture-of-experts model', numberOption, 1)
    .addOption(
      new Option('--latency-model <name>', 'model of time')
        .choices([...latencyBackends])
        .default(usualLatency),
    )
    .option('--coefficients <file>', 'coefficients (default: as shipped for the backend and GPU)')
    .addOption(
      new Option('--moe-comm-backend <name>', 'all-to-all backend of expert parallelism, for trained-physics')
        .choices([...moeCommBackends])
        .default(moeCommBackends[0]),
    )
    .option(
      '--batch <batch>',
      'decode=N@CONTEXT, prefill=NEW[@CACHED[/PROMPT]], with commas; repeatable',
      collect,
      [],
    )
    .option('--no-floor', 'allow latencies below what the hardware can reach, as BLIS does')
    .option('--block-tokens <n>', 'tokens per KV block', numberOption, 16)
    .option(
      '--gpu-memory-utilization <share>',
      'share of GPU memory that the engine may use',
      numberOption,
      0.9,
    )
    .addOption(jsonOption())
    .action(async (raw) => {
      requireWritableTargets({ '--json': raw.json });
      const { predict, renderPrediction } = await import('./predict.ts');
      const report = predict({
        ...raw,
        batch: raw.batch.length > 0 ? raw.batch : defaultBatches,
        backend: raw.latencyModel,
        memoryUtilization: raw.gpuMemoryUtilization,
      });
      if (raw.json !== undefined) writeResultJson(raw.json, 'latency predict', report);
      printText(renderPrediction(report));
    });
  return addAliases(command, { '--backend': '--latency-model', '--block-size': '--block-tokens' });
}

function fitOptions(): Command {
  return new Command('fit')
    .description('Fit coefficients to measured steps and write them as a file.')
    .addOption(
      new Option('--latency-model <name>', 'what to fit')
        .choices([...latencyModelsThat('fitsSteps')])
        .default(usualLatency),
    )
    .option('--gpu <name>', 'GPU on which the steps were measured, or the path of its file', 'H100')
    .option(
      '--steps <file>',
      "step log of vLLM's scheduler or step records, .csv or .csv.gz (default: H100, as shipped)",
    )
    .option('--runs <file>', 'totals of whole runs, .csv')
    .option('--hold-out <experiment>', 'keep an experiment out and judge by it; repeatable', collect, [])
    .option('--links <file>', 'link profile of tierkv calibrate, to go into the coefficients')
    .option(
      '--requests <file>',
      "fit calibrated to the requests of one run instead: a table, tierkv observe, a gateway's trace, vLLM's benchmark JSON",
    );
}

/** How a run was served, for fits and comparisons. */
export function servedOptions(command: Command, when: string): Command {
  command
    .option('--model <name>', `${when}the model that was served`)
    .option('--tp <n>', `${when}tensor parallel size`, numberOption, 1)
    .option('--dp <n>', `${when}data parallel ranks, or engines that requests go to in turn`, numberOption, 1)
    .option(
      '--max-num-seqs <n>',
      `${when}maximum requests per batch, of each rank with --dp`,
      numberOption,
      knobs['engine.maxSequences'].or,
    )
    .option(
      '--max-num-batched-tokens <n>',
      `${when}token budget of a step, of each rank with --dp`,
      numberOption,
      knobs['engine.maxBatchedTokens'].or,
    )
    .option(
      '--hbm <blocks>',
      `${when}KV blocks of the engine, as its log has them (default: what fits)`,
      numberOption,
    )
    .option(
      '--block-tokens <n>',
      'tokens per KV block of the engine',
      numberOption,
      knobs['engine.blockTokens'].or,
    )
    .option(
      '--gpu-memory-utilization <share>',
      `${when}share of GPU memory that the engine may use`,
      numberOption,
      knobs['engine.memoryUtilization'].or,
    );
  return addAliases(command, { '--kv-blocks': '--hbm', '--block-size': '--block-tokens' });
}

/** The options under the names that the library has. */
export function servedBy<T extends ServedOptions>(
  given: T,
): T & Pick<ServedBy, 'maxSequences' | 'maxBatchedTokens' | 'memoryUtilization' | 'kvBlocks'> {
  const { hbm, maxNumSeqs, maxNumBatchedTokens, gpuMemoryUtilization } = given;
  const served = {
    maxSequences: maxNumSeqs,
    maxBatchedTokens: maxNumBatchedTokens,
    memoryUtilization: gpuMemoryUtilization,
  };
  return { ...given, ...served, ...(hbm === undefined ? {} : { kvBlocks: hbm }) };
}

/** Options of a run that was served, under their own names. */
export interface ServedOptions {
  readonly hbm?: number;
  readonly maxNumSeqs: number;
  readonly maxNumBatchedTokens: number;
  readonly gpuMemoryUtilization: number;
}

function fitCommand(): Command {
  const command = servedOptions(fitOptions(), 'with --requests: ')
    .option('--fit-share <share>', 'with --requests: first share that the fit sees', numberOption, 0.5)
    .requiredOption('--out <file>', 'where the coefficients go')
    .addOption(jsonOption())
    .action(async (raw, self: Command) => {
      requireWritableTargets(
        { '--out': raw.out, '--json': raw.json },
        { '--requests': raw.requests, '--steps': raw.steps, '--runs': raw.runs },
      );
      refuseOtherFit(self, raw.requests !== undefined);
      if (raw.requests !== undefined) return fitOneRun({ ...servedBy(raw), out: raw.out });
      const { fitCoefficients } = await import('../../sim/fitting/fit.ts');
      const { file, fitted, heldOut } = inFlags(stepsFlags, () =>
        fitCoefficients({ ...raw, backend: raw.latencyModel }),
      );
      writeJsonFile(raw.out, file);
      if (raw.json !== undefined)
        writeResultJson(raw.json, 'latency fit', { coefficients: file, fitted, heldOut: heldOut ?? null });
      const line = (what: string, score: typeof fitted): string =>
        `${what}: ${score.count} steps, MAPE ${score.mapePercent.toFixed(2)}%, bias ` +
        `${score.biasPercent.toFixed(2)}%\n`;
      printText(line('fitted on', fitted));
      if (heldOut !== undefined) printText(line('held out', heldOut));
      printText(`wrote ${raw.out}\n`);
    });
  return addAliases(command, { '--backend': '--latency-model' });
}

const ofRequests = [
  ...['--model', '--tp', '--dp', '--max-num-seqs', '--max-num-batched-tokens', '--hbm'],
  ...['--gpu-memory-utilization', '--fit-share'],
];
const ofSteps = ['--steps', '--runs', '--hold-out', '--links'];

/** Refuses options of the other kind of fit, which would do nothing. */
function refuseOtherFit(command: Command, byRequests: boolean): void {
  for (const option of command.options) {
    const flag = option.long ?? option.flags;
    if (command.getOptionValueSource(option.attributeName()) !== 'cli') continue;
    const model = command.getOptionValue('latencyModel') as LatencyBackend;
    if (byRequests && (ofSteps.includes(flag) || latencyFacts[model].fitsRequests !== true)) {
      const name = ofSteps.includes(flag) ? flag : '--latency-model';
      throw configError(name, 'is for a fit to steps, and --requests is given', 'Leave one of them out.');
    }
    if (!byRequests && ofRequests.includes(flag)) {
      throw configError(flag, 'is for a fit to requests', 'Add --requests, or leave it out.');
    }
  }
}

async function fitOneRun(
  raw: Partial<FitRequestsOptions> & { readonly out: string; readonly json?: string },
): Promise<void> {
  if (raw.model === undefined) {
    throw configError('--model', 'is missing', 'With --requests, name the model that was served.');
  }
  const { fitToRequests } = await import('../../sim/fitting/fitRequests.ts');
  const { startProgressBar } = await import('../../io/printing/progress.ts');
  using bar = startProgressBar('replays');
  const { file, fitted, judged, read, kvBlocks, atPeak } = inFlags(latencyFlags, () =>
    fitToRequests(raw as FitRequestsOptions, (share, done) => bar.update({ share, done })),
  );
  writeJsonFile(raw.out, file);
  if (raw.json !== undefined)
    writeResultJson(raw.json, 'latency fit', { coefficients: file, fitted, judged });
  printText(`${runText(String(raw.requests), read, kvBlocks)}\n`);
  printText(`fitted on ${formatCounted(fitted, 'requests')}\n`);
  for (const { what, measuredMeanMs, meanErrorPercent, p90ErrorPercent } of judged) {
    const errors = `mean ${meanErrorPercent.toFixed(1)}%, p90 ${p90ErrorPercent.toFixed(1)}%`;
    printText(`${what}: measured ${measuredMeanMs.toFixed(1)} ms, off by ${errors}\n`);
  }
  for (const peak of atPeak) {
    printText(
      `${raw.gpu}: the fit takes all of ${peak}, and would take more: raise it in the GPU's file, or times of prompts stay off\n`,
    );
  }
  printText(`wrote ${raw.out}\n`);
}

/** The parts that were taken of a measured run, and the memory that it is replayed with. */
export function runText(
  source: string,
  { format, taken, requests }: MeasuredRunFile,
  kvBlocks: number,
): string {
  const notes = taken.notes.map((note) => `; ${note}`).join('');
  const left = taken.leftOver.length === 0 ? '' : `; left over: ${taken.leftOver.join(', ')}`;
  const cached = requests.some(({ cachedTokens }) => cachedTokens > 0) ? 'as measured' : 'none measured';
  return printable(
    `read ${source} as ${format}: ${formatCounted(requests.length, 'requests')}; columns ${taken.columns.join(', ')}; ` +
      `times: ${taken.times}${notes}${left}; prefix cache: ${cached}; ${formatCounted(kvBlocks, 'KV blocks')}`,
  );
}

function checkCommand(): Command {
  return new Command('check')
    .description('Judge calibrated by measurements that its fit did not see.')
    .option('--gpu <name>', 'GPU on which the steps were measured', 'H100')
    .option('--steps <file>', "step log of vLLM's scheduler or step records (default: H100, as shipped)")
    .option('--runs <file>', 'totals of whole runs, .csv')
    .option('--block-tokens <n>', 'tokens per KV block of the engine', numberOption, 16)
    .option('--plot <file>', 'draw predicted against measured as SVG')
    .addOption(jsonOption())
    .action(async (raw) => {
      requireWritableTargets(
        { '--plot': raw.plot, '--json': raw.json },
        { '--steps': raw.steps, '--runs': raw.runs },
      );
      const { check } = await import('../../sim/fitting/check.ts');
      const { checkChart, renderCheck } = await import('./renderCheck.ts');
      const report = inFlags(stepsFlags, () => check(raw));
      if (raw.plot !== undefined) {
        writeText(raw.plot, await renderSvg(checkChart(report)));
      }
      if (raw.json !== undefined) writeResultJson(raw.json, 'latency check', report);
      printText(renderCheck(report));
    });
}

export function latencyCommand(): Command {
  return new Command('latency')
    .description('How long a step of an LLM server takes on a GPU.')
    .addCommand(predictCommand())
    .addCommand(fitCommand())
    .addCommand(checkCommand());
}
