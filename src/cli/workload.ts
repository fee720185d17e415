/**
 * `tierkv workload`: makes, inspects and translates workloads. This file turns command lines into calls and their results
 * into files and tables; formats, generation and summaries are the library's.
 */

import { Command } from 'commander';
import { configError, TierKVError } from '../runtime/errors.ts';
import {
  type DistributionOptions,
  distributionSpec,
  formatWorkloadSpec,
  type LengthRange,
  type Limits,
  parseProfile,
  presetLengths,
  traceColumns,
  traceHeader,
  traceRow,
  WorkloadDigest,
  type WorkloadSpec,
  WorkloadSummarizer,
  withProfile,
  withTimeout,
} from '../sim/workload/index.ts';
import { renderSvg } from './chart.ts';
import { writeJsonFile } from './output/index.ts';
import { renderSummary } from './workload/describe.ts';
import { writeText } from './workload/files.ts';
import {
  type OpenedWorkload,
  type OpenOptions,
  openSpec,
  openWorkload,
  readSpec,
  requireFormat,
  servegenSpec,
} from './workload/open.ts';
import { workloadChart } from './workload/plot.ts';

type Options = Readonly<Record<string, string | boolean | undefined>>;

function numberOption(options: Options, name: string, flag: string): number | undefined {
  const text = options[name];
  if (text === undefined || typeof text === 'boolean') return undefined;
  const value = text.trim() === '' ? Number.NaN : Number(text);
  if (Number.isFinite(value)) return value;
  throw configError(flag, `is "${text}", not a number`, `Set ${flag} to a number.`);
}

function seedOption(options: Options): bigint | undefined {
  const text = options.seed;
  if (typeof text !== 'string') return undefined;
  if (/^-?\d+$/.test(text.trim()) && BigInt(text) === BigInt.asIntN(64, BigInt(text))) return BigInt(text);
  throw configError('--seed', `is "${text}"`, 'Set it to an integer of 64 bits.');
}

function limitsOf(options: Options): Partial<Limits> {
  const maxRequests = numberOption(options, 'numRequests', '--num-requests');
  const horizonUs = numberOption(options, 'horizon', '--horizon');
  if (maxRequests !== undefined && !(Number.isSafeInteger(maxRequests) && maxRequests >= 0)) {
    throw configError('--num-requests', `is ${maxRequests}`, 'Set it to an integer of at least 0.');
  }
  if (horizonUs !== undefined && !(horizonUs > 0))
    throw configError('--horizon', `is ${horizonUs}`, 'Set it to µs above 0.');
  return {
    ...(maxRequests === undefined ? {} : { maxRequests }),
    ...(horizonUs === undefined ? {} : { horizonUs: Number.isSafeInteger(horizonUs) ? horizonUs : Infinity }),
    ...(options.profile === undefined ? {} : { keepInWindows: true }),
  };
}

/** What --profile and --timeout do to a spec. */
function adjustmentOf(options: Options, synthesized: boolean): (spec: WorkloadSpec) => WorkloadSpec {
  const timeoutS = numberOption(options, 'timeout', '--timeout');
  const profile = typeof options.profile === 'string' ? parseProfile(options.profile) : undefined;
  return (spec) => {
    const timed = timeoutS === undefined || synthesized ? spec : withTimeout(spec, timeoutS);
    return profile === undefined ? timed : withProfile(timed, profile);
  };
}

function lengthRange(
  options: Options,
  side: 'prompt' | 'output',
  preset: LengthRange | undefined,
): LengthRange {
  const base = preset ?? { mean: 512, stdDev: 256, min: 2, max: 7000 };
  const get = (name: string): number | undefined =>
    numberOption(
      options,
      `${side}Tokens${name}`,
      `--${side}-tokens${name === '' ? '' : `-${name.toLowerCase()}`}`,
    );
  return {
    mean: get('') ?? base.mean,
    stdDev: get('Stdev') ?? base.stdDev,
    min: get('Min') ?? base.min,
    max: get('Max') ?? base.max,
  };
}

