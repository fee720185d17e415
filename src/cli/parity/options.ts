/** The options of `tierkv parity`, and what they make: the traffic, the runtime, and the times of steps. */

import { existsSync, statSync } from 'node:fs';
import type { Command } from 'commander';
import { preemptionNames } from '../../runtime/batching/index.ts';
import { configError } from '../../runtime/errors.ts';
import { type KVLayout, kvLayout } from '../../runtime/index.ts';
import { evictionPolicyNames } from '../../runtime/policy/index.ts';
import type { SimulatedWorkload } from '../../sim/cluster/index.ts';
import { generateWorkload } from '../../sim/workload/index.ts';
import { parseBytes, requireWritableTarget } from '../output/index.ts';
import { engineHardware, oneOf } from '../simulate/input/latency.ts';
import { real, textOption, whole, wholeOption } from '../simulate/input/numbers.ts';
import type { Options } from '../simulate/input/options.ts';
import { openSimulation } from '../simulate/input/workload.ts';
import { mooncakeBlockTokens } from '../trace/index.ts';
import { addPresetOptions, refusePresetOptions, seedOption } from '../workload/options.ts';
import { defaultSpec } from './serving/defaultTraffic.ts';
import type { EngineSetting, ParityEngine } from './serving/engine.ts';
import type { StandInConfig } from './serving/standIn.ts';
import { type Traffic, trafficOf } from './serving/traffic.ts';

export interface ParityOptions extends Omit<EngineSetting, 'dir'> {
  readonly traffic: Traffic;
  readonly latency: StandInConfig['latency'];
  readonly latencyModel: string;
  readonly layout: KVLayout;
  readonly dir: string | undefined;
  readonly linksPath: string | undefined;
  readonly logPath: string | undefined;
  readonly jsonPath: string | undefined;
  readonly plotPath: string | undefined;
}

/** Of traffic that does not say how long it is. */
const REQUESTS = 80;
/** Most blocks of a tier. */
const BLOCKS_MAX = 2 ** 22;

export function addParityOptions(command: Command): Command {
  addPresetOptions(command)
    .option('--num-requests <n>', `at most so many requests (default: the specification's, else ${REQUESTS})`)
    .option('--seed <n>', 'random key of generated traffic, a 64-bit integer (default: 42)')
    .option('--speed <n>', 'how many times as fast requests arrive', '1');
  command
    .option('--model <name>', 'model whose steps are stood in for, or its config.json', 'qwen/qwen3-14b')
    .option('--hardware <name>', "GPU that it runs on, or its file (default: the model's, else H100)")
    .option('--tp <n>', "tensor parallel GPUs (default: the model's, else 1)")
    .option(
      '--latency-model <name>',
      'trained-physics, roofline, linear, blackbox or calibrated',
      'calibrated',
    )
    .option('--coefficients <file>', 'coefficients of the latency model (default: as shipped)');
  return command
    .option('--engine <module>', 'engine that serves, in place of a stand-in for a model')
    .option('--hbm-blocks <n>', 'blocks in GPU memory', '400')
    .option('--ddr-blocks <n>', 'blocks in host memory, 0 for none', '600')
    .option('--nvme-blocks <n>', 'blocks on disk, 0 for none', '4000')
    .option('--block-bytes <size>', 'bytes of a block that move', '64KiB')
    .option('--block-tokens <n>', `tokens of a block (default: 16; ${mooncakeBlockTokens} for block traces)`)
    .option('--max-num-seqs <n>', 'most requests in a batch', '64')
    .option('--max-num-batched-tokens <n>', 'most tokens of a step', '2048')
    .option('--eviction <policy>', 'who leaves a tier first', 'lru')
    .option('--preemption-mode <name>', 'what makes room: recompute or offload', 'recompute')
    .option('--adapter <name>', 'hardware, software, or a part of the name of the adapter to use')
    .option('--dir <dir>', 'directory for the disk tier (default: a temporary one, removed at the end)')
    .option('--links <file>', 'link profile of tierkv calibrate (default: measured before the run)')
    .option('--log <file>', 'keep the decision log of the real run')
    .option('--json <file>', 'write the report as JSON')
    .option('--plot <file.svg>', 'draw both runs');
}

/** @throws {TierKVError} naming the option at fault */
export function parseParityOptions(
  trace: string | undefined,
  given: Options,
  engine?: ParityEngine,
): ParityOptions {
  const options: Options = { ...given, timeout: '-1' };
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
  const bytesOf = (name: string, min: number): number =>
    whole(options, name, min, BLOCKS_MAX) * layout.blockBytes;
  const tierBytes = {
    hbm: bytesOf('hbmBlocks', 1),
    ddr: bytesOf('ddrBlocks', 0),
    nvme: bytesOf('nvmeBlocks', 0),
  };
  const modes = preemptionNames.filter((name) => name !== 'restart');
  const { latency, model, hardware, tp } = machine;
  return {
    traffic: trafficOf(open, real(options, 'speed', 1e-6, 1e6)),
    latency,
    latencyModel: `${latency.backend} of ${model.name} on ${hardware.name} x ${tp}`,
    layout,
    tierBytes,
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

/** What was named; of a recorded trace, whose length nobody chose, the beginning. */
function openNamed(trace: string | undefined, options: Options): SimulatedWorkload {
  const opened = openSimulation(trace, options);
  if (opened.spec !== undefined || options.numRequests !== undefined) return opened.workload;
  return openSimulation(trace, { ...options, numRequests: String(REQUESTS) }).workload;
}

function openDefault(options: Options): SimulatedWorkload {
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
function layoutOf(options: Options, open: () => SimulatedWorkload): KVLayout {
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
