/** Options of a command out of the rows of the library, and back: what a parsed command line asks for. */

import { type Command, Option } from 'commander';
import { configError } from '../runtime/errors.ts';
import { accepted, outputRows, refused } from '../sim/description/knobs/beside.ts';
import {
  flagOf,
  aliases as knobAliases,
  knobGroups,
  knobs,
  negationOf,
  type Path,
  paths,
} from '../sim/description/knobs.ts';
import { type AskedSimulation, asked, type ReadWords } from '../sim/description/readers.ts';

/** Settings that shape a preset. */
export const presetPaths: readonly Path[] = paths.filter((path) => knobs[path].shapesPreset);
/** Settings about reading a recorded trace. */
export const tracePaths: readonly Path[] = ['workload.columns', 'workload.dropEmpty', 'workload.sort'];

/** Adds the options of settings. */
export function addKnobs(command: Command, all: readonly Path[], group = ''): Command {
  for (const path of all) {
    const { flags, about, kind, or, negated } = knobs[path];
    const option = new Option(flags, about);
    if (group !== '') option.helpGroup(`${group}:`);
    if (or !== undefined && kind !== 'flag') option.default(String(or));
    if (kind === 'texts') {
      option.argParser((value: string, before: readonly string[] = []) => [...before, value]);
    }
    command.addOption(option);
    if (negated === undefined) continue;
    const no = new Option(negationOf(flagOf(path)), negated);
    command.addOption(group === '' ? no : no.helpGroup(`${group}:`));
  }
  return command;
}

function addRow(command: Command, flags: string, about: string, otherwise?: string): Option {
  const option = new Option(flags, about);
  if (otherwise !== undefined) option.default(otherwise);
  // without a file the result goes to standard output
  if (flags.includes('[')) option.preset(STDOUT);
  command.addOption(option);
  return option;
}

/** `--json [file]` of every command: what it writes is described by docs/reference/result.schema.json. */
export function jsonOption(): Option {
  return new Option('--json [file]', 'write the result as JSON (to standard output without a file)').preset(
    STDOUT,
  );
}

/** All options of `tierkv simulate`. */
export function addSimulateOptions(command: Command): Command {
  const [first, ...more] = outputRows;
  for (const [i, { title, paths: all }] of knobGroups.entries()) {
    addKnobs(command, all, title);
    // the result as JSON is asked for by most
    const rows = i === 0 ? [first] : i === knobGroups.length - 1 ? more : [];
    for (const [flags, about, otherwise] of rows)
      addRow(command, flags, about, otherwise).helpGroup(`${title}:`);
  }
  for (const [flags] of [...accepted, ...refused]) addRow(command, flags, '').hideHelp();
  return addAliases(command, knobAliases);
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

/** The options that were given. */
export function givenOptions(command: Command): ReadWords['options'] {
  const options: [string, string | boolean][] = [];
  for (const option of command.options) {
    const attribute = option.attributeName();
    if (command.getOptionValueSource(attribute) !== 'cli') continue;
    const value = command.getOptionValue(attribute) as string | boolean | readonly string[];
    if (typeof value === 'boolean' && value === option.negate) continue;
    for (const each of typeof value === 'object' ? value : [value])
      options.push([String(option.long), each || true]);
  }
  return options;
}

/** @throws TKV_CONFIG where the deployment is missing or said twice, or an option has no part here */
export function askedOf(command: Command, workload: string | undefined): AskedSimulation {
  return asked(givenOptions(command), workload);
}
