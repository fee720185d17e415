/** The run behind `tierkv parity`: its options read, the traffic served and simulated, the report written. */

import { existsSync, statSync } from 'node:fs';
import { requireWritableTargets, writeResultJson, writeText } from '../../files/results.ts';
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
import type { OptionValues } from '../../simulate/optionTable.ts';
import { refusePresetOptions } from '../../simulate/presetOptions.ts';
import { openSimulation } from '../../simulate/workloadOptions.ts';
import { printText } from '../output.ts';
import { interruptible } from '../process.ts';
import { checkReport, reportTo } from '../reportOption.ts';
import { textOf, wordOf } from '../tierOptions.ts';

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
}

//  What the options make: the traffic, the runtime, and the times of steps.

interface ParityCall extends ParityOptions {
  /** Where directories of the run are made; undefined for the system's directory of temporary files. */
  readonly dir: string | undefined;
  readonly jsonPath: string | undefined;
  readonly plotPath: string | undefined;
}

/** Most blocks of a tier. */
const BLOCKS_MAX = 2 ** 22;

/** @throws {TierKVError} naming the option at fault */
function parseParityOptions(
  trace: string | undefined,
  given: OptionValues,
  requests: number,
  engine?: ParityEngine,
): ParityCall {
  const options: OptionValues = { ...given, hardware: given.gpu, timeout: '-1' };
  requireWritableTargets(
    { '--log': options.log, '--json': options.json, '--plot': options.plot },
    { TRACE: trace },
  );
  const dir = textOption(options, 'dir');
  if (dir !== undefined && !(existsSync(dir) && statSync(dir).isDirectory())) {
    throw configError('--dir', `is ${dir}, which is not a directory`, 'Make it, or leave --dir out.');
  }
  if (trace !== undefined && options.workload !== undefined) {
    throw configError('--workload', `excludes ${trace}`, 'Keep one of them.');
  }
  const isDefault = trace === undefined && options.workload === undefined;
  if (isDefault) refusePresetOptions(options, 'the traffic without --workload');
  const open = (): SimulatedWorkload =>
    isDefault ? openDefault(options, requests) : openNamed(trace, options, requests);
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
function openNamed(trace: string | undefined, options: OptionValues, requests: number): SimulatedWorkload {
  const opened = openSimulation(trace, options);
  if (opened.spec !== undefined || options.numRequests !== undefined) return opened.workload;
  return openSimulation(trace, { ...options, numRequests: String(requests) }).workload;
}

function openDefault(options: OptionValues, requests: number): SimulatedWorkload {
  const seed = seedOption(options);
  const maxRequests = wholeOption(options, 'numRequests', 1) ?? requests;
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