function presetSpec(options: Options): WorkloadSpec {
  const preset = presetLengths(typeof options.workload === 'string' ? options.workload : 'distribution');
  const optional = (
    key: keyof DistributionOptions,
    name: string,
    flag: string,
  ): Partial<DistributionOptions> => {
    const value = numberOption(options, name, flag);
    return value === undefined ? {} : { [key]: value };
  };
  const seed = seedOption(options);
  return distributionSpec({
    prompt: lengthRange(options, 'prompt', preset.prompt),
    output: lengthRange(options, 'output', preset.output),
    ...optional('rate', 'rate', '--rate'),
    ...optional('concurrency', 'concurrency', '--concurrency'),
    ...optional('thinkTimeMs', 'thinkTimeMs', '--think-time-ms'),
    ...optional('numRequests', 'numRequests', '--num-requests'),
    ...optional('prefixTokens', 'prefixTokens', '--prefix-tokens'),
    ...optional('timeoutS', 'timeout', '--timeout'),
    ...(seed === undefined ? {} : { seed }),
  });
}

function openOptions(options: Options): OpenOptions {
  const seed = seedOption(options);
  const rate = numberOption(options, 'rate', '--rate');
  const blockTokens = numberOption(options, 'blockTokens', '--block-tokens');
  const sessionGapS = numberOption(options, 'sessionGap', '--session-gap');
  return {
    limits: limitsOf(options),
    adjust: adjustmentOf(options, false),
    ...(typeof options.from === 'string' && options.from !== 'auto'
      ? { format: requireFormat(options.from) }
      : {}),
    ...(seed === undefined ? {} : { seed }),
    ...(rate === undefined ? {} : { rate }),
    ...(blockTokens === undefined ? {} : { blockTokens }),
    ...(sessionGapS === undefined ? {} : { sessionGapS }),
  };
}

function open(file: string | undefined, options: Options): OpenedWorkload {
  if (file !== undefined && options.workload === undefined) return openWorkload(file, openOptions(options));
  if (file !== undefined) throw configError('--workload', `excludes the file ${file}`, 'Keep one of them.');
  const { limits, adjust } = { limits: limitsOf(options), adjust: adjustmentOf(options, true) };
  return openSpec(presetSpec(options), { limits, adjust });
}

/** Header and rows of a TraceV2 pair. Optional columns appear when a first pass finds a use for them. */
function* traceLines(opened: OpenedWorkload): Generator<string> {
  const used = { sloTarget: false, adapter: false, thinkTime: false };
  for (const request of opened.requests()) {
    used.sloTarget ||= request.origin.sloTargetUs > 0;
    used.adapter ||= request.origin.adapter !== '';
    used.thinkTime ||= request.thinkTimeUs > 0;
    if (used.sloTarget && used.adapter && used.thinkTime) break;
  }
  yield `${traceColumns(used)}\n`;
  let row = 0;
  for (const request of opened.requests()) yield `${traceRow(row++, request, used)}\n`;
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
  if (typeof output !== 'string') {
    for (const line of traceLines(opened)) process.stdout.write(line);
    return;
  }
  const stem = output.replace(/\.(csv|ya?ml)$/, '');
  writeText(`${stem}.yaml`, [headerOf(opened)]);
  writeText(`${stem}.csv`, traceLines(opened));
  process.stderr.write(`wrote ${stem}.yaml and ${stem}.csv\n`);
}

function noteSessions(opened: OpenedWorkload): void {
  const sessions = opened.workload?.sessions;
  if (sessions === undefined) return;
  const more = sessions.followUpBudget >= 0 ? `up to ${sessions.followUpBudget} follow-ups` : 'follow-ups';
  process.stderr.write(
    `closed loop: these are the first requests of ${sessions.seeds.length} sessions; their ${more} arrive when a simulation finishes the round before\n`,
  );
}

async function describe(file: string | undefined, options: Options): Promise<void> {
  const opened = open(file, options);
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
  if (typeof options.json === 'string')
    writeJsonFile(options.json, { format: opened.format, digest: digest.toString(), ...summary });
  process.stdout.write(renderSummary(summary));
  if (opened.format === 'miniswe')
    process.stdout.write('a token is a UTF-8 byte here: this trace holds text, not token ids\n');
  process.stdout.write(`digest ${digest}\n`);
  noteSessions(opened);
  if (typeof options.plot === 'string') {
    writeText(options.plot, [
      await renderSvg(workloadChart(file ?? String(options.workload ?? 'distribution'), summarizer)),
    ]);
    process.stderr.write(`wrote ${options.plot}\n`);
  }
}

