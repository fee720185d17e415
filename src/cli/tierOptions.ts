/** Options of commands that take the sizes of tiers, one set for each tier that says how it is asked for. */

import type { Command } from 'commander';
import { askedRows, isAlwaysAsked } from '../studies/replay/sizedTiers.ts';

/** Words of a command line, by option: without dashes, in camel case. */
type TierWords = Readonly<Record<string, unknown>>;

/** @param option without dashes */
function wordOf(option: string): string {
  return option.replace(/-(.)/g, (_, letter: string) => letter.toUpperCase());
}

/** Blocks of a tier that has to be named, unless its size is said. */
export const NAMED_BLOCKS = '20000';

/** The value given for the option; undefined without one. */
export function textOf(words: TierWords, option: string): string | undefined {
  const said = words[wordOf(option)];
  return typeof said === 'string' ? said : undefined;
}

/** The sizes of tiers that are asked for by size alone, from fast to slow; tiers beyond the list are off. */
export function sizeDefaults(sizes: readonly string[]): Readonly<Record<string, string>> {
  const rows = askedRows().filter(isAlwaysAsked);
  return Object.fromEntries(rows.map(({ asked: { size } }, i) => [wordOf(size.option), sizes[i] ?? '0']));
}

/**
 * Adds the options of all tiers.
 * @param defaults by word
 * @param about what the command says of the size of the first and of the last tier, beside what their rows say
 */
export function addTierOptions(
  command: Command,
  defaults: Readonly<Record<string, string>>,
  about: { readonly first?: string; readonly last?: string } = {},
): Command {
  const rows = askedRows();
  const always = rows.filter(isAlwaysAsked);
  for (const row of always) {
    const { size } = row.asked;
    const extra = row === always[0] ? about.first : row === always.at(-1) ? about.last : undefined;
    const text = extra === undefined ? size.about : `${size.about}; ${extra}`;
    command.option(`--${size.option} <size>`, text, defaults[wordOf(size.option)] ?? '0');
  }
  for (const row of rows) {
    const { size, place } = row.asked;
    if (place !== undefined) {
      command.option(`--${place.option} <${place.isDirectory ? 'dir' : 'url'}>`, place.about);
    }
    if (!isAlwaysAsked(row))
      command.option(`--${size.option} <n>`, `${size.about} (default: ${NAMED_BLOCKS})`);
  }
  return command;
}

/** Earlier names of the options of sizes: `--hbm-blocks` for `--hbm`. */
export function tierAliases(): Readonly<Record<string, string>> {
  const options = askedRows()
    .filter(isAlwaysAsked)
    .map(({ asked: { size } }) => size.option);
  return Object.fromEntries(options.map((option) => [`--${option}-blocks`, `--${option}`]));
}
