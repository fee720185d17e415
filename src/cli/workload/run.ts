/**
 * Makes, inspects and translates workloads for `tierkv workload`: options into calls, and their results into files and
 * tables. Formats, generation and summaries are the library's.
 */

import { requireWritableTargets, writeResultJson, writeResults, writeText } from '../../io/files/results.ts';
import { renderSvg } from '../../io/printing/chart.ts';
import { printable } from '../../io/printing/text.ts';
import { configError, TierKVError } from '../../runtime/errors.ts';
import {
  FORMATS,
  type Format,
  formatOf,
  type OpenedWorkload,
  type OpenOptions,
  openSpec,
  openWorkload,
  readSpec,
  requireFormat,
  servegenSpec,
} from '../../sim/build/openWorkload.ts';
import {
  adjustmentOf,
  openOptions,
  presetSpec,
  refusePresetSettings,
  usedByFormat,
} from '../../sim/build/presetSettings.ts';
import { get } from '../../sim/description/settings.ts';
import type { WorkloadSpec } from '../../sim/description/workloadSpec.ts';
import { formatWorkloadSpec } from '../../sim/description/writeWorkload.ts';
import { isConversation } from '../../sim/workload/presets.ts';
import { WorkloadDigest, WorkloadSummarizer } from '../../sim/workload/summary.ts';
import { type TraceColumns, traceColumns, traceHeader, traceRow } from '../../sim/workload/traceV2.ts';
import { inFlags, numberWithin, type OptionValues, settingsOf, textOption, workloadFlags } from '../flags.ts';
import { printText, traceStem } from '../output.ts';
import { renderSummary, sessionsText, takenText, workloadChart } from './describe.ts';

/** The runs of the commands. */
export interface WorkloadRuns {
  generate(file: string | undefined, options: OptionValues): void;
  describe(file: string | undefined, options: OptionValues): Promise<void>;
  convert(file: string | undefined, options: OptionValues): void;
}

export const workloadRuns: WorkloadRuns = {
  generate: (file, options) => inFlags(workloadFlags, () => generate(file, options)),
  describe: (file, options) => inFlags(workloadFlags, () => describe(file, options)),
  convert: (file, options) => inFlags(workloadFlags, () => convert(file!, options)),
};

function generate(file: string | undefined, options: OptionValues): void {
  const opened = openFrom(file, options);
  noteSessions(opened);
  writeTrace(opened, options.output);
  if (file !== undefined) noteTaken(file, opened);
}

/** Options of a workload: settings, and what only a file that is read has. */
function openFromOptions(options: OptionValues): OpenOptions {
  const from = textOption(options, 'from');
  const blockTokens = numberWithin(options, 'blockTokens', '--block-tokens', {
    min: 1,
    max: 2 ** 20,
    whole: true,
  });
  const sessionGapS = numberWithin(options, 'sessionGap', '--session-gap', {
    min: 0,
    max: 1_000_000,
    counts: 's',
  });
  return {
    ...openOptions(settingsOf(options)),
    ...(from === undefined || from === 'auto' ? {} : { format: requireFormat(from) }),
    ...(blockTokens === undefined ? {} : { blockTokens }),
    ...(sessionGapS === undefined ? {} : { sessionGapS }),
  };
}

// Which options act on which format.

const recorded = FORMATS.filter((format) => !['spec', 'servegen', 'tracev2', 'miniswe'].includes(format));

/** Options that shape what is generated, or what some formats hold, with the formats that they act on. */
const shaping: readonly (readonly [name: string, flag: string, acts: readonly Format[]])[] = [
  ['numRequests', '--num-requests', ['spec', 'servegen']],
  ['horizon', '--horizon', ['spec', 'servegen']],
  ['timeout', '--timeout', ['spec', 'servegen']],
  ['profile', '--profile', ['spec', 'servegen']],
  ['blockTokens', '--block-tokens', ['mooncake', 'bailian', 'weka']],
  ['dropEmpty', '--drop-empty', recorded],
  ['sort', '--sort', recorded.filter((format) => format !== 'weka' && format !== 'vllm-bench')],
  ['sessionGap', '--session-gap', ['weka']],
];

/** @throws TKV_CONFIG naming the first option that changes nothing of a file of this format */
function refuseIdleShaping(options: OptionValues, source: string, format: Format): void {
  for (const [name, flag, acts] of shaping) {
    if (options[name] === undefined || acts.includes(format)) continue;
    const problem = `is for ${acts.join(' and ')}, and ${source} is ${format}`;
    throw configError(flag, problem, 'Leave it out.');
  }
}

function openFrom(file: string | undefined, options: OptionValues): OpenedWorkload {
  const checked = openFromOptions(options); // also what only a file would need
  if (file !== undefined && options.workload !== undefined) {
    throw configError('--workload', `excludes the file ${file}`, 'Keep one of them.');
  }
  if (file !== undefined) {
    const opened = openWorkload(file, checked);
    refusePresetSettings(settingsOf(options), file, usedByFormat(opened.format));
    refuseIdleShaping(options, file, opened.format);
    return opened;
  }
  refuseIdleShaping(options, 'a preset', 'spec');
  const hasUsers = options.concurrency !== undefined || isConversation(options.workload);
  if (!hasUsers && options.thinkTimeMs !== undefined) {
    const problem = 'is the pause of users in closed loop, and this workload has none';
    throw configError('--think-time-ms', problem, 'Add --concurrency, or leave it out.');
  }
  return openSpec(presetSpec(settingsOf(options)), {
    ...(checked.limits === undefined ? {} : { limits: checked.limits }),
    adjust: adjustmentOf(settingsOf(options), true),
  });
}

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
  for (const end of ['.yaml', '.csv']) requireWritableTargets({ '--output': `${stem}${end}` });
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
  requireWritableTargets({ '--json': options.json, '--plot': options.plot }, { FILE: file });
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
      : openWorkload(input, openFromOptions(options));
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
  const seed = get(settingsOf(options), 'seed');
  if (options.from === 'preset') {
    refusePeriods(options);
    return presetSpec(settingsOf({ ...options, workload: input }));
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
  const spec = adjustmentOf(settingsOf(options), false)(readSpec(input));
  return seed === undefined ? spec : { ...spec, seed };
}
