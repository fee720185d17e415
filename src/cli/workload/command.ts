/**
 * `tierkv workload`: makes, inspects and translates workloads. This file turns command lines into calls and
 * their results into files and tables; formats, generation and summaries are the library's.
 */

import { Command } from 'commander';
import {
  formatOf,
  type OpenedWorkload,
  openWorkload,
  readSpec,
  servegenSpec,
} from '../../files/openWorkload.ts';
import { requireWritableTarget, writeResultJson, writeResults, writeText } from '../../files/results.ts';
import { renderSvg } from '../../printing/chart.ts';
import { printable } from '../../printing/text.ts';
import { configError, TierKVError } from '../../runtime/errors.ts';
import type { WorkloadSpec } from '../../sim/description/workloadSpec.ts';
import { formatWorkloadSpec } from '../../sim/description/writeWorkload.ts';
import { WorkloadDigest, WorkloadSummarizer } from '../../sim/workload/summary.ts';
import { type TraceColumns, traceColumns, traceHeader, traceRow } from '../../sim/workload/traceV2.ts';
import { type OptionValues, presetRows } from '../../simulate/optionTable.ts';
import {
  adjustmentOf,
  numberWithin,
  openOptions,
  presetSpec,
  seedOption,
} from '../../simulate/presetOptions.ts';
import { addRows, jsonOption } from '../optionRows.ts';
import { printText, traceStem } from '../output.ts';
import { renderSummary, sessionsText, takenText, workloadChart } from './describe.ts';
import { addCommonOptions, openFrom, refuseIdleShaping } from './options.ts';

/** Which optional columns a trace needs: the clients of a spec say so, of a recorded trace only its rows. */
function columnsOf(opened: OpenedWorkload): TraceColumns {
  if (opened.workload !== undefined) {
    const { clients } = opened.workload;
    return {
      sloTarget: clients.some((client) => client.sloTargetUs > 0),
      adapter: clients.some((client) => client.adapter !== ''),
      thinkTime: false,
      cancelTime: clients.some(({ cancellation }) => cancellation !== undefined),
    };
  }
  const used = { sloTarget: false, adapter: false, thinkTime: false, cancelTime: false };
  for (const request of opened.requests()) {
    used.sloTarget ||= request.origin.sloTargetUs > 0;
    used.adapter ||= request.origin.adapter !== '';
    used.thinkTime ||= request.thinkTimeUs > 0;
    used.cancelTime ||= (request.cancelUs ?? 0) > 0;
  }
  return used;
}

/** Header line and rows of the CSV of a TraceV2 pair. */
function* traceLines(opened: OpenedWorkload): Generator<string> {
  const columns = columnsOf(opened);
  yield `${traceColumns(columns)}\n`;
  let row = 0;
  for (const request of opened.requests()) yield `${traceRow(row++, request, columns)}\n`;
}

function headerOf(opened: OpenedWorkload): string {
  const { spec } = opened;
  const accumulate = spec?.clients.some((client) => client.reasoning?.multiTurn?.accumulate) === true;
  return traceHeader({
    mode: spec === undefined ? 'real' : 'generated',
    ...(spec === undefined ? {} : { workloadSeed: spec.seed, goodputSloTargets: spec.goodputSloTargets }),
    ...(accumulate ? { sessionContextGrowth: 'accumulate' } : {}),
  });
}

function writeTrace(opened: OpenedWorkload, output: string | boolean | undefined): void {
  if (typeof output !== 'string' || output === '-') {
    for (const line of traceLines(opened)) process.stdout.write(line);
    return;
  }
  const stem = traceStem('--output', output);
  writeResults([
    { target: `${stem}.yaml`, parts: [headerOf(opened)] },
    { target: `${stem}.csv`, parts: traceLines(opened) },
  ]);
  process.stderr.write(`wrote ${printable(`${stem}.yaml and ${stem}.csv`)}\n`);
}

/** Says on stderr what was taken of a recorded trace; to be called once it was read. */
function noteTaken(source: string, opened: OpenedWorkload): void {
  const means = sessionsText(opened);
  const text = means.startsWith('open') ? means : takenText(source, opened);
  if (text !== '') process.stderr.write(`${text}\n`);
}

function noteSessions(opened: OpenedWorkload): void {
  const means = sessionsText(opened);
  if (means.startsWith('closed')) process.stderr.write(`${means}\n`);
  const sessions = opened.workload?.sessions;
  if (sessions === undefined) return;
  const more = sessions.followUpBudget >= 0 ? `up to ${sessions.followUpBudget} follow-ups` : 'follow-ups';
  process.stderr.write(
    `closed loop: these are the first requests of ${sessions.seeds.length} sessions; their ${more} ` +
      `arrive when a simulation finishes the round before\n`,
  );
}

