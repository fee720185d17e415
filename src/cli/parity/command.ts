/**
 * `tierkv parity [TRACE]`: how far the simulator is from the real runtime, on this machine. This file turns
 * the command line into a run and the report into output.
 */

import { existsSync, statSync } from 'node:fs';
import { Command } from 'commander';
import { mooncakeBlockTokens } from '../../files/mooncakeTrace.ts';
import { requireWritableTarget, writeResultJson, writeText } from '../../files/results.ts';
import { temporaryDirectory } from '../../files/temporaryDirectory.ts';
import { loadEngine, type ParityEngine } from '../../parity/engine.ts';
import type { ParityListener, ParityOptions } from '../../parity/run.ts';
import { defaultSpec, trafficOf } from '../../parity/traffic.ts';
import { renderSvg } from '../../printing/chart.ts';
import { startProgressBar } from '../../printing/progress.ts';
import { formatSeconds, parseBytes } from '../../printing/text.ts';
import { askedRows, type SizedTier } from '../../replay/sizedTiers.ts';
import { preemptionNames } from '../../runtime/batching/config.ts';
import { configError } from '../../runtime/errors.ts';
import { evictionPolicyNames } from '../../runtime/eviction/registry.ts';
import { type KVLayout, kvLayout, TOP } from '../../runtime/index.ts';
import type { SimulatedWorkload } from '../../sim/cluster/parts.ts';
import { generateWorkload } from '../../sim/workload/workload.ts';
import { engineHardware, oneOf } from '../../simulate/engineOptions.ts';
import { seedOption } from '../../simulate/numberOptions.ts';
import { blocksOption, real, textOption, whole, wholeOption } from '../../simulate/options.ts';
import { type OptionValues, presetRows } from '../../simulate/optionTable.ts';
import { refusePresetOptions } from '../../simulate/presetOptions.ts';
import { openSimulation } from '../../simulate/workloadOptions.ts';
import { addAliases, addRows, jsonOption } from '../optionRows.ts';
import { printText } from '../output.ts';
import { interruptible } from '../process.ts';
import { checkReport, reportAbout, reportFlags, reportTo } from '../reportOption.ts';
import { addTierOptions, sizeDefaults, textOf, tierAliases, wordOf } from '../tierOptions.ts';

const helpEnd = `
The traffic is served on real tiers, by the runtime's scheduler, as it arrives; a stand-in for the model takes
the times of steps from a latency model. Then the recorded inputs are given to the simulator's manager and
scheduler: the log has to come out byte for byte. Then the simulator serves the same traffic free, with the
links as tierkv calibrate measures them.

With --engine an engine that computes serves instead, and the times of its steps are fitted to the ones
that it made. Its blocks have its own size, so --block-bytes and --block-tokens stay as they are, and so does the
model.

Each block has --block-bytes whatever the model; a block of a trace with block ids has their tokens.
Without a trace and without --workload the traffic is conversations that come back, half a minute of them.

With --pair two runtimes serve, each with tiers of the sizes given, and blocks go from the one that computes
prompts to the one that generates. The log of each has to come out byte for byte (--log FILE writes FILE.prefill
and FILE.decode), and the simulator serves with a prefill and a decode instance, whose link is measured before.

Exit code: 0 when the replay is identical and no block came back wrong, 1 when not, 2 for a mistake in the
call.
Last line: exact replay: identical (...)
`;

