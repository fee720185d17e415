/** Options of `tierkv workload` alone, and which of them act on which format. */

import type { Command } from 'commander';
import {
  FORMATS,
  type Format,
  type OpenedWorkload,
  openSpec,
  openWorkload,
} from '../../files/openWorkload.ts';
import { configError } from '../../runtime/errors.ts';
import { isConversation } from '../../sim/workload/presets.ts';
import { type OptionValues, traceRows } from '../../simulate/optionTable.ts';
import {
  adjustmentOf,
  openOptions,
  presetSpec,
  refusePresetOptions,
  usedByFormat,
} from '../../simulate/presetOptions.ts';
import { addRows } from '../optionRows.ts';

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
export function refuseIdleShaping(options: OptionValues, source: string, format: Format): void {
  for (const [name, flag, acts] of shaping) {
    if (options[name] === undefined || acts.includes(format)) continue;
    const problem = `is for ${acts.join(' and ')}, and ${source} is ${format}`;
    throw configError(flag, problem, 'Leave it out.');
  }
}

export function openFrom(file: string | undefined, options: OptionValues): OpenedWorkload {
  const checked = openOptions(options); // also what only a file would need
  if (file !== undefined && options.workload !== undefined) {
    throw configError('--workload', `excludes the file ${file}`, 'Keep one of them.');
  }
  if (file !== undefined) {
    const opened = openWorkload(file, checked);
    refusePresetOptions(options, file, usedByFormat(opened.format));
    refuseIdleShaping(options, file, opened.format);
    return opened;
  }
  refuseIdleShaping(options, 'a preset', 'spec');
  const hasUsers = options.concurrency !== undefined || isConversation(options.workload);
  if (!hasUsers && options.thinkTimeMs !== undefined) {
    const problem = 'is the pause of users in closed loop, and this workload has none';
    throw configError('--think-time-ms', problem, 'Add --concurrency, or leave it out.');
  }
  return openSpec(presetSpec(options), {
    ...(checked.limits === undefined ? {} : { limits: checked.limits }),
    adjust: adjustmentOf(options, true),
  });
}

export function addCommonOptions(command: Command): Command {
  return addRows(command, traceRows)
    .option('--from <format>', 'format of the file, found out by default')
    .option('--seed <n>', 'random key, a 64-bit integer (spec: its own; else 42)')
    .option('--num-requests <n>', 'most requests')
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