async function describe(file: string | undefined, options: OptionValues): Promise<void> {
  for (const target of [options.json, options.plot]) {
    if (typeof target === 'string') requireWritableTarget(target);
  }
  const opened = openFrom(file, options);
  const summarizer = new WorkloadSummarizer();
  const digest = new WorkloadDigest();
  for (const request of opened.requests()) {
    summarizer.add(request);
    digest.add(request);
  }
  const summary = summarizer.summary();
  if (summary.requests === 0) {
    throw new TierKVError(
      'TKV_INPUT',
      `${file ?? 'the workload'}: holds no request. Raise its rate, horizon or number of requests`,
    );
  }
  const taken =
    opened.taken === undefined
      ? {}
      : {
          columns: opened.taken.columns.columns,
          times: opened.taken.columns.times,
          leftOver: opened.taken.columns.leftOver,
        };
  if (typeof options.json === 'string')
    writeResultJson(options.json, 'workload describe', {
      format: opened.format,
      ...taken,
      digest: digest.toString(),
      ...summary,
    });
  printText(renderSummary(summary));
  if (file !== undefined && opened.taken !== undefined) printText(`${takenText(file, opened)}\n`);
  if (opened.format === 'miniswe')
    printText('a token is a UTF-8 byte here: this trace holds text, not token ids\n');
  const means = sessionsText(opened);
  if (means !== '') printText(`${means}\n`);
  printText(`digest ${digest}\n`);
  noteSessions(opened);
  if (typeof options.plot === 'string') {
    const title = file ?? String(options.workload ?? 'distribution');
    writeText(options.plot, await renderSvg(workloadChart(title, summarizer)));
    process.stderr.write(`wrote ${printable(options.plot)}\n`);
  }
}

function convert(input: string, options: OptionValues): void {
  const to = String(options.to);
  if (to === 'tracev2') {
    const preset = options.from === 'preset';
    refusePeriods(options);
    const opened = preset
      ? openFrom(undefined, { ...options, workload: input })
      : openWorkload(input, openOptions(options));
    if (!preset) refuseIdleShaping(options, input, opened.format);
    noteSessions(opened);
    writeTrace(opened, options.output);
    noteTaken(input, opened);
    return;
  }
  if (to !== 'spec') throw configError('--to', `is "${to}"`, 'Use tracev2 or spec.');
  const text = formatWorkloadSpec(specOf(input, options));
  if (typeof options.output === 'string') writeText(options.output, text);
  else process.stdout.write(text);
}

/** Periods are made when a folder of ServeGen's becomes a spec. */
function refusePeriods(options: OptionValues): void {
  const given = {
    '--window-duration-seconds': options.windowDurationSeconds,
    '--drain-timeout-seconds': options.drainTimeoutSeconds,
  };
  for (const [option, value] of Object.entries(given)) {
    if (value === undefined) continue;
    throw configError(option, "is for a folder of ServeGen's that becomes a spec", 'Leave it out.');
  }
}

/** The spec behind a folder of profiles, a preset name or a spec file. */
function specOf(input: string, options: OptionValues): WorkloadSpec {
  const seed = seedOption(options);
  if (options.from === 'preset') {
    refusePeriods(options);
    return presetSpec({ ...options, workload: input });
  }
  if (options.from === 'servegen') {
    const day = 86_400;
    const windowDurationS = numberWithin(options, 'windowDurationSeconds', '--window-duration-seconds', {
      min: 1,
      max: day,
      whole: true,
    });
    const drainTimeoutS = numberWithin(options, 'drainTimeoutSeconds', '--drain-timeout-seconds', {
      min: 0,
      max: day,
      whole: true,
    });
    return servegenSpec(input, seed ?? 42n, {
      ...(windowDurationS === undefined ? {} : { windowDurationS }),
      ...(drainTimeoutS === undefined ? {} : { drainTimeoutS }),
    });
  }
  const format = options.from === undefined || options.from === 'auto' ? formatOf(input) : options.from;
  if (format === 'servegen') return specOf(input, { ...options, from: format });
  refusePeriods(options);
  if (format !== 'spec') {
    const trace = `a recorded trace (${String(format)})`;
    const problem = `is spec, and ${input} is ${trace}, which was not made from a spec`;
    throw configError('--to', problem, 'Use --to tracev2.');
  }
  const spec = adjustmentOf(options, false)(readSpec(input));
  return seed === undefined ? spec : { ...spec, seed };
}

export function workloadCommand(): Command {
  const command = new Command('workload').description('Make, inspect and translate workloads.');
  const action =
    (run: (file: string | undefined, options: OptionValues) => void | Promise<void>) =>
    (file: string | undefined, options: OptionValues): void | Promise<void> =>
      run(file, options);

  addCommonOptions(addRows(command.command('generate'), presetRows))
    .description('Generate the requests of a spec or a preset as TraceV2.')
    .argument('[spec]', 'workload spec in YAML')
    .option('-o, --output <stem>', 'write <stem>.yaml and <stem>.csv (default: rows to stdout)')
    .action(
      action((file, options) => {
        const opened = openFrom(file, options);
        noteSessions(opened);
        writeTrace(opened, options.output);
        if (file !== undefined) noteTaken(file, opened);
      }),
    );

  addCommonOptions(addRows(command.command('describe'), presetRows))
    .description('Show arrivals, lengths, prefix sharing and tenants of a spec, a trace or a preset.')
    .argument('[workload]', 'spec, trace or folder')
    .option('--plot <file.svg>', 'draw it')
    .addOption(jsonOption())
    .action(action(describe));

  addCommonOptions(command.command('convert'))
    .description('Translate a workload from any format to TraceV2, profiles and presets to a spec.')
    .argument('<workload>', 'spec, trace, folder, or a preset name with --from preset')
    .requiredOption('--to <format>', 'tracev2 or spec')
    .option('--rate <n>', 'requests a second, for presets and files of lengths')
    .option('--window-duration-seconds <n>', 'length of each ServeGen period')
    .option('--drain-timeout-seconds <n>', 'gap between ServeGen periods')
    .option('-o, --output <file>', 'where to write (default: stdout)')
    .action(action((file, options) => convert(file!, options)));

  return command;
}
