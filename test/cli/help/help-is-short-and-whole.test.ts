/** Help fits a terminal: ten options first, every option behind `--help-all`, and lines as wide as the terminal at most. */

import type { Command } from 'commander';
import { describe, expect, it } from 'vitest';
import { examples, makeProgram } from '../../../src/cli/program.ts';

async function helpOf(name: string, flag: string, width: number): Promise<{ text: string; flags: string[] }> {
  const words = name.split(' ');
  const { program } = await makeProgram(words);
  let command: Command | undefined = program;
  for (const word of words) command = command?.commands.find((each) => each.name() === word);
  if (command === undefined) throw new Error(`${name} is missing`);
  let text = '';
  command.configureOutput({ writeOut: (more) => (text += more), getOutHelpWidth: () => width });
  await program.parseAsync([...words, flag], { from: 'user' }).catch(() => {});
  const flags = command.options.filter(({ hidden }) => !hidden).map(({ long, flags: all }) => long ?? all);
  return { text, flags };
}

/** Options that begin a line of help. */
const listed = (text: string): string[] =>
  [...text.matchAll(/^ {2}(?:-\w, )?(--[a-z][\w-]*)/gm)].map(([, flag]) => flag);

/** A line that cannot be cut: a call to copy, or one long word beside its option. */
const isOneWord = (line: string): boolean => /^Example: |^ {2,}tierkv |^.{0,34}\S+$/.test(line);

describe.each(Object.keys(examples))('%s', (name) => {
  it('shows at most ten options and the way to all', async () => {
    const { text, flags } = await helpOf(name, '--help', 80);
    const shown = listed(text).filter((flag) => !flag.startsWith('--help'));
    const hasMore = flags.includes('--help-all');
    expect(flags.filter((flag) => shown.includes(flag))).toHaveLength(shown.length);
    if (hasMore) {
      expect(shown).toHaveLength(10);
      expect(listed(text)).toContain('--help-all');
    } else expect(flags.length).toBeLessThanOrEqual(12);
  });

  it('shows all of them with --help-all', async () => {
    const { text, flags } = await helpOf(name, '--help-all', 80);
    if (!flags.includes('--help-all')) return;
    expect(text).toContain(`all ${flags.length - 1} options`);
    expect(listed(text).sort()).toEqual([...flags, '--help'].sort());
  });

  it.each([60, 80, 120])('is at most %i columns wide', async (width) => {
    for (const flag of ['--help', '--help-all']) {
      const { text } = await helpOf(name, flag, width);
      // lists of the notes, which are indented, stand as they were written, for 80 columns
      const most = (line: string): number => (/^ {2,}\S.* {2}/.test(line) ? Math.max(width, 80) : width);
      const wide = text.split('\n').filter((line) => line.length > most(line) && !isOneWord(line));
      expect(wide).toEqual([]);
    }
  });
});