function convert(input: string, options: Options): void {
  const to = String(options.to);
  if (to === 'tracev2') {
    const preset = options.from === 'preset';
    const opened = preset
      ? open(undefined, { ...options, workload: input })
      : openWorkload(input, openOptions(options));
    noteSessions(opened);
    writeTrace(opened, options.output);
    return;
  }
  if (to !== 'spec') throw configError('--to', `is "${to}"`, 'Use tracev2 or spec.');
  const text = formatWorkloadSpec(specOf(input, options));
  if (typeof options.output === 'string') writeText(options.output, [text]);
  else process.stdout.write(text);
}

/** The spec behind a folder of profiles, a preset name or a spec file. */
function specOf(input: string, options: Options): WorkloadSpec {
  const seed = seedOption(options);
  if (options.from === 'preset') return presetSpec({ ...options, workload: input });
  if (options.from === 'servegen') {
    const windowDurationS = numberOption(options, 'windowDurationSeconds', '--window-duration-seconds');
    const drainTimeoutS = numberOption(options, 'drainTimeoutSeconds', '--drain-timeout-seconds');
    return servegenSpec(input, seed ?? 42n, {
      ...(windowDurationS === undefined ? {} : { windowDurationS }),
      ...(drainTimeoutS === undefined ? {} : { drainTimeoutS }),
    });
  }
  const spec = adjustmentOf(options, false)(readSpec(input));
  return seed === undefined ? spec : { ...spec, seed };
}

function addPresetOptions(command: Command): Command {
  command.option(
    '--workload <name>',
    'chatbot, contentgen, summarization, multidoc or distribution, instead of a file',
  );
  command
    .option('--rate <n>', 'requests a second')
    .option('--concurrency <n>', 'users in closed loop, instead of --rate');
  command
    .option('--think-time-ms <n>', 'pause of such a user')
    .option('--prefix-tokens <n>', 'length of a shared prefix');
  for (const side of ['prompt', 'output']) {
    command
      .option(`--${side}-tokens <n>`, `mean ${side} length`)
      .option(`--${side}-tokens-stdev <n>`, 'its deviation');
    command.option(`--${side}-tokens-min <n>`, 'its least').option(`--${side}-tokens-max <n>`, 'its most');
  }
  return command;
}

function addCommonOptions(command: Command): Command {
  return command
    .option('--from <format>', 'format of the file, found out by default')
    .option('--seed <n>', 'random key, a 64-bit integer (spec: its own; else 42)')
    .option('--num-requests <n>', 'at most so many requests')
    .option('--horizon <us>', 'no arrival after this')
    .option('--timeout <s>', 'deadline of every request in seconds; negative: none')
    .option(
      '--profile <profile>',
      'load over time: constant, step, ramp, diurnal or spike, as ramp:from=2,to=20,duration=600',
    )
    .option('--block-tokens <n>', 'tokens of a block, for traces that name blocks')
    .option('--session-gap <s>', 'seconds between the starts of recorded agent sessions');
}

export function workloadCommand(): Command {
  const command = new Command('workload').description('Make, inspect and translate workloads.');
  const action =
    (run: (file: string | undefined, options: Options) => void | Promise<void>) =>
    (file: string | undefined, options: Options): void | Promise<void> =>
      run(file, options);

  addCommonOptions(addPresetOptions(command.command('generate')))
    .description('Generate the requests of a spec or a preset as TraceV2.')
    .argument('[spec]', 'workload spec in YAML')
    .option('-o, --output <stem>', 'write <stem>.yaml and <stem>.csv (default: rows to stdout)')
    .action(
      action((file, options) => {
        const opened = open(file, options);
        noteSessions(opened);
        writeTrace(opened, options.output);
      }),
    );

  addCommonOptions(addPresetOptions(command.command('describe')))
    .description('Show arrivals, lengths, prefix sharing and tenants of a spec, a trace or a preset.')
    .argument('[workload]', 'spec, trace or folder')
    .option('--plot <file.svg>', 'draw it')
    .option('--json <file>', 'write the numbers as JSON')
    .action(action(describe));

  addCommonOptions(command.command('convert'))
    .description('Translate a workload: any format to TraceV2, profiles and presets to a spec.')
    .argument('<workload>', 'spec, trace, folder, or a preset name with --from preset')
    .requiredOption('--to <format>', 'tracev2 or spec')
    .option('--rate <n>', 'requests a second, for presets and files of lengths')
    .option('--window-duration-seconds <n>', 'length of each ServeGen period')
    .option('--drain-timeout-seconds <n>', 'gap between ServeGen periods')
    .option('-o, --output <file>', 'where to write (default: stdout)')
    .action(action((file, options) => convert(file!, options)));

  return command;
}
