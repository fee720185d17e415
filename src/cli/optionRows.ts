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
  simulateAliases,
  simulateGroups,
  withDefaults,
} from '../simulate/optionTable.ts';

export function addRows(command: Command, rows: readonly OptionRow[], isHidden = false, group = ''): Command {
  for (const [flags, about, otherwise] of rows) {
    const option = new Option(flags, about).hideHelp(isHidden);
    if (group !== '') option.helpGroup(`${group}:`);
    if (otherwise !== undefined) option.default(otherwise);
    // without a file the result goes to standard output
    if (flags.includes('[')) option.preset(STDOUT);
    if (optionNameOf(flags) === REPEATED) {
      option.argParser((value: string, before: string | undefined) =>
        before === undefined ? value : `${before}\n${value}`,
      );
    }
    command.addOption(option);
  }
  return command;
}

/** `--json [file]` of every command: what it writes is described by docs/reference/result.schema.json. */
export function jsonOption(): Option {
  return new Option(
    '--json [file]',
    'write the result as JSON, to standard output unless a file is named',
  ).preset(STDOUT);
}

/** All options of `tierkv simulate`. */
export function addSimulateOptions(command: Command): Command {
  for (const { title, rows } of simulateGroups) addRows(command, rows, false, title);
  return addAliases(addRows(command, hiddenRows, true), simulateAliases);
}

/**
 * Other names of options of the command, which help leaves out: where one is given, the option has its value.
 * @param aliases the option behind each
 */
export function addAliases(command: Command, aliases: Readonly<Record<string, string>>): Command {
  const pairs = Object.entries(aliases).map(([alias, flag]) => {
    const option = command.options.find(({ long }) => long === flag);
    if (option === undefined) throw new Error(`${alias} is another name of ${flag}, which does not exist`);
    const other = new Option(option.flags.replace(flag, alias).replace(/^-\w, /, '')).hideHelp();
    if (option.parseArg !== undefined) other.argParser(option.parseArg);
    command.addOption(other);
    return [other, option] as const;
  });
  return command.hook('preAction', (_, called) => {
    for (const [other, option] of pairs) {
      if (called.getOptionValueSource(other.attributeName()) !== 'cli') continue;
      if (called.getOptionValueSource(option.attributeName()) === 'cli') {
        const problem = `is another name of ${option.long}, which is given too`;
        throw configError(String(other.long), problem, 'Keep one of them.');
      }
      const value: unknown = called.getOptionValue(other.attributeName());
      called.setOptionValueWithSource(option.attributeName(), value, 'cli');
      called.setOptionValueWithSource(other.attributeName(), undefined, undefined);
    }
  });
}

/** Standard output, as the file of a result. */
const STDOUT = '-';

/** @throws TKV_CONFIG where the deployment is missing or said twice, or an option has no part here */
export function askedOf(command: Command, workload: string | undefined): AskedSimulation {
  const options: Record<string, string | boolean> = {};
  for (const option of command.options) {
    const attribute = option.attributeName();
    if (command.getOptionValueSource(attribute) !== 'cli') continue;
    options[optionNameOf(String(option.long))] = command.getOptionValue(attribute) as string | boolean;
  }
  return checkAsked({ workload, options: withDefaults(options), given: new Set(Object.keys(options)) });
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
