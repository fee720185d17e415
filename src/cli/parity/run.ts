/** The run behind `tierkv parity`: its options read, the traffic served and simulated, the report written. */

import { existsSync, statSync } from 'node:fs';
import { requireWritableTargets, writeResultJson, writeText } from '../../io/files/results.ts';
import { temporaryDirectory } from '../../io/files/temporaryDirectory.ts';
import { renderSvg } from '../../io/printing/chart.ts';
import { startProgressBar } from '../../io/printing/progress.ts';
import { formatBytes, formatCount, formatSeconds } from '../../io/printing/text.ts';
import { preemptionNames } from '../../runtime/batching/config.ts';
import { configError } from '../../runtime/errors.ts';
import { evictionPolicyNames } from '../../runtime/eviction/registry.ts';
import { type KVLayout, kvLayout, TOP } from '../../runtime/index.ts';
import { parseBytes } from '../../runtime/sizes.ts';
import { engineHardware } from '../../sim/build/engineSettings.ts';
import { refusePresetSettings } from '../../sim/build/presetSettings.ts';
import { openSimulation } from '../../sim/build/workloadSettings.ts';
import type { SimulatedWorkload } from '../../sim/cluster/parts.ts';
import { withWorkload } from '../../sim/description/readers.ts';
import { type Deployment, fault, get, isGiven, withValue } from '../../sim/description/settings.ts';
import { generateWorkload } from '../../sim/workload/workload.ts';
import { loadEngine, type ParityEngine } from '../../studies/parity/engine.ts';
import type { ParityListener, ParityOptions } from '../../studies/parity/run.ts';
import { defaultSpec, trafficOf } from '../../studies/parity/traffic.ts';
import { askedRows, blocksAsked, type SizedTier } from '../../studies/replay/sizedTiers.ts';
import { numberWithin, type OptionValues, oneOf, settingsOf, textOption } from '../flags.ts';
import { printText } from '../output.ts';
import { interruptible } from '../process.ts';
import { checkReport, reportTo } from '../reportOption.ts';
import { textOf } from '../tierOptions.ts';

/** @param requests of traffic that does not say how long it is */
export async function runParityCommand(
  trace: string | undefined,
  given: OptionValues,
  requests: number,
): Promise<void> {
  await checkReport(given.report);
  const named = textOption(given, 'engine');
  const isPair = given.pair === true;
  if (isPair && named !== undefined) {
    throw configError('--engine', 'excludes --pair, which stands in for both models', 'Keep one of them.');
  }
  const engine = named === undefined ? undefined : await loadEngine(named);
  const options = parseParityOptions(trace, given, requests, engine);
  const { runParity, runnersOf } = await import('../../studies/parity/run.ts');
  const { runPairParity } = await import('../../serve/handoff/pairParity.ts');
  const { renderParity } = await import('./report.ts');
  using scratch = temporaryDirectory('tierkv-parity-', options.dir);
  using bar = startProgressBar('requests');
  const startMs = performance.now();
  const { report, chart, served } = await interruptible((signal) => {
    const listener: ParityListener = {
      signal,
      notice: (line: string) => bar.notice(line),
      stage: (name: string) =>
        bar.say(`tierkv: ${name} (${formatSeconds((performance.now() - startMs) / 1000)})`),
      // what is replayed and predicted behind the last request takes a moment more
      progress: (done, expected) =>
        bar.update({ share: expected === 0 ? 0 : (0.98 * done) / expected, done }),
    };
    if (isPair) return runPairParity(options, scratch.path, listener);
    return runParity(options, runnersOf(options, engine), scratch.path, listener);
  });
  if (options.jsonPath !== undefined) writeResultJson(options.jsonPath, 'parity', report);
  if (options.plotPath !== undefined) writeText(options.plotPath, await renderSvg(chart));
  if (typeof given.report === 'string') {
    const { parityReport } = await import('../../observe/report/parityReport.ts');
    await reportTo(given.report, (command) => parityReport({ ...report, served }, command));
  }
  printText(renderParity(report));
  if (!report.exact.identical || report.wrongBlocks > 0) process.exitCode = 1;
}

//  Parts that the options make: the traffic, the runtime, and the times of steps.

interface ParityCall extends ParityOptions {
  /** Where directories of the run are made; undefined for the system's directory of temporary files. */
  readonly dir: string | undefined;
  readonly jsonPath: string | undefined;
  readonly plotPath: string | undefined;
}

/** Most blocks of a tier. */
const BLOCKS_MAX = 2 ** 22;

/** The size of a tier in blocks; undefined where it was not given. */
function blocksIn(
  options: OptionValues,
  option: string,
  blockBytes: number,
  least: number,
): number | undefined {
  const text = textOf(options, option);
  if (text === undefined) return undefined;
  const blocks = blocksAsked(option, text, blockBytes);
  if (Number.isNaN(blocks)) {
    throw configError(
      `--${option}`,
      `is "${text}", not a size`,
      'Write a number of blocks, or bytes as 64GiB.',
    );
  }
  if (blocks >= least && blocks <= BLOCKS_MAX) return blocks;
  const each = `${formatCount(blocks)} blocks of ${formatBytes(blockBytes)}`;
  const problem = `is ${text}${String(blocks) === text.trim() ? '' : `, which is ${each}`}`;
  const remedy = `Set it to an integer from ${least} to ${BLOCKS_MAX} blocks, or to as many bytes.`;
  throw configError(`--${option}`, problem, remedy);
}

