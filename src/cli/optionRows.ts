/** Options of a command out of the rows of the library, and back: what a parsed command line asks for. */

import { type Command, Option } from 'commander';
import { configError } from '../runtime/errors.ts';
import {
  type AskedSimulation,
  checkAsked,
  hiddenRows,
  type OptionRow,
  optionNameOf,
  REPEATED,
  simulateRows,
  withDefaults,
} from '../simulate/optionTable.ts';

export function addRows(command: Command, rows: readonly OptionRow[], isHidden = false): Command {
  for (const [flags, about, otherwise] of rows) {
    const option = new Option(flags, about).hideHelp(isHidden);
    if (otherwise !== undefined) option.default(otherwise);
    if (optionNameOf(flags) === REPEATED) {
      option.argParser((value: string, before: string | undefined) =>
        before === undefined ? value : `${before}\n${value}`,
      );
    }
    command.addOption(option);
  }
  return command;
}

/** All options of `tierkv simulate`. */
export function addSimulateOptions(command: Command): Command {
  return addRows(addRows(command, simulateRows), hiddenRows, true);
}

/** @throws TKV_CONFIG where the deployment is missing or said twice, or an option has no part here */
export function askedOf(command: Command, workload: string | undefined): AskedSimulation {
  const given = command.options
    .map((option) => option.attributeName())
    .filter((name) => command.getOptionValueSource(name) === 'cli');
  const options = Object.fromEntries(given.map((name) => [name, command.getOptionValue(name)]));
  return checkAsked({ workload, options: withDefaults(options), given: new Set(given) });
}

// An option or argument that is given and empty is mostly a variable of the shell that was not set.

/** @throws TKV_CONFIG naming the first that is empty */
export function refuseEmptyValues(command: Command): void {
  for (const [i, argument] of command.registeredArguments.entries()) {
    if (!argument.variadic && isEmpty(command.processedArgs[i])) {
      throw configError(
        argument.name(),
        'is empty',
        argument.required ? 'Name one.' : 'Name one, or leave it out.',
      );
    }
  }
  for (const option of command.options) {
    const name = option.attributeName();
    if (command.getOptionValueSource(name) !== 'cli' || !isEmpty(command.getOptionValue(name))) continue;
    throw configError(option.long ?? option.flags, 'is empty', 'Give it a value, or leave it out.');
  }
}

function isEmpty(value: unknown): boolean {
  const values: readonly unknown[] = Array.isArray(value) ? value : [value];
  return values.some((each) => typeof each === 'string' && each.trim() === '');
}
