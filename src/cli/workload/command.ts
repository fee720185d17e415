/** `tierkv workload`: its commands, their options and their help; run.ts turns them into files and tables. */

import { Command } from 'commander';
import type { OptionValues } from '../flags.ts';
import { addKnobs, jsonOption, presetPaths, tracePaths } from '../optionRows.ts';
import type { WorkloadRuns } from './run.ts';

function addCommonOptions(command: Command): Command {
  return addKnobs(command, tracePaths)
    .option('--from <format>', 'format of the file, found out by default')
    .option('--seed <n>', 'random key, a 64-bit integer (spec: its own; else 42)')
    .option('--num-requests <n>', 'maximum number of requests')
    .option('--horizon <time>', 'no arrival after this, as 10m, or in microseconds')
    .option('--timeout <time>', 'deadline of every request, as 30s, or in seconds; negative: none')
    .option(
      '--profile <profile>',
      'load over time: constant, step, ramp, diurnal or spike, as ramp:from=2,to=20,duration=600',
    )
    .option('--block-tokens <n>', 'tokens of a block, for traces that name blocks')
    .option(
      '--session-gap <time>',
      'between the starts of recorded agent sessions, as 1m, or in seconds (default: 60)',
    );
}

export function workloadCommand(): Command {
  const command = new Command('workload').description('Make, inspect and translate workloads.');
  const action =
    (run: keyof WorkloadRuns) =>
    async (file: string | undefined, options: OptionValues): Promise<void> =>
      (await import('./run.ts')).workloadRuns[run](file, options);

  addCommonOptions(addKnobs(command.command('generate'), presetPaths))
    .description('Generate the requests of a spec or a preset as TraceV2.')
    .argument('[spec]', 'workload spec in YAML')
    .option('-o, --output <stem>', 'write <stem>.yaml and <stem>.csv (default: rows to stdout)')
    .action(action('generate'));

  addCommonOptions(addKnobs(command.command('describe'), presetPaths))
    .description('Show arrivals, lengths, prefix sharing and tenants of a spec, a trace or a preset.')
    .argument('[workload]', 'spec, trace or folder')
    .option('--plot <file.svg>', 'plot the workload')
    .addOption(jsonOption())
    .action(action('describe'));

  addCommonOptions(command.command('convert'))
    .description('Translate a workload from any format to TraceV2, profiles and presets to a spec.')
    .argument('<workload>', 'spec, trace, folder, or a preset name with --from preset')
    .requiredOption('--to <format>', 'tracev2 or spec')
    .option('--rate <n>', 'arrival rate in requests per second, for presets and files of lengths')
    .option('--window-duration-seconds <n>', 'length of each ServeGen period')
    .option('--drain-timeout-seconds <n>', 'gap between ServeGen periods')
    .option('-o, --output <file>', 'where to write (default: stdout)')
    .action(action('convert'));

  return command;
}
