/** Arguments of `tierkv simulate` as the command reads them: what a plan or a grid has for each of its runs. */

import { Command } from 'commander';
import { refuseEmptyValues } from './emptyValues.ts';
import { addSimulateOptions, type OptionValues, simulateOptionsOf } from './options.ts';

/** Reads the arguments as `tierkv simulate` does. */
export function simulateArguments(args: readonly string[]): {
  workload: string | undefined;
  options: OptionValues;
  command: Command;
} {
  const command = addSimulateOptions(new Command('simulate'))
    .argument('[workload]')
    .exitOverride()
    .configureOutput({ writeErr: () => {} });
  command.parse([...args], { from: 'user' });
  refuseEmptyValues(command);
  return { workload: command.args[0], options: simulateOptionsOf(command), command };
}
