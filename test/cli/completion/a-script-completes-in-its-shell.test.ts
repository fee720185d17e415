/** `tierkv completion SHELL`: each script in the shell that it is for. */

import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { makeProgram } from '../../../src/cli/program.ts';
import { printedBy } from '../printed.ts';

let folder: string;
const at = (shell: string): string => path.join(folder, `tierkv.${shell}`);
beforeAll(async () => {
  folder = fs.mkdtempSync(path.join(os.tmpdir(), 'tierkv-completion-'));
  for (const shell of ['bash', 'zsh', 'fish']) {
    const { program } = await makeProgram(['completion', shell]);
    fs.writeFileSync(at(shell), await printedBy(program, 'completion', shell));
  }
});
afterAll(() => fs.rmSync(folder, { recursive: true }));

/** A program that completes the words, the last of which is begun, and prints what may stand there. */
const programs: Readonly<Record<string, (words: readonly string[]) => string>> = {
  bash: (words) =>
    `source ${at('bash')}; COMP_WORDS=(${words.join(' ')}); COMP_CWORD=${words.length - 1}; _tierkv; ` +
    // biome-ignore lint/suspicious/noTemplateCurlyInString: an array of the shell
    'printf "%s\\n" "${COMPREPLY[@]}"',
  zsh: (words) =>
    'compdef() { :; }; compadd() { shift; print -rl -- "$@"; }; _files() { print FILES; }; ' +
    `source ${at('zsh')}; words=(${words.join(' ')}); CURRENT=${words.length}; _tierkv`,
  fish: (words) => `source ${at('fish')}; complete -C "${words.join(' ').replaceAll("''", '')}"`,
};

function completed(shell: string, ...words: string[]): string[] {
  const { stdout } = spawnSync(shell, ['-c', programs[shell](words)], { encoding: 'utf8' });
  return stdout
    .split('\n')
    .map((line) => line.split('\t')[0])
    .filter((word) => word !== '');
}

for (const shell of ['bash', 'zsh', 'fish']) {
  const isHere = spawnSync(shell, ['-c', 'true']).status === 0;
  if (!isHere) console.warn(`SKIPPED: ${shell} is not here to complete in. Run: apt-get install ${shell}`);
  describe.skipIf(!isHere)(shell, () => {
    it('knows commands', () => {
      expect(completed(shell, 'tierkv', 'sim')).toContain('simulate');
      expect(completed(shell, 'tierkv', 'workload', 'd')).toContain('describe');
      expect(completed(shell, 'tierkv', 'workload', 'd')).not.toContain('simulate');
    });

    it('knows the options of a command, and none that help leaves out', () => {
      const found = completed(shell, 'tierkv', 'simulate', '--');
      for (const option of ['--gpu', '--json', '--as-upstream']) expect(found).toContain(option);
      for (const option of ['--hardware', '--speed']) expect(found).not.toContain(option);
      expect(completed(shell, 'tierkv', 'latency', 'fit', '--')).toContain('--hold-out');
    });

    it('knows the names that an option takes', () => {
      expect(completed(shell, 'tierkv', 'simulate', '--gpu', 'H')).toEqual(
        expect.arrayContaining(['H100', 'H200']),
      );
      expect(completed(shell, 'tierkv', 'replay', '--eviction', 'haz')).toContain('hazard');
    });
  });
}

it('another shell is refused with the ones that there are', async () => {
  const { program } = await makeProgram(['completion', 'tcsh']);
  await expect(printedBy(program, 'completion', 'tcsh')).rejects.toThrow(
    /Allowed choices are bash, zsh, fish/,
  );
});