export function parityCommand(): Command {
  const command = new Command('parity')
    .description('Serve traffic on the real runtime, and compare it with its replay and its simulation.')
    .argument('[trace]', 'recorded trace or workload specification (default: conversations)');
  return addParityOptions(command)
    .addHelpText('after', helpEnd)
    .action(async (trace: string | undefined, given: OptionValues) => {
      await checkReport(given.report);
      const named = textOption(given, 'engine');
      const isPair = given.pair === true;
      if (isPair && named !== undefined) {
        throw configError(
          '--engine',
          'excludes --pair, which stands in for both models',
          'Keep one of them.',
        );
      }
      const engine = named === undefined ? undefined : await loadEngine(named);
      const options = parseParityOptions(trace, given, engine);
      const { runParity, runnersOf } = await import('../../parity/run.ts');
      const { runPairParity } = await import('../../parity/pairParity.ts');
      const { renderParity } = await import('./report.ts');
      using scratch = temporaryDirectory('tierkv-parity-', options.dir);
      using bar = startProgressBar('requests');
      const startMs = performance.now();
      const { expected } = options.traffic;
      const { report, chart, served } = await interruptible((signal) => {
        const listener: ParityListener = {
          signal,
          notice: (line: string) => bar.notice(line),
          stage: (name: string) =>
            bar.say(`tierkv: ${name} (${formatSeconds((performance.now() - startMs) / 1000)})`),
          progress: (done: number) => bar.update({ share: expected === 0 ? 0 : done / expected, done }),
        };
        if (isPair) return runPairParity(options, scratch.path, listener);
        return runParity(options, runnersOf(options, engine), scratch.path, listener);
      });
      if (options.jsonPath !== undefined) writeResultJson(options.jsonPath, 'parity', report);
      if (options.plotPath !== undefined) writeText(options.plotPath, await renderSvg(chart));
      if (typeof given.report === 'string') {
        const { parityReport } = await import('../../report/parityReport.ts');
        await reportTo(given.report, (command) => parityReport({ ...report, served }, command));
      }
      printText(renderParity(report));
      if (!report.exact.identical || report.wrongBlocks > 0) process.exitCode = 1;
    });
}

//  The options of `tierkv parity`, and what they make: the traffic, the runtime, and the times of steps.

interface ParityCall extends ParityOptions {
  /** Where directories of the run are made; undefined for the system's directory of temporary files. */
  readonly dir: string | undefined;
  readonly jsonPath: string | undefined;
  readonly plotPath: string | undefined;
}

/** Of traffic that does not say how long it is. */
const REQUESTS = 80;
/** Most blocks of a tier. */
const BLOCKS_MAX = 2 ** 22;

function addParityOptions(command: Command): Command {
  addRows(command, presetRows)
    .option('--num-requests <n>', `most requests (default: the specification's, else ${REQUESTS})`)
    .option('--seed <n>', 'random key of generated traffic, a 64-bit integer (default: 42)')
    .option('--speed <n>', 'how many times as fast requests arrive', '1');
  command
    .option('--model <name>', 'model whose steps are stood in for, or its config.json', 'qwen/qwen3-14b')
    .option('--gpu <name>', "GPU that it runs on, or its file (default: the model's, else H100)")
    .option('--tp <n>', "tensor parallel GPUs (default: the model's, else 1)")
    .option(
      '--latency-model <name>',
      'trained-physics, roofline, linear, blackbox or calibrated',
      'calibrated',
    )
    .option('--coefficients <file>', 'coefficients of the latency model (default: as shipped)');
  command
    .option('--engine <module>', 'engine that serves, in place of a stand-in for a model')
    .option('--pair', 'serve with two runtimes: one computes prompts and hands their blocks to the other');
  addTierOptions(command, sizeDefaults(['400', '600', '4000']));
  command
    .option('--block-bytes <size>', 'bytes of a block that move', '64KiB')
    .option('--block-tokens <n>', `tokens of a block (default: 16; ${mooncakeBlockTokens} for block traces)`)
    .option('--max-num-seqs <n>', 'most requests in a batch', '64')
    .option('--max-num-batched-tokens <n>', 'most tokens of a step', '2048')
    .option('--eviction <policy>', 'who leaves a tier first', 'lru')
    .option('--preemption-mode <name>', 'what makes room: recompute or offload', 'recompute')
    .option('--adapter <name>', 'hardware, software, or a part of the name of the adapter to use')
    .option('--links <file>', 'link profile of tierkv calibrate (default: measured before the run)')
    .option('--log <file>', 'keep the decision log of the real run')
    .addOption(jsonOption())
    .option('--plot <file.svg>', 'draw both runs')
    .option(reportFlags, reportAbout);
  return addAliases(command, {
    '--hardware': '--gpu',
    ...tierAliases(),
  });
}

