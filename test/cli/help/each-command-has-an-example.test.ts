/** Help of every command: what it does in a sentence, an example whose options exist, and one form for times. */

import type { Command } from 'commander';
import { describe, expect, it } from 'vitest';
import { examples, makeProgram } from '../../../src/cli/program.ts';
import { outputRows } from '../../../src/sim/description/knobs/beside.ts';
import { flagOf, paths } from '../../../src/sim/description/knobs.ts';

async function leaves(): Promise<Map<string, Command>> {
  const { program } = await makeProgram([]);
  const all = new Map<string, Command>();
  for (const { name } of program.commands.map((one) => ({ name: one.name() }))) {
    const loaded = (await makeProgram([name])).program.commands.find((one) => one.name() === name);
    if (loaded === undefined) throw new Error(`${name} is missing`);
    // a gateway runs by itself, and has commands too
    if (loaded.commands.length === 0 || name === 'gateway') all.set(name, loaded);
    for (const sub of loaded.commands) all.set(`${name} ${sub.name()}`, sub);
  }
  return all;
}

const commands = await leaves();

describe('every command', () => {
  it('is among the examples, and each example is of a command', () => {
    expect([...commands.keys()].sort()).toEqual(Object.keys(examples).sort());
  });

  it.each([...commands])('%s has a sentence, and an example whose options exist', (name, command) => {
    expect(command.description()).toMatch(/^[A-Z].*\.$/);
    const example = examples[name];
    expect(example.startsWith(`${name} `)).toBe(true);
    let text = '';
    command.configureOutput({ writeOut: (more) => (text += more) }).outputHelp();
    expect(text).toContain(`Example: tierkv ${example}`);
    const [own, behind = ''] = example.split(' -- ');
    const known = command.options.flatMap(({ long, short }) => [long, short]);
    for (const flag of own.match(/--[a-z-]+/g) ?? []) expect(known, example).toContain(flag);
    const simulated = [...paths.map(flagOf), ...outputRows.map(([flags]) => flags.split(' ')[0])];
    for (const flag of behind.match(/--[a-z-]+/g) ?? []) expect(simulated, example).toContain(flag);
  });

  it.each([...commands])('%s: a time is <time>, with an example or its unit', (_name, command) => {
    for (const { flags, description } of command.options) {
      expect(flags, `${flags}  ${description}`).not.toMatch(/<(s|ms|us|seconds)>/);
    }
  });
});
