/**
 * `tierkv replay TRACE`: real chat traffic through the tiers. This file turns the command line into options
 * and the report into output; the run itself is `replay/run.ts`, which is loaded only once the options are
 * right.
 */

import { Command } from 'commander';
import { keepPipe } from '../../io/files/inputs.ts';
import { writeResultJson } from '../../io/files/results.ts';
import { type TemporaryDirectory, temporaryDirectory } from '../../io/files/temporaryDirectory.ts';
import { startProgressBar } from '../../io/printing/progress.ts';
import { formatBytesPerS } from '../../io/printing/text.ts';
import type { ReplayedTrace } from '../../observe/report/replayReport.ts';
import type { ReplayTimeline } from '../../observe/report/replayTimeline.ts';
import { configError, renamed } from '../../runtime/errors.ts';
import type { ReplayOptions, TraceReplayListener } from '../../studies/replay/options.ts';
import type { ReplayReport } from '../../studies/replay/report.ts';
import type { Study } from '../../studies/replay/study.ts';
import { notes } from '../help.ts';
import { addAliases, jsonOption } from '../optionRows.ts';
import { printText } from '../output.ts';
import { interruptible } from '../process.ts';
import { checkReport, reportAbout, reportFlags, reportTo } from '../reportOption.ts';
import { addTierOptions, tierAliases } from '../tierOptions.ts';
import type { RawStudyOptions, StudyRun } from './study.ts';
import { linkDefaults, type RawReplayOptions, replayDefaults } from './words.ts';

const helpEnd = `
Blocks are the cache's units of --block-tokens tokens each. A lookup serves the leading blocks that are
present in any tier; all blocks of a request then become the most recent in HBM, and what overflows a tier
moves down to the next.

Every block is real bytes that only this block can have, and each one that comes back is verified.

With --eviction, a table shows what the policies find beside LRU and the clairvoyant optimum: every request is
looked up and computed whole, then HBM is trimmed once, and no bytes move. For one policy at one capacity the
replay runs as well, under that policy; for "all", "optimum", several names, several capacities
(--hbm 1000,3000) or a trace in another format (WEKA, token ids) there is the table alone.

With --what-if-hints 0.9,0.8, the table also has a row for callers who say, as a request ends, whether and when its blocks
come back, right in 90 and in 80 % of cases: what such hints would be worth on this trace.

One pool alone: --ddr 0 --nvme 0.

Exit code: 0 when every block was right, 1 when one was not, 2 for a mistake in the call or the trace.

Last line: verifyFailures N
`;

/** Names of earlier versions. */
const aliases = {
  ...tierAliases(),
  '--policy': '--eviction',
  '--requests': '--num-requests',
};

type ReplayWords = RawReplayOptions &
  RawStudyOptions & { readonly eviction?: string; readonly numRequests?: string };

function rawOf({ eviction, numRequests, ...rest }: ReplayWords): RawReplayOptions & RawStudyOptions {
  return {
    ...rest,
    ...(eviction === undefined ? {} : { policy: eviction }),
    ...(numRequests === undefined ? {} : { requests: numRequests }),
  } as RawReplayOptions & RawStudyOptions;
}

export function replayCommand(): Command {
  const command = new Command('replay')
    .description('Replay a request trace (Mooncake JSON lines, plain, .gz or .zst) through the tiers.')
    .argument('[trace]', 'trace file or pipe: timestamp, input_length, output_length, hash_ids in each line');
  addTierOptions(command, replayDefaults, {
    first: 'with --eviction, a list',
    last: 'the last tier may be "all"',
  });
  command
    .option(
      '--block-bytes <size>',
      'bytes of a block, a multiple of 4, like 64KiB',
      replayDefaults.blockBytes,
    )
    .option(
      '--block-tokens <n>',
      'tokens of a block, by which the hash ids were cut',
      replayDefaults.blockTokens,
    )
    .option('--num-requests <n>', 'stop after this many requests')
    .option(
      '--shared-tier <file>',
      'with --driver modeled: that server, as tierkv calibrate --remote wrote it',
    )
    .option('--driver <name>', 'real moves the bytes, modeled computes the times', replayDefaults.driver)
    .option(
      '--link-gbps <n>',
      `with --driver modeled: bandwidth assumed of each link (default: ${linkDefaults.gbps})`,
    )
    .option(
      '--link-latency-us <n>',
      `with --driver modeled: latency assumed of each transfer (default: ${linkDefaults.latencyUs})`,
    )
    .option('--links <file>', 'with --driver modeled: links as tierkv calibrate measured them')
    .option(
      '--offload-threshold <share>',
      'share of HBM above which cached blocks move down after each request; 1: only when room is needed',
      replayDefaults.offloadThreshold,
    )
    .option(
      '--eviction <policy>',
      'eviction policy, a list of them, "all", or "optimum" (default: hazard, no table)',
    )
    .option(
      '--what-if-hints <list>',
      'say what hints would be worth that are right in these shares, as 0.9,0.8 (default policy beside: hazard)',
    )
    .option('--plot <file.svg>', 'with --eviction or --what-if-hints: draw the table')
    .option('--log <file>', 'write the decision log, and the inputs that led to it')
    .option(
      '--inputs <file>',
      'with --driver modeled, in place of a trace: the inputs that --log of a run wrote',
    )
    .addOption(jsonOption())
    .option(reportFlags, reportAbout)
    .option('--skip-bad', 'leave malformed trace lines out and count them', false)
    .addHelpText('after', notes(helpEnd))
    .action(async (tracePath: string | undefined, given: ReplayWords, command: Command) => {
      const raw = rawOf(given);
      if (tracePath === undefined && raw.inputs === undefined) {
        command.error("error: missing required argument 'trace'");
      }
      await checkReport(command.getOptionValue('report'));
      const { movesBytes, parseStudyRun, renderStudy } = await import('./study.ts');
      const usual = command.getOptionValueSource('blockTokens') === 'default';
      const study = parseStudyRun(usual ? { ...raw, blockTokens: '' } : raw, tracePath);
      if (study !== undefined && tracePath === undefined) {
        const option = given.eviction === undefined ? '--what-if-hints' : '--eviction';
        throw configError(option, 'needs a trace', 'Name the trace beside it.');
      }
      const studied = study === undefined || tracePath === undefined ? undefined : { study, tracePath };
      if (studied !== undefined && !movesBytes(studied.tracePath, studied.study)) {
        const found = await interruptible((s) => studyAlone(studied.tracePath, studied.study, s));
        await writeFound(command, { study: found.policies });
        return;
      }
      let scratch: TemporaryDirectory | undefined;
      const makeScratch = (): string => {
        scratch = temporaryDirectory('tierkv-replay-');
        return scratch.path;
      };
      try {
        const { parseReplayOptions } = await import('./parseOptions.ts');
        const { renderReport } = await import('./report.ts');
        const options = parseReplayOptions(tracePath, raw, makeScratch);
        const page = await timelineFor(command, options);
        const report = await interruptible((signal) => runOnFileOrPipe(options, signal, page.watch));
        const found =
          studied === undefined
            ? undefined
            : await interruptible((s) => studyOf(studied.tracePath, studied.study, s));
        if (options.jsonPath !== undefined)
          writeResultJson(options.jsonPath, 'replay', { ...report, ...found });
        await writeFound(command, {
          replay: report,
          ...(page.timeline === undefined ? {} : { timeline: page.timeline }),
          ...(found === undefined ? {} : { study: found.policies }),
        });
        printText(`${found === undefined ? '' : `${renderStudy(found.policies)}\n`}${renderReport(report)}`);
        if (report.verifyFailures > 0) process.exitCode = 1;
      } finally {
        scratch?.[Symbol.dispose]();
      }
    });
  return addAliases(command, aliases);
}

