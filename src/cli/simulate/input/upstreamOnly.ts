/**
 * Options of BLIS that have no part here, each with the reason and with what to use instead. They are known,
 * so that a command line of upstream's ends in that sentence and not in "unknown option".
 */

import { type Command, Option } from 'commander';
import { configError } from '../../../runtime/errors.ts';
import { flagOf } from './numbers.ts';
import type { Options } from './options.ts';

type Entry = readonly [flags: string, problem: string, remedy: string];

const perPool = (what: string, key: string): readonly Entry[] =>
  ['prefill', 'decode'].map(
    (role): Entry => [
      `--${role}-${what} <value>`,
      `sets one thing for the ${role} instances alone`,
      `Write a pool with role: ${role} and ${key}, and pass the file with --deployment.`,
    ],
  );

const lora = ['config', 'adapter-capacity', 'load-base-latency-us', 'load-bandwidth-bytes-us'];
const loraMore = ['footprint-bytes-per-rank', 'scorer-weight'];

/** Accepted, since the result is the same with and without them. */
const accepted: readonly (readonly [flags: string, why: string])[] = [
  ['--lazy-generation', 'requests are always generated as they come'],
];

const refused: readonly Entry[] = [
  [
    '--defaults-filepath <file>',
    "names upstream's file of defaults, which is not read here",
    'Use --coefficients, --hardware-config and --model-config-folder.',
  ],
  [
    '--enable-expert-parallel',
    'is not modelled: experts lie on tp x dp GPUs here, whether they are asked for or not',
    'Leave it out, and set --tp and --dp.',
  ],
  [
    '--pd-transfer-contention',
    "is not modelled: a prefill instance's link carries one transfer after the other, always",
    'Leave it out; --pd-transfer-bandwidth is the bandwidth of one link.',
  ],
  ...perPool('tp', 'tp'),
  ...perPool('hardware', 'hardware'),
  ...perPool('latency-model', 'latency_model'),
  ...perPool('max-model-len', 'max_model_len'),
  ['--encode-instances <n>', 'asks for encode pools, which are not modelled', 'Leave it out.'],
  ['--encode-decider <name>', 'asks for encode pools, which are not modelled', 'Leave it out.'],
  ['--in-flight-eviction', 'is not modelled: a request that was dispatched stays', 'Use --queue-shedding.'],
  ...[...lora, ...loraMore].map(
    (name): Entry => [
      `--lora-${name} <value>`,
      'is of LoRA adapters, which the simulator does not load',
      'Leave it out.',
    ],
  ),
  [
    '--fitness-weights <list>',
    'weighs metrics into one number, which simulate does not',
    'Use tierkv evaluate with a plan.',
  ],
  ...['detectors <list>', 'saturation-config <file>', 'saturation-report <file>'].map(
    (name): Entry => [
      `--${name}`,
      'judges saturation after the run, which is not done here',
      'Look at still_queued and the latencies.',
    ],
  ),
  [
    '--saturation-final-window <duration>',
    'judges saturation after the run, which is not done here',
    'Look at still_queued and the latencies.',
  ],
  ['--think-time-dist <spec>', 'draws pauses of a replay', 'Use --session-mode closed-loop --think-time-ms.'],
  ['--max-num-running-reqs <n>', 'is an old name', 'Use --max-num-seqs.'],
  ['--max-num-scheduled-tokens <n>', 'is an old name', 'Use --max-num-batched-tokens.'],
];

export function addUpstreamOnly(command: Command): Command {
  for (const [flags] of [...accepted, ...refused]) command.addOption(new Option(flags).hideHelp());
  return command;
}

/** @throws TKV_CONFIG for an option of upstream's that has no part here */
export function refuseUpstreamOnly(options: Options): void {
  for (const [flags, problem, remedy] of refused) {
    const name = new Option(flags).attributeName();
    if (options[name] !== undefined) throw configError(flagOf(name), `is upstream's and ${problem}`, remedy);
  }
}

/** Names of all options of upstream's that are handled here, for the page of differences. */
export const upstreamOnlyFlags: readonly string[] = [...accepted, ...refused].map(
  ([flags]) => flags.split(' ')[0],
);
