/** Commands of `tierkv` called in this process. */

import type { Command } from 'commander';
import { vi } from 'vitest';
import { endingOf, inCallersWords, nameFields } from '../../src/cli/process.ts';
import { makeProgram } from '../../src/cli/program.ts';

/** What the command prints to stdout. Rejects as the command does; the exit code stays as it was. */
export async function printedBy(command: Command, ...args: string[]): Promise<string> {
  let out = '';
  const spy = vi.spyOn(process.stdout, 'write').mockImplementation((text) => {
    out += String(text);
    return true;
  });
  const before = process.exitCode;
  try {
    for (const one of [command, ...command.commands])
      one
        .exitOverride()
        .configureOutput({ writeErr: () => {} })
        .hook('preAction', (_, called) => nameFields(called));
    await command.parseAsync(args, { from: 'user' });
  } catch (error) {
    throw inCallersWords(error);
  } finally {
    spy.mockRestore();
    process.exitCode = before;
  }
  return out;
}

/** How a call that is refused ends, as `main.ts` would end with it. @throws where the call is taken */
export async function endOf(
  args: readonly string[],
): Promise<{ status: number; stdout: string; stderr: string }> {
  const out = vi.spyOn(process.stdout, 'write').mockReturnValue(true);
  const err = vi.spyOn(process.stderr, 'write').mockReturnValue(true);
  let help = 'tierkv';
  try {
    const made = await makeProgram(args);
    help = made.help;
    await made.program.parseAsync(args, { from: 'user' });
    throw new Error('it is taken');
  } catch (error) {
    const { exitCode, text } = endingOf(inCallersWords(error), help);
    const said = (spy: typeof out): string => spy.mock.calls.map(([part]) => String(part)).join('');
    return { status: exitCode, stdout: said(out), stderr: `${said(err)}${text}\n` };
  } finally {
    out.mockRestore();
    err.mockRestore();
  }
}