interface StudyReport {
  readonly policies: Study;
}

async function studyOf(tracePath: string, study: StudyRun, signal: AbortSignal): Promise<StudyReport> {
  const { runStudy } = await import('./study.ts');
  return { policies: await runStudy(tracePath, study, signal) };
}

/** A study alone: its table is all that is shown. */
async function studyAlone(tracePath: string, study: StudyRun, signal: AbortSignal): Promise<StudyReport> {
  const found = await studyOf(tracePath, study, signal);
  if (study.jsonPath !== undefined) writeResultJson(study.jsonPath, 'replay', found);
  const { renderStudy } = await import('./study.ts');
  printText(renderStudy(found.policies));
  return found;
}

/** `--report`: what was found, as a page. */
async function writeFound(command: Command, found: Omit<ReplayedTrace, 'trace' | 'command'>): Promise<void> {
  const target: unknown = command.getOptionValue('report');
  if (typeof target !== 'string') return;
  const { replayReport } = await import('../../observe/report/replayReport.ts');
  const trace = command.args[0] ?? String(command.getOptionValue('inputs'));
  await reportTo(target, (typed) => replayReport({ ...found, trace, command: typed }));
}

type Watch = NonNullable<TraceReplayListener['watch']>;

/** The timeline that `--report` shows, gathered by `watch`; neither without `--report`, or for inputs of a log. */
async function timelineFor(
  command: Command,
  { inputsPath }: ReplayOptions,
): Promise<{ readonly timeline?: ReplayTimeline; readonly watch: Watch | undefined }> {
  if (command.getOptionValue('report') === undefined || inputsPath !== undefined) return { watch: undefined };
  const { ReplayTimeline } = await import('../../observe/report/replayTimeline.ts');
  const timeline = new ReplayTimeline();
  return { timeline, watch: (manager) => timeline.watch(manager) };
}

/**
 * A replay reads its trace twice, so what comes through a pipe is kept in a file; errors still name the pipe.
 */
async function runOnFileOrPipe(
  options: ReplayOptions,
  signal: AbortSignal,
  watch: Watch | undefined,
): Promise<ReplayReport> {
  using kept = await keepPipe(options.tracePath, signal);
  if (kept === undefined) return run(options, signal, watch);
  try {
    return await run({ ...options, tracePath: kept.path }, signal, watch);
  } catch (error) {
    throw renamed({ [kept.path]: options.tracePath }, error);
  }
}

async function run(
  options: ReplayOptions,
  signal: AbortSignal,
  watch: Watch | undefined,
): Promise<ReplayReport> {
  const { runReplay } = await import('../../studies/replay/run.ts');
  using bar = startProgressBar('requests');
  const startMs = performance.now();
  const listener: TraceReplayListener = {
    ...(watch === undefined ? {} : { watch }),
    signal,
    notice: (message) => bar.notice(message),
    progress(state) {
      const seconds = (performance.now() - startMs) / 1000;
      bar.update({
        share: state.blocksTotal === 0 ? 0 : state.blocks / state.blocksTotal,
        done: state.requests,
        note: `${formatBytesPerS(state.bytesMoved / seconds)} moved`,
      });
    },
  };
  return await runReplay(options, listener);
}