/** @throws {TierKVError} naming the option at fault */
function parseParityOptions(
  trace: string | undefined,
  given: OptionValues,
  engine?: ParityEngine,
): ParityCall {
  const options: OptionValues = { ...given, hardware: given.gpu, timeout: '-1' };
  for (const name of ['log', 'json', 'plot']) {
    const target = textOption(options, name);
    if (target !== undefined) requireWritableTarget(target);
  }
  const dir = textOption(options, 'dir');
  if (dir !== undefined && !(existsSync(dir) && statSync(dir).isDirectory())) {
    throw configError('--dir', `is ${dir}, which is not a directory`, 'Make it, or leave --dir out.');
  }
  if (trace !== undefined && options.workload !== undefined) {
    throw configError('--workload', `excludes ${trace}`, 'Keep one of them.');
  }
  const isDefault = trace === undefined && options.workload === undefined;
  if (isDefault) refusePresetOptions(options, 'the traffic without --workload');
  const open = (): SimulatedWorkload => (isDefault ? openDefault(options) : openNamed(trace, options));
  const machine = engineHardware(options);
  const layout = engine?.layout ?? layoutOf(options, open);
  const tiers = askedRows().flatMap(({ name, asked: { size, place } }, position): SizedTier<number>[] => {
    if (place?.isDirectory === false && textOf(options, place.option) === undefined) return [];
    const least = position === TOP ? 1 : 0;
    const blocks = blocksOption(options, wordOf(size.option), layout.blockBytes, least, BLOCKS_MAX) ?? 0;
    const at = place?.isDirectory === false ? { place: textOf(options, place.option) as string } : {};
    return blocks === 0 ? [] : [{ name, blocks, ...at }];
  });
  const modes = preemptionNames.filter((name) => name !== 'restart');
  const { latency, model, hardware, tp } = machine;
  return {
    traffic: trafficOf(open, real(options, 'speed', 1e-6, 1e6)),
    latency,
    latencyModel: `${latency.backend} of ${model.name} on ${hardware.name} x ${tp}`,
    layout,
    tiers,
    eviction: oneOf('--eviction', String(options.eviction), evictionPolicyNames),
    scheduler: {
      maxSequences: whole(options, 'maxNumSeqs', 1, 2 ** 16),
      maxBatchedTokens: whole(options, 'maxNumBatchedTokens', 1, 2 ** 24),
      preemption: oneOf('--preemption-mode', String(options.preemptionMode), modes),
    },
    adapter: textOption(options, 'adapter'),
    dir,
    linksPath: textOption(options, 'links'),
    logPath: textOption(options, 'log'),
    jsonPath: textOption(options, 'json'),
    plotPath: textOption(options, 'plot'),
  };
}

/** What was named; of a recorded trace, whose length was not chosen, the beginning. */
function openNamed(trace: string | undefined, options: OptionValues): SimulatedWorkload {
  const opened = openSimulation(trace, options);
  if (opened.spec !== undefined || options.numRequests !== undefined) return opened.workload;
  return openSimulation(trace, { ...options, numRequests: String(REQUESTS) }).workload;
}

function openDefault(options: OptionValues): SimulatedWorkload {
  const seed = seedOption(options);
  const maxRequests = wholeOption(options, 'numRequests', 1) ?? REQUESTS;
  const spec = defaultSpec();
  const { sessions, stream } = generateWorkload(seed === undefined ? spec : { ...spec, seed }, {
    maxRequests,
  });
  return { stream: stream(), sessions };
}

/** As the trace cuts its blocks, where it names them. */
function blockTokensOf(open: () => SimulatedWorkload): number {
  const prompt = open().stream.next()?.prompt;
  return prompt?.kind === 'blocks' ? prompt.blockTokens : 16;
}

/** A layout of one layer and one head whose blocks have the bytes of --block-bytes. */
function layoutOf(options: OptionValues, open: () => SimulatedWorkload): KVLayout {
  const blockTokens = wholeOption(options, 'blockTokens', 1, 2 ** 20) ?? blockTokensOf(open);
  const blockBytes = parseBytes('--block-bytes', String(options.blockBytes));
  const perTokenBytes = blockBytes / blockTokens;
  if (perTokenBytes % 8 !== 0 || blockBytes < 1024) {
    throw configError(
      '--block-bytes',
      `is ${blockBytes} for ${blockTokens} tokens`,
      `Set it to a multiple of ${8 * blockTokens} bytes, and to 1KiB or more.`,
    );
  }
  return kvLayout({ layers: 1, kvHeads: 1, headDim: perTokenBytes / 4, dtype: 'f16', blockTokens });
}
