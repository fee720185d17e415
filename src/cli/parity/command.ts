/**
 * `tierkv parity [TRACE]`: how far the simulator is from the real runtime, on this machine. This file has the options and
 * their help; run.ts turns them into a run and the report into output.
 */

import { Command } from 'commander';
import { mooncakeBlockTokens } from '../../sim/build/mooncakeTrace.ts';
import { latencyBackends, usualLatency } from '../../sim/latency/latencyNames.ts';
import type { OptionValues } from '../flags.ts';
import { notes } from '../help.ts';
import { addAliases, addKnobs, jsonOption, presetPaths } from '../optionRows.ts';
import { reportAbout, reportFlags } from '../reportOption.ts';
import { addTierOptions, sizeDefaults, tierAliases } from '../tierOptions.ts';

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

The line "exact replay: identical (...)" is for scripts. The last three lines say what was equal, how far the
prediction was, and whether that is good on this machine; a busy machine is said.
`;

export function parityCommand(): Command {
  const command = new Command('parity')
    .description('Serve traffic on the real runtime, and compare it with its replay and its simulation.')
    .argument('[trace]', 'recorded trace or workload specification (default: conversations)');
  return addParityOptions(command)
    .addHelpText('after', notes(helpEnd))
    .action(async (trace: string | undefined, given: OptionValues) => {
      const { runParityCommand } = await import('./run.ts');
      await runParityCommand(trace, given, REQUESTS);
    });
}

/** Requests of traffic that does not say how long it is. */
const REQUESTS = 80;

function addParityOptions(command: Command): Command {
  addKnobs(command, presetPaths)
    .option(
      '--num-requests <n>',
      `most requests that come by themselves; further rounds of conversations come on top (default: the specification's, else ${REQUESTS})`,
    )
    .option('--seed <n>', 'random key of generated traffic, a 64-bit integer (default: 42)')
    .option('--speed <n>', 'how many times as fast requests arrive', '1');
  command
    .option('--model <name>', 'model whose steps are stood in for, or its config.json', 'qwen/qwen3-14b')
    .option('--gpu <name>', "GPU that it runs on, or its file (default: the model's, else H100)")
    .option('--tp <n>', "tensor parallel size (default: the model's, else 1)")
    .option(
      '--latency-model <name>',
      `${latencyBackends.slice(0, -1).join(', ')} or ${latencyBackends.at(-1)}`,
      usualLatency,
    )
    .option('--coefficients <file>', 'coefficients of the latency model (default: as shipped)');
  command
    .option('--engine <module>', 'engine that serves, in place of a stand-in for a model')
    .option('--pair', 'serve with two runtimes: one computes prompts and hands their blocks to the other');
  addTierOptions(command, sizeDefaults(['400', '600', '4000']));
  command
    .option('--block-bytes <size>', 'bytes of a block that move', '64KiB')
    .option('--block-tokens <n>', `tokens of a block (default: 16; ${mooncakeBlockTokens} for block traces)`)
    .option('--max-num-seqs <n>', 'maximum requests per batch', '64')
    .option('--max-num-batched-tokens <n>', 'token budget of a step', '2048')
    .option('--eviction <policy>', 'eviction policy of each tier', 'lru')
    .option('--preemption-mode <name>', 'preemption mode: recompute or offload', 'recompute')
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