/** @throws {TierKVError} naming the option at fault */
function parseParityOptions(
  trace: string | undefined,
  options: OptionValues,
  requests: number,
  engine?: ParityEngine,
): ParityCall {
  const given = settingsOf(options);
  requireWritableTargets(
    { '--log': options.log, '--json': options.json, '--plot': options.plot },
    { TRACE: trace },
  );
  const dir = textOption(options, 'dir');
  if (dir !== undefined && !(existsSync(dir) && statSync(dir).isDirectory())) {
    throw configError('--dir', `is ${dir}, which is not a directory`, 'Make it, or leave --dir out.');
  }
  if (trace !== undefined && isGiven(given, 'workload.preset')) {
    throw fault(given, 'workload.preset', `excludes ${trace}`, 'Keep one of them.');
  }
  // requests are served however late they are
  const deployment = withValue(withWorkload(given, trace), 'workload.timeoutS', -1);
  const isDefault = trace === undefined && !isGiven(given, 'workload.preset');
  if (isDefault) refusePresetSettings(deployment, 'the traffic without --workload');
  const open = (): SimulatedWorkload =>
    isDefault ? openDefault(deployment, requests) : openNamed(deployment, requests);
  const machine = engineHardware(deployment);
  const layout = engine?.layout ?? layoutOf(options, open);
  const tiers = askedRows().flatMap(({ name, asked: { size, place } }, position): SizedTier<number>[] => {
    if (place?.isDirectory === false && textOf(options, place.option) === undefined) return [];
    const blocks = blocksIn(options, size.option, layout.blockBytes, position === TOP ? 1 : 0) ?? 0;
    const at = place?.isDirectory === false ? { place: textOf(options, place.option) as string } : {};
    return blocks === 0 ? [] : [{ name, blocks, ...at }];
  });
  const modes = preemptionNames.filter((name) => name !== 'restart');
  const { latency, model, hardware, tp } = machine;
  const whole = (name: string, flag: string, max: number): number =>
    numberWithin(options, name, flag, { min: 1, max, whole: true }) ?? 1;
  const speed = numberWithin(options, 'speed', '--speed', { min: 1e-6, max: 1e6 }) ?? 1;
  return {
    traffic: trafficOf(open, speed),
    latency,
    latencyModel: `${latency.backend} of ${model.name} on ${hardware.name} x ${tp}`,
    layout,
    tiers,
    eviction: oneOf('--eviction', get(deployment, 'engine.eviction'), evictionPolicyNames),
    scheduler: {
      maxSequences: whole('maxNumSeqs', '--max-num-seqs', 2 ** 16),
      maxBatchedTokens: whole('maxNumBatchedTokens', '--max-num-batched-tokens', 2 ** 24),
      preemption: oneOf('--preemption-mode', get(deployment, 'engine.preemptionMode'), modes),
    },
    adapter: textOption(options, 'adapter'),
    dir,
    linksPath: textOption(options, 'links'),
    logPath: textOption(options, 'log'),
    jsonPath: textOption(options, 'json'),
    plotPath: textOption(options, 'plot'),
  };
}

/** The named workload; of a recorded trace whose length was not chosen, the beginning. */
function openNamed(deployment: Deployment, requests: number): SimulatedWorkload {
  const opened = openSimulation(deployment);
  if (opened.spec !== undefined || isGiven(deployment, 'workload.requests')) return opened.workload;
  return openSimulation(withValue(deployment, 'workload.requests', requests)).workload;
}

function openDefault(deployment: Deployment, requests: number): SimulatedWorkload {
  const seed = get(deployment, 'seed');
  const maxRequests = get(deployment, 'workload.requests') ?? requests;
  if (maxRequests < 1)
    throw fault(deployment, 'workload.requests', 'is 0', 'Set it to an integer of at least 1.');
  const spec = defaultSpec();
  const { sessions, stream } = generateWorkload(seed === undefined ? spec : { ...spec, seed }, {
    maxRequests,
  });
  return { stream: stream(), sessions };
}

/** Tokens of a block as the trace cuts them, where it names blocks. */
function blockTokensOf(open: () => SimulatedWorkload): number {
  const prompt = open().stream.next()?.prompt;
  return prompt?.kind === 'blocks' ? prompt.blockTokens : 16;
}

/** A layout of one layer and one head whose blocks have the bytes of --block-bytes. */
function layoutOf(options: OptionValues, open: () => SimulatedWorkload): KVLayout {
  const range = { min: 1, max: 2 ** 20, whole: true };
  const blockTokens = numberWithin(options, 'blockTokens', '--block-tokens', range) ?? blockTokensOf(open);
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
